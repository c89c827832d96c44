"""What the preset sift is made of, chosen on training images, each left out in turn: no test image has a say.

Members one by one, by the exact leave-one-out scores of ridge regression, and fusions of some of them: the weights for
one half of the images are learned on the other. ``--dataset caltech256 --classes 128`` is the other set.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from common import benchmark, make, parts_over, table, values_of

from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.parts import accuracy
from lnbnn.model.calibration import fit_fusion_weights, fit_temperature, fuse, log_probabilities

ROWS: dict[str, Any] = {
    "fisher, 256 Gaussians, no square roots": ["fisher", {"n_gaussians": 256, "root": False}],
    "fisher, 256 Gaussians": ["fisher", {"n_gaussians": 256}],
    "fisher, 512 Gaussians": ["fisher", {"n_gaussians": 512}],
    "slc": ["slc", {"max_descriptors": None}],
    "fisher-slc": ["fisher-slc", {"n_gaussians": 512, "max_descriptors": None}],
}
FUSIONS = [["fisher, 256 Gaussians", "slc"], ["fisher, 512 Gaussians", "slc"]]
SETTINGS: Settings = {"n_train": 15, "n_classes": 101, "seed": 0}
SETTINGS |= {"rows": {name: {"recipe": recipe} for name, recipe in ROWS.items()}, "fusions": FUSIONS}
QUICK: Settings = {"n_train": 4, "n_classes": 3, "fusions": [["fisher", "slc"]]}
QUICK |= {"rows": {"fisher": {"recipe": ["fisher", {"n_gaussians": 4}]}, "slc": {"recipe": ["slc", {"n_words": 16}]}}}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """One member: its scores of each training image without it."""
    train, _ = lab.split_of(settings | {"n_test": 1}, lab.shuffled_classes(settings["seed"])[: settings["n_classes"]])
    classifier = make(settings["recipe"]).set_params(n_jobs=lab.n_jobs)
    method = classifier.fit(train.paths, train.labels, progress=lab.progress).method_
    scores, places = method.held_out_scores(), np.asarray(method.references.places)
    kept = {"scores": scores.astype(np.float32), "places": places}
    return {"accuracy": accuracy(scores, places), "alpha": float(method.alpha[0]), "mib": method.nbytes >> 20, **kept}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """Every member alone, then the fusions."""
    found = {part.settings["row"]: outcome for part, outcome in outcomes}
    rows = {name: values_of(outcome) for name, outcome in found.items()}
    places = next(iter(found.values()))["places"]
    log_probas = {name: calibrated(outcome["scores"].astype(np.float64), places) for name, outcome in found.items()}
    for names in settings["fusions"]:
        if set(names) <= set(found):
            fused = cross_fitted([log_probas[name] for name in names], places)
            rows[" + ".join(f"({name})" for name in names)] = {"accuracy": accuracy(fused, places)}
    return {"n_images": len(places), "rows": rows}


def calibrated(scores: Any, places: Any) -> Any:
    return log_probabilities(scores, fit_temperature(scores, places))


def cross_fitted(log_probas: list[Any], places: Any) -> Any:
    """The fusion of each half of the images by weights learned on the other half."""
    result = np.empty_like(log_probas[0])
    for half in (0, 1):
        own = np.arange(len(places)) % 2 == half
        weights = fit_fusion_weights([one[~own] for one in log_probas], places[~own])
        result[own] = fuse([one[own] for one in log_probas], weights)
    return result


def tabulate(results: Results) -> str:
    rows = [[name, f"{row['accuracy']:.1f}", f"{row.get('mib', '')}"] for name, row in results["rows"].items()]
    return table(f"{results['n_images']:,} training images, each left out | accuracy, % | MiB", rows)


RECORDS = {"sift-choice": "Caltech 101", "sift-choice-caltech256": "Caltech 256 (a part)"}


def render(read: Callable[[str], Any]) -> str:
    """The table of the docs: a row per member or fusion, a column per set."""
    records = {name: record for name in RECORDS if (record := read(name)) is not None}
    if not records:
        return ""
    found = [record.results for record in records.values()]
    columns = [f"{RECORDS[name]}, {record.settings['n_classes']} classes" for name, record in records.items()]
    names = [name for name in found[0]["rows"] if all(name in one["rows"] for one in found)]
    rows = [[name, *(f"{one['rows'][name]['accuracy']:.1f}" for one in found)] for name in names]
    named = ", ".join(f"`results/{name}.json`" for name in records)
    how = (
        "15 training images per class, each left out: mean per-class accuracy in %. `python benchmarks/sift_choice.py`"
    )
    return table(" | ".join(["members", *columns]), rows) + f"\n{how}; records: {named}.\n"


plan = parts_over("sift choice", compute, rows="row")
EXPERIMENT = benchmark(globals())

"""The preset sift on seeded splits: accuracy, that of every fusion of some of its members, time and memory of each.

The fusion is fitted once per split. The weights of a fusion of fewer members are learned from the same held-out scores,
so an ablation costs nothing more, and no test image has a say in it.
"""

import statistics
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from common import benchmark, make, parts_over, table, values_of, watch

from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.parts import accuracy, truth_of
from lnbnn.model.fusion import FusionModel
from lnbnn.params import preset_params
from lnbnn.reading.extraction import features_of, map_in_order

MEMBERS = preset_params("sift")["members"]
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seeds": [0, 1, 2, 3, 4], "n_timed": 20}
SETTINGS |= {"members": {one["method"]: [one.pop("method"), one] for one in MEMBERS}}
QUICK: Settings = {"n_train": 4, "n_test": 2, "seeds": [0], "n_timed": 2}
QUICK |= {"members": {"slc": ["slc", {"n_words": 16}], "fisher": ["fisher", {"n_gaussians": 4}]}}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Fit the fusion, and ask it, and each fusion of some of its members, about the test images."""
    train, test = lab.split_of(settings)
    classifier = make(settings["members"]).set_params(n_jobs=lab.n_jobs)
    for _, member in classifier.estimators:
        member.set_params(n_jobs=lab.n_jobs)
    with watch() as fit:
        classifier.fit(train.paths, train.labels, progress=lab.progress)
    model = classifier.fitted()
    assert isinstance(model, FusionModel)

    def work(path: str) -> Any:
        return np.stack(model.member_log_probas(features_of(path, model.descriptors)))

    found = []
    for one in map_in_order(work, list(test.paths), lab.n_jobs):
        found.append(one)
        lab.progress("classifying", len(found), len(test))
    log_probas, truth = np.stack(found, axis=1), truth_of(classifier, test)
    names = list(settings["members"])
    accuracies = {}
    for n_taken in range(1, len(names) + 1):
        for places in combinations(range(len(names)), n_taken):
            weights = fused.weights if isinstance(fused := model.of_members(list(places)), FusionModel) else [1.0]
            scores = np.tensordot(weights, log_probas[list(places)], axes=1)
            accuracies[" + ".join(names[place] for place in places)] = accuracy(scores, truth)
    return {
        "accuracies": accuracies,
        "weights": {name: round(float(weight), 3) for name, weight in zip(names, model.weights, strict=True)},
        "fit": {"wall": round(fit.wall_s), "cpu": round(fit.cpu_s)},
        **costs(model, names, list(test.paths[:: max(1, len(test) // settings["n_timed"])][: settings["n_timed"]])),
    }


def costs(model: FusionModel, names: list[str], paths: list[str]) -> dict[str, Any]:
    """CPU per image, of reading it and of each member; memory of each."""
    with watch() as reading:
        joints = [features_of(path, model.descriptors) for path in paths]
    cpu = {"reading": reading.cpu_s}
    for place, name in enumerate(names):
        only = FusionModel(model.settings.with_estimators([model.settings.estimators[place]]), [model.members[place]])
        only.references = model.references
        with watch() as asking:
            for joint in joints:
                only.member_log_probas(joint)
        cpu[name] = asking.cpu_s
    memory = {name: round(member.method.nbytes / 2**20) for name, member in zip(names, model.members, strict=True)}
    return {"cpu_ms": {name: round(1000 * spent / len(paths), 1) for name, spent in cpu.items()}, "mib": memory}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By split, and the means."""
    splits = [{"seed": part.settings["seed"], **values_of(found)} for part, found in outcomes]

    def means(key: str) -> dict[str, Any]:
        return {name: round(statistics.mean(split[key][name] for split in splits), 2) for name in splits[0][key]}

    scores = [split["accuracies"][" + ".join(settings["members"])] for split in splits]
    best = max(score for name, score in means("accuracies").items() if "+" not in name)
    return {
        "accuracy_mean": round(statistics.mean(scores), 2),
        "accuracy_sd": round(statistics.stdev(scores), 2) if len(scores) > 1 else None,
        "over_the_best_member": round(statistics.mean(scores) - best, 2),
        **{key: means(key) for key in ("accuracies", "weights", "cpu_ms", "mib")},
        "fit_seconds": round(statistics.mean(split["fit"]["wall"] for split in splits)),
        "n_splits": len(splits),
        "splits": splits,
    }


def tabulate(results: Results) -> str:
    return table("fusion | accuracy, % | CPU per image | memory", _rows([results]))


def _rows(all_results: list[Results]) -> list[list[str]]:
    """A row per fusion: its accuracy in each record, and what it costs in the first."""
    first, rows = all_results[0], []
    for name in reversed(first["accuracies"]):
        members = name.split(" + ")
        cpu = first["cpu_ms"]["reading"] + sum(first["cpu_ms"][member] for member in members)
        memory = sum(first["mib"][member] for member in members)
        found = [_shown(results, name) for results in all_results]
        rows.append([name, *found, f"{cpu:.0f} ms", f"{memory:,.0f} MiB"])
    return rows


def _shown(results: Results, name: str) -> str:
    values = [split["accuracies"][name] for split in results["splits"]]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


RECORDS = {
    "sift-15": "Caltech 101, 15 images",
    "sift-30": "Caltech 101, 30 images",
    "sift-15-caltech256": "Caltech 256 (a part), 15 images",
}


def render(read: Callable[[str], Any]) -> str:
    """The table of the docs: a row per fusion, a column per record."""
    records = {name: record for name in RECORDS if (record := read(name)) is not None}
    if not records:
        return ""
    counts = {name: record.results["n_splits"] for name, record in records.items()}
    columns = [f"{RECORDS[name]}, {n} split{'s' * (n > 1)}" for name, n in counts.items()]
    rows = _rows([record.results for record in records.values()])
    text = table(" | ".join(["fusion", *columns, "CPU per image", "memory"]), rows)
    named = ", ".join(f"`results/{name}.json`" for name in records)
    how = "Mean per-class accuracy in %, up to 15 test images per class. `python benchmarks/sift.py`; records: "
    return f"{text}\n{how}{named}.\n"


plan = parts_over("sift", compute, timed=True, seeds="seed")
EXPERIMENT = benchmark(globals(), label="sift-{n_train}".format_map)

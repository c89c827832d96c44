"""The preset sift on seeded splits: accuracy, that of each of its parts and of fusions of some, time and memory.

The preset is fitted once per split. The codes of its second member are also classified apart, by the same regression on
some of their values, and fused by weights from the same held-out scores; so an ablation costs little, and no test image
has a say in it.
"""

import statistics
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from common import benchmark, make, parts_over, table, values_of, watch

from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.parts import accuracy, truth_of
from lnbnn.methods.joint_coding import JointCoding
from lnbnn.methods.least_squares import Regression
from lnbnn.methods.ridge import best_alpha
from lnbnn.model.calibration import fit_fusion_weights, fit_temperature, fuse, log_probabilities
from lnbnn.model.fusion import FusionModel
from lnbnn.params import preset_params
from lnbnn.reading.extraction import features_of, map_in_order

MEMBERS = preset_params("sift")["members"]
PARTS = ("fisher", "slc")  # of the member fisher-slc
SINGLE = ("local-nbnn", *PARTS)
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seeds": [0, 1, 2, 3, 4], "n_timed": 20}
SETTINGS |= {"members": {one["method"]: [one.pop("method"), one] for one in MEMBERS}}
QUICK: Settings = {"n_train": 4, "n_test": 2, "seeds": [0], "n_timed": 2}
QUICK |= {
    "members": {"local-nbnn": ["local-nbnn", {}], "fisher-slc": ["fisher-slc", {"n_gaussians": 4, "n_words": 16}]}
}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Fit the preset, and ask it, its parts and fusions of some of them about the test images."""
    train, test = lab.split_of(settings)
    classifier = make(settings["members"]).set_params(n_jobs=lab.n_jobs)
    for _, member in classifier.estimators:
        member.set_params(n_jobs=lab.n_jobs)
    with watch() as fit:
        classifier.fit(train.paths, train.labels, progress=lab.progress)
    model = classifier.fitted()
    assert isinstance(model, FusionModel)
    near, coded = (only(model, place) for place in range(2))
    joint = model.members[1].method
    assert isinstance(joint, JointCoding)

    def work(path: str) -> tuple[Any, Any]:
        read = features_of(path, model.descriptors)
        return near.member_log_probas(read)[0], joint.vector_of(read.parts[model.part_of[1]])

    found = []
    for one in map_in_order(work, list(test.paths), lab.n_jobs):
        found.append(one)
        lab.progress("classifying", len(found), len(test))
    asked = {"local-nbnn": np.stack([log_proba for log_proba, _ in found])}
    held_out = dict(zip(settings["members"], model.held_out_log_probas(), strict=True))
    vectors = np.stack([vector for _, vector in found])
    scores = vectors.astype(np.float64) @ joint.coef.T + joint.intercept
    asked["fisher-slc"] = model.members[1].calibrated(scores)
    rows_of = {image.id: row for row, image in enumerate(joint.references)}
    rows = [rows_of[number] for number in model.held_out.ids]  # of many images the weights take an even choice
    places = joint.references.places[rows]
    for name, (_, values) in zip(PARTS, joint.slices(), strict=True):
        regression = Regression(joint.vectors[:, values], joint.references.places)
        held_out[name], asked[name] = apart(regression, rows, vectors[:, values])
    truth, accuracies, weights = truth_of(classifier, test), {}, {}
    taken = [names for n in (1, 2, 3) for names in combinations(SINGLE, n)]
    for names in [*taken, ("fisher-slc",), tuple(settings["members"])]:
        weights[" + ".join(names)] = fit_fusion_weights([held_out[name] for name in names], places)
        fused = fuse([asked[name] for name in names], weights[" + ".join(names)])
        accuracies[" + ".join(names)] = accuracy(fused, truth)
    paths = list(test.paths[:: max(1, len(test) // settings["n_timed"])][: settings["n_timed"]])
    return {
        "accuracies": accuracies,
        "weights": dict(zip(settings["members"], np.round(model.weights, 3).tolist(), strict=True)),
        "alpha": float(joint.alpha[0]),
        "fit": {"wall": round(fit.wall_s), "cpu": round(fit.cpu_s)},
        **costs(model, near, coded, paths),
    }


def only(model: FusionModel, place: int) -> FusionModel:
    """The fusion of one member."""
    one = FusionModel(model.settings.with_estimators([model.settings.estimators[place]]), [model.members[place]])
    one.references = model.references
    return one


def apart(regression: Regression, rows: list[int], asked: Any) -> tuple[Any, Any]:
    """Log-probabilities by a regression of its own: of training images, each left out, and of others."""
    alpha = best_alpha(regression)
    coef, intercept = regression.solve(alpha)
    held_out = regression.each_left_out(alpha)[rows]
    temperature = fit_temperature(held_out, regression.places[rows])
    scores = asked.astype(np.float64) @ coef.T + intercept
    return log_probabilities(held_out, temperature), log_probabilities(scores, temperature)


def costs(model: FusionModel, near: FusionModel, coded: FusionModel, paths: list[str]) -> dict[str, Any]:
    """CPU per image, of reading it, of each member and of the codes of each part; memory of each."""
    joint = model.members[1].method
    assert isinstance(joint, JointCoding)
    with watch() as reading:
        read = [features_of(path, model.descriptors) for path in paths]
    features = [one.parts[model.part_of[1]] for one in read]
    cpu = {"reading": reading.cpu_s}
    for name, work, asked in (
        ("local-nbnn", near.member_log_probas, read),
        ("fisher-slc", coded.member_log_probas, read),
        *((name, part.vector_of, features) for name, part in zip(PARTS, joint.parts, strict=True)),
    ):
        with watch() as spent:
            for one in asked:
                work(one)
        cpu[name] = spent.cpu_s
    memory = {
        name: member.method.nbytes for name, member in zip(("local-nbnn", "fisher-slc"), model.members, strict=True)
    }
    for name, (_, values) in zip(PARTS, joint.slices(), strict=True):
        memory[name] = joint.vectors[:, values].nbytes + joint.coef[:, values].nbytes
    return {
        "cpu_ms": {name: round(1000 * spent / len(paths), 1) for name, spent in cpu.items()},
        "mib": {name: round(held / 2**20) for name, held in memory.items()},
    }


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By split, and the means."""
    splits = [{"seed": part.settings["seed"], **values_of(found)} for part, found in outcomes]

    def means(key: str) -> dict[str, Any]:
        return {name: round(statistics.mean(split[key][name] for split in splits), 2) for name in splits[0][key]}

    scores = [split["accuracies"][" + ".join(settings["members"])] for split in splits]
    best = max(score for name, score in means("accuracies").items() if name in SINGLE)
    return {
        "accuracy_mean": round(statistics.mean(scores), 2),
        "accuracy_sd": round(statistics.stdev(scores), 2) if len(scores) > 1 else None,
        "over_the_best_method": round(statistics.mean(scores) - best, 2),
        **{key: means(key) for key in ("accuracies", "weights", "cpu_ms", "mib")},
        "fit_seconds": round(statistics.mean(split["fit"]["wall"] for split in splits)),
        "n_splits": len(splits),
        "splits": splits,
    }


def tabulate(results: Results) -> str:
    return table("method | accuracy, % | CPU per image | memory", _rows([results]))


def _rows(all_results: list[Results]) -> list[list[str]]:
    """A row per method or fusion: its accuracy in each record, and what it costs in the first."""
    first, rows = all_results[0], []
    for name in reversed(first["accuracies"]):
        members = name.split(" + ")
        cpu = first["cpu_ms"]["reading"] + sum(first["cpu_ms"][member] for member in members)
        memory = sum(first["mib"][member] for member in members)
        found = [_shown(results, name) for results in all_results]
        rows.append([name, *found, f"{cpu:.0f} ms", f"{memory:,.0f} MiB"])
    return rows


def _shown(results: Results, name: str) -> str:
    values = [split["accuracies"][name] for split in results["splits"] if name in split["accuracies"]]
    if not values:  # in a record of before
        return ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


RECORDS = {
    "sift-15": "Caltech 101, 15 images",
    "sift-30": "Caltech 101, 30 images",
    "sift-15-caltech256": "Caltech 256 (a part), 15 images",
}


def render(read: Callable[[str], Any]) -> str:
    """The table of the docs: a row per method or fusion, a column per record."""
    records = {name: record for name in RECORDS if (record := read(name)) is not None}
    if not records:
        return ""
    counts = {name: record.results["n_splits"] for name, record in records.items()}
    columns = [f"{RECORDS[name]}, {n} split{'s' * (n > 1)}" for name, n in counts.items()]
    rows = _rows([record.results for record in records.values()])
    text = table(" | ".join(["method", *columns, "CPU per image", "memory"]), rows)
    named = ", ".join(f"`results/{name}.json`" for name in records)
    how = "Mean per-class accuracy in %, up to 15 test images per class. `python benchmarks/sift.py`; records: "
    return f"{text}\n{how}{named}.\n"


plan = parts_over("sift", compute, timed=True, seeds="seed")
EXPERIMENT = benchmark(globals(), label="sift-{n_train}".format_map)

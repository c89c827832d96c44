"""The preset auto on seeded splits: what it chose, its accuracy, what it had promised, and its members one by one.

For each split auto is fitted on the training images and asked about the test images: mean per-class accuracy of the
fusion, of each member, and of logistic regression on the same network's mean cells; the accuracy that auto told to
expect, with its interval; how sure its answers are and how often they are right. Without the network:

    python benchmarks/auto.py --descriptors dense-sift keypoint-sift
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from common import benchmark, parts_over, reliability_bins, table, values_of, watch
from sklearn.linear_model import LogisticRegression

from lnbnn.classifiers.auto import Auto
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.parts import accuracy, truth_of
from lnbnn.model.calibration import expected_calibration_error
from lnbnn.model.fusion import FusionModel
from lnbnn.reading.extraction import features_of, map_in_order

SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seeds": [0, 1, 2, 3, 4], "budget": 30.0}
SETTINGS |= {"descriptors": ["deep", "dense-sift", "keypoint-sift"], "inverse_penalty": 100.0, "n_timed": 40}
QUICK: Settings = {"n_train": 4, "n_test": 2, "seeds": [0], "n_timed": 2, "budget": 1.0}
EDGES = np.array([0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0 + 1e-9])


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Fit auto, and ask it and each of its members about the test images."""
    train, test = lab.split_of(settings)
    auto = Auto(descriptors=settings["descriptors"], budget=settings["budget"], n_jobs=lab.n_jobs)
    with watch() as fit:
        auto.fit(train.paths, train.labels, progress=lab.progress)
    model = auto.fitted()
    assert isinstance(model, FusionModel)
    head = next((one for one in model.members if one.settings.method == "pooled-ridge"), None)

    def work(path: str) -> tuple[Any, ...]:
        joint = features_of(path, model.descriptors)
        log_probas = model.member_log_probas(joint)
        fused = model.fused(log_probas)
        vector = None if head is None else head.method.vector_of(joint.parts[model.part_of[model.members.index(head)]])
        return fused, model.calibration.log_proba(fused), np.stack(log_probas), vector

    with watch() as asked:
        found = []
        for one in map_in_order(work, list(test.paths), lab.n_jobs):
            found.append(one)
            lab.progress("classifying", len(found), len(test))
    truth = truth_of(auto, test)
    fused, calibrated = (np.stack([one[part] for one in found]) for part in (0, 1))
    members = {}
    for place, member in enumerate(model.members):
        scores = np.stack([one[2][place] for one in found])
        members[f"{member.settings.method} on {member.descriptor.name}"] = accuracy(scores, truth)
    paths = list(test.paths[:: max(1, len(test) // settings["n_timed"])][: settings["n_timed"]])
    auto.set_params(n_jobs=1)
    auto.predict(paths[:1])
    with watch() as one_by_one:
        for path in paths:
            auto.predict([path])
    return {
        "accuracy": accuracy(fused, truth),
        "members": members,
        **({} if head is None else {"logistic regression": _regression(head, found, truth, settings)}),
        "expected": auto.choice_.accuracy,
        "interval": list(auto.choice_.interval or ()),
        "choice": auto.choice_.as_json(),
        "described": auto.describe(),
        "reliability": _reliability(np.exp(calibrated), truth),
        "fit": {"wall": round(fit.wall_s, 1), "cpu": round(fit.cpu_s, 1)},
        "cpu_ms_per_image": round(1000 * one_by_one.cpu_s / len(paths), 1),
        "evaluate_cpu_s": round(asked.cpu_s, 1),
    }


def _regression(head: Any, found: list[Any], truth: Any, settings: Settings) -> float:
    """Logistic regression on the mean cells, centered on the training images and of unit length."""
    known, asked = head.method.vectors.astype(np.float64), np.stack([one[3] for one in found]).astype(np.float64)
    center = known.mean(axis=0)
    known, asked = ((part - center) / np.linalg.norm(part - center, axis=1, keepdims=True) for part in (known, asked))
    made = LogisticRegression(C=settings["inverse_penalty"], max_iter=200).fit(known, head.references.places)
    return accuracy(made.decision_function(asked), truth)


def _reliability(probabilities: Any, truth: Any) -> dict[str, Any]:
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    error = round(expected_calibration_error(probabilities, truth), 4)
    return {"expected_calibration_error": error, "bins": reliability_bins(sure, right, EDGES)}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By split, and the means."""
    splits = [{"seed": part.settings["seed"], **values_of(found)} for part, found in outcomes]
    scores = [split["accuracy"] for split in splits]
    within = [split["interval"][0] <= split["accuracy"] / 100 <= split["interval"][1] for split in splits]
    below = [max(split["members"].values()) - split["accuracy"] for split in splits]
    others = [split["logistic regression"] for split in splits if "logistic regression" in split]
    return {
        "accuracy_mean": round(statistics.mean(scores), 2),
        "accuracy_sd": round(statistics.stdev(scores), 2) if len(scores) > 1 else None,
        "logistic_regression_mean": round(statistics.mean(others), 2) if others else None,
        "below_the_best_member_at_most": round(max(below), 2),
        "expected_mean": round(100 * statistics.mean(split["expected"] for split in splits), 2),
        "within_their_interval": sum(within),
        "n_splits": len(splits),
        "expected_calibration_error": round(
            statistics.mean(split["reliability"]["expected_calibration_error"] for split in splits), 4
        ),
        "fit_seconds": round(statistics.mean(split["fit"]["wall"] for split in splits)),
        "cpu_ms_per_image": round(statistics.median(split["cpu_ms_per_image"] for split in splits), 1),
        "splits": splits,
    }


def tabulate(results: Results) -> str:
    spread = "" if results["accuracy_sd"] is None else f" ± {results['accuracy_sd']:.1f}"
    regression = results["logistic_regression_mean"]
    row = [
        f"{results['accuracy_mean']:.1f}{spread}",
        "" if regression is None else f"{regression:.1f}",
        f"{results['expected_mean']:.1f}",
        f"{results['within_their_interval']} of {results['n_splits']}",
        f"{-results['below_the_best_member_at_most']:+.1f}",
        f"{results['expected_calibration_error']:.3f}",
    ]
    header = "accuracy, % | logistic regression, same network | expected | within its interval | over its best "
    return table(header + "member, at least | calibration error", [row])


ROWS = {
    "auto-15": "Caltech 101, 15 images per class",
    "auto-30": "Caltech 101, 30 images per class",
    "auto-15-caltech256": "Caltech 256 (a part), 15 images per class",
    "auto-sift-15": "without the network: Caltech 101, 15 images",
    "auto-sift-30": "without the network: Caltech 101, 30 images",
}


def render(read: Callable[[str], Any]) -> str:
    """The table of the docs: a row per record."""
    rows, header = [], ""
    for name, text in ROWS.items():
        if (record := read(name)) is not None:
            header, _, row = tabulate(record.results).split("\n")[:3]
            n_splits = record.results["n_splits"]
            rows.append(f"| {text}, {n_splits} split{'s' * (n_splits > 1)} {row}")
    if not rows:
        return ""
    lines = [f"| `lnbnn fit` {header}", "|---" * header.count("|") + "|", *rows]
    return "\n".join(lines) + (
        "\n\nMean per-class accuracy, up to 15 test images per class. `python benchmarks/auto.py`; records: "
        + ", ".join(f"`results/{name}.json`" for name in ROWS if read(name) is not None)
        + ". Logistic regression is on the same vectors as the ridge regression in it. The interval is of 95 %; "
        "the margin over the best member is the least over the splits.\n"
    )


def label(settings: Settings) -> str:
    kind = [] if "deep" in settings["descriptors"] else ["sift"]
    return "-".join(["auto", *kind, str(settings["n_train"])])


plan = parts_over("auto", compute, timed=True, seeds="seed")
EXPERIMENT = benchmark(globals())

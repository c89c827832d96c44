"""The figure on computation: accuracy against time, with the accuracy knob of each index swept."""

from __future__ import annotations

from typing import Any

import numpy as np

from lnbnn.lab.base import Arrays, Experiment, Part, markdown_table
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import accuracy, full_params, truth_of
from lnbnn.lab.timing import make_timed, read_features, timed_totals

__all__ = ["EXPERIMENT"]

_SPARSE = {"bin_sizes": [6, 9, 14, 21], "step_px": 8}

SETTINGS: dict[str, Any] = {
    "n_train": 15,
    "n_test": 3,
    "seed": 0,
    "params": {"descriptor_params": _SPARSE, "scale_weight": 0.0, "query_budget": 250},
    "sweeps": [
        ["local-nbnn", "faiss", "n_probes", [1, 2, 4, 8, 16]],
        ["local-nbnn", "flann", "checks", [16, 64, 256, 1024, 4096]],
        ["nbnn", "flann", "checks", [1, 4, 16, 64]],
        ["nbnn", "faiss", "n_probes", [1, 2, 4]],
    ],
}
QUICK: dict[str, Any] = {
    "n_train": 4,
    "n_test": 2,
    "params": {"descriptor_params": _SPARSE, "scale_weight": 0.0, "query_budget": 60},
    "sweeps": [
        ["local-nbnn", "faiss", "n_probes", [1, 2]],
        ["local-nbnn", "flann", "checks", [16, 64, 256]],
        ["nbnn", "flann", "checks", [1, 16, 64]],
    ],
}
PAPER = {
    "claim": "one check in each of 101 class indexes is slower, and less accurate, than thousands in the merged one",
}


def plan(settings: dict[str, Any]) -> list[Part]:
    """One part a method and index: the index is made once for its sweep."""
    parts = []
    for method, index, knob, values in settings["sweeps"]:
        own = {key: settings[key] for key in ("n_train", "n_test", "seed")}
        own |= {"method": method, "index": index, "knob": knob, "values": values}
        own["params"] = full_params(method, {**settings["params"], "index": index})
        parts.append(Part(f"sweep {method} {index}", own, _compute(own)))
    return parts


def _compute(own: dict[str, Any]):  # type: ignore[no-untyped-def]
    def compute(lab: Lab) -> Arrays:
        """Accuracy and CPU seconds an image at each value of the knob."""
        train, test = lab.split(own["n_train"], own["n_test"], own["seed"])
        classifier = make_timed(own["method"], own["params"])
        classifier.fit(train.paths, train.labels, store=lab.store, progress=lab.progress)
        features = read_features(classifier, test.paths, lab)
        indexes = classifier.indexes_ if own["method"] == "nbnn" else [classifier.index_]  # type: ignore[attr-defined]
        truth = truth_of(classifier, test)
        accuracies, seconds = [], []
        for value in own["values"]:
            for index in indexes:
                setattr(index, own["knob"], value)
            totals, times = timed_totals(classifier, features, lab, f"{own['knob']} {value}")
            accuracies.append(accuracy(-totals, truth))
            seconds.append(times)
        return {"accuracy": np.array(accuracies), "image_seconds": np.array(seconds)}

    return compute


def summarize(settings: dict[str, Any], outcomes: list[tuple[Part, Arrays]]) -> dict[str, Any]:
    """A curve a method and index: knob, accuracy, median CPU milliseconds an image."""
    curves = [
        {
            "method": part.settings["method"],
            "index": part.settings["index"],
            "knob": part.settings["knob"],
            "values": part.settings["values"],
            "accuracy": np.round(arrays["accuracy"], 2).tolist(),
            "cpu_ms": np.round(1000 * np.median(arrays["image_seconds"], axis=1), 2).tolist(),
        }
        for part, arrays in outcomes
    ]
    return {"curves": curves}


def tabulate(results: dict[str, Any]) -> str:
    """One row a point."""
    rows = [
        [f"`{curve['method']}`", f"`{curve['index']}`", f"{curve['knob']} {value}", f"{share:.1f}", f"{cpu_ms:.1f}"]
        for curve in results["curves"]
        for value, share, cpu_ms in zip(curve["values"], curve["accuracy"], curve["cpu_ms"], strict=True)
    ]
    return markdown_table(["method", "index", "knob", "accuracy, %", "CPU ms an image"], rows)


EXPERIMENT = Experiment(
    name="figure-computation",
    title="Accuracy against computation, NBNN and Local NBNN",
    settings=SETTINGS,
    quick=QUICK,
    paper=PAPER,
    plan=plan,
    summarize=summarize,
    tabulate=tabulate,
    draw="computation_figure",
)

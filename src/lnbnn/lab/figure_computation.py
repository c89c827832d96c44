"""The figure on computation: accuracy against time, with the accuracy knob of each index swept."""

from __future__ import annotations

from typing import Any

import numpy as np

from lnbnn.lab.axes import new_plot, plain_log, plot_curve
from lnbnn.lab.base import Experiment, Outcome, Outcomes, Part, Results, Settings, markdown_table
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import accuracy, full_params, timed_totals, truth_of

__all__ = ["EXPERIMENT", "SPARSE"]

SPARSE: Settings = {"descriptor_params": {"bin_sizes": [6, 9, 14, 21], "step_px": 8}, "scale_weight": 0.0}
SETTINGS: Settings = {"n_train": 15, "n_test": 3, "seed": 0, "params": SPARSE | {"query_budget": 250}}
SETTINGS["sweeps"] = [
    ["local-nbnn", "faiss", "n_probes", [1, 2, 4, 8, 16]],
    ["local-nbnn", "flann", "checks", [16, 64, 256, 1024, 4096]],
    ["nbnn", "flann", "checks", [1, 4, 16, 64]],
    ["nbnn", "faiss", "n_probes", [1, 2, 4]],
]
QUICK: Settings = {"n_train": 4, "n_test": 2, "params": SPARSE | {"query_budget": 60}}
QUICK["sweeps"] = [
    ["local-nbnn", "faiss", "n_probes", [1, 2]],
    ["local-nbnn", "flann", "checks", [16, 64, 256]],
    ["nbnn", "flann", "checks", [1, 16, 64]],
]
PAPER = {"claim": "one check in each of 101 class indexes is slower, and less accurate, than thousands in one index"}


def plan(settings: Settings) -> list[Part]:
    """One part per method and index: the index is made once for its sweep."""
    parts = []
    for method, index, knob, values in settings["sweeps"]:
        own = {key: settings[key] for key in ("n_train", "n_test", "seed")}
        own |= {"method": method, "index": index, "knob": knob, "values": values}
        own["params"] = full_params(method, {**settings["params"], "index": index})
        parts.append(Part(f"sweep {method} {index}", own, compute))
    return parts


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Accuracy and CPU seconds per image at each value of the knob."""
    train, test = lab.split_of(settings)
    classifier = lab.fit(settings["method"], settings["params"], train, n_jobs=1)
    accuracies, seconds = [], []
    for value in settings["values"]:
        for index in [index for index, _ in classifier.matching_.indexes()]:
            setattr(index, settings["knob"], value)
        totals, times = timed_totals(classifier, test.paths, lab, f"{settings['knob']} {value}")
        accuracies.append(accuracy(-totals, truth_of(classifier, test)))
        seconds.append(times)
    return {"accuracy": np.array(accuracies), "image_seconds": np.array(seconds)}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """One curve per method and index: knob, accuracy, median CPU milliseconds per image."""
    curves = [
        {
            **{name: part.settings[name] for name in ("method", "index", "knob", "values")},
            "accuracy": np.round(arrays["accuracy"], 2).tolist(),
            "cpu_ms": np.round(1000 * np.median(arrays["image_seconds"], axis=1), 2).tolist(),
        }
        for part, arrays in outcomes
    ]
    return {"curves": curves}


def tabulate(results: Results) -> str:
    """One row per point."""
    rows = [
        [f"`{curve['method']}`", f"`{curve['index']}`", f"{curve['knob']} {value}", f"{share:.1f}", f"{cpu_ms:.1f}"]
        for curve in results["curves"]
        for value, share, cpu_ms in zip(curve["values"], curve["accuracy"], curve["cpu_ms"], strict=True)
    ]
    return markdown_table(["method", "index", "knob", "accuracy, %", "CPU ms per image"], rows)


def draw(results: Results) -> Any:
    """Accuracy against CPU time per image: a curve per method and index, a point per value of the knob."""
    figure, axes = new_plot("CPU milliseconds per image", "mean per-class accuracy, %")
    for curve in results["curves"]:
        color = plot_curve(axes, curve, "cpu_ms", "accuracy", f" ({curve['knob']})")
        for value, x, y in zip(curve["values"], curve["cpu_ms"], curve["accuracy"], strict=True):
            axes.annotate(str(value), (x, y), (4, -10), textcoords="offset points", fontsize=7, color=color)
    axes.set_xscale("log")
    plain_log(axes.xaxis)
    axes.legend(fontsize=8, frameon=False)
    return figure


TITLE = "Accuracy against computation, NBNN and Local NBNN"
EXPERIMENT = Experiment("figure-computation", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, PAPER, draw)

"""The figure on scaling: time per image against the number of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.lab.axes import new_plot, plain_log, plain_ticks, plot_curve
from lnbnn.lab.base import Experiment, Outcome, Outcomes, Part, Results, Settings, markdown_table
from lnbnn.lab.figure_computation import SPARSE
from lnbnn.lab.lab import Lab, of_classes
from lnbnn.lab.parts import full_params, timed_totals

__all__ = ["EXPERIMENT"]

SETTINGS: Settings = {"n_train": 15, "n_test": 12, "seed": 0, "params": SPARSE | {"query_budget": 250}}
SETTINGS["n_classes"] = [2, 4, 8, 16, 32, 64, 101, 256]
SETTINGS["runs"] = [
    ["local-nbnn", "faiss", {}],
    ["local-nbnn", "flann", {"checks": 128}],
    ["nbnn", "flann", {"checks": 128}],
]
QUICK: Settings = {"n_train": 4, "n_test": 4, "n_classes": [2, 4, 6], "params": SPARSE | {"query_budget": 60}}
PAPER = {"ratio at 256 classes": "100", "nbnn": "linear", "local-nbnn": "logarithmic"}


def plan(settings: Settings) -> list[Part]:
    """One part per method and index."""
    parts = []
    for method, index, index_params in settings["runs"]:
        own = {key: settings[key] for key in ("n_train", "n_test", "seed", "n_classes")}
        own |= {"method": method, "index": index, "index_params": index_params}
        own["params"] = full_params(method, {**settings["params"], "index": index, "index_params": index_params})
        parts.append(Part(f"classes {method} {index}", own, compute))
    return parts


def compute(lab: Lab, settings: Settings) -> Outcome:
    """CPU seconds of each query image; the same images, of the first two classes, at every number of classes."""
    train, test = lab.split_of(settings)
    order = lab.shuffled_classes(settings["seed"])
    counts = [n for n in settings["n_classes"] if n <= len(order)]
    queries = of_classes(test, order[:2])
    seconds = []
    for n_classes in counts:
        some = of_classes(train, order[:n_classes])
        classifier = lab.fit(settings["method"], settings["params"], some, n_jobs=1)
        seconds.append(timed_totals(classifier, queries.paths, lab, f"{n_classes} classes")[1])
    return {"n_classes": np.array(counts), "image_seconds": np.array(seconds)}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """Median CPU milliseconds at each number of classes, how they grow, and the ratio at the right end."""
    curves = []
    for part, arrays in outcomes:
        n_classes = np.asarray(arrays["n_classes"], dtype=np.float64)
        cpu_ms = 1000 * np.median(arrays["image_seconds"], axis=1)
        curves.append(
            {
                **{name: part.settings[name] for name in ("method", "index", "index_params")},
                "n_classes": [int(n) for n in n_classes],
                "cpu_ms": np.round(cpu_ms, 3).tolist(),
                **growth(n_classes, cpu_ms),
            }
        )
    last = {(curve["method"], curve["index"]): curve["cpu_ms"][-1] for curve in curves}
    slow = last.get(("nbnn", "flann"))
    ratios = {f"{m} {i}": round(slow / ms, 1) for (m, i), ms in last.items() if slow and m != "nbnn"}
    return {"curves": curves, "nbnn_to_local_at_the_right_end": ratios}


def growth(n_classes: NDArray[np.float64], cpu_ms: NDArray[np.float64]) -> dict[str, float]:
    """``exponent`` p of time ~ n^p; ``log_error`` and ``linear_error`` of a line in log n and in n: root mean square
    errors as shares of the mean time."""
    exponent = np.polyfit(np.log(n_classes), np.log(cpu_ms), 1)[0]
    found = {"exponent": round(float(exponent), 3)}
    for name, x in (("log_error", np.log(n_classes)), ("linear_error", n_classes)):
        line = np.polyval(np.polyfit(x, cpu_ms, 1), x)
        found[name] = round(float(np.sqrt(np.mean((line - cpu_ms) ** 2)) / cpu_ms.mean()), 3)
    return found


def tabulate(results: Results) -> str:
    """One row per method and index."""
    curves = results["curves"]
    counts = [f"{n} classes" for n in curves[0]["n_classes"]]
    rows = []
    for curve in curves:
        ratio = str(results["nbnn_to_local_at_the_right_end"].get(f"{curve['method']} {curve['index']}", ""))
        ratio = ratio if curve["index"] == "flann" else f"({ratio} across engines)"  # NBNN is measured with FLANN
        times = [f"{ms:.1f} ms" for ms in curve["cpu_ms"]]
        rows.append([f"`{curve['method']}`", f"`{curve['index']}`", *times, f"{curve['exponent']:.2f}", ratio])
    return markdown_table(["method", "index", *counts, "grows as n^p, p", "times NBNN's speed"], rows)


def draw(results: Results) -> Any:
    """CPU time per image against the number of classes, with the exponent of each curve's growth."""
    figure, axes = new_plot("number of classes", "CPU milliseconds per image")
    for curve in results["curves"]:
        plot_curve(axes, curve, "n_classes", "cpu_ms", f": grows as n^{curve['exponent']:.2f}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_log(axes.yaxis)
    plain_ticks(axes, np.array(results["curves"][0]["n_classes"]))
    axes.legend(fontsize=8, frameon=False)
    return figure


TITLE = "CPU time per image against the number of classes"
EXPERIMENT = Experiment("figure-scaling", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, PAPER, draw)

"""Accuracy against CPU time: what grids, budgets and searches of Local NBNN are worth, on Caltech 101.

The 15 training images per class of one split are indexed; each is then asked about with its own descriptors left out,
so that what is found here may choose defaults. Time is taken on one thread, on test images, whose labels are not looked
at. Draws docs/images/frontier.png.

    python benchmarks/frontier.py
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from common import preset, run, table

from lnbnn.lab import Experiment, Lab, Part, inside
from lnbnn.lab.axes import new_plot, plain_log
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.parts import full_params, share_right
from lnbnn.reading.extraction import features_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRIDS: dict[str, Settings] = {name: preset(name)["descriptor_params"] for name in ("balanced", "fast", "paper")}
POINTS = [  # grid, [lists visited, candidates compared again per neighbor], query budget, confidence
    ["balanced", [4, 4], 1500, 0.95],
    ["balanced", [4, 4], 250, None],
    ["balanced", [4, 4], 500, None],
    ["balanced", [8, 4], 500, None],
    ["balanced", [8, 4], 500, 0.95],
    ["balanced", [8, 4], 1000, 0.95],
    ["balanced", [16, 4], 250, None],
    ["balanced", [16, 4], 500, None],
    ["balanced", [16, 4], 500, 0.95],
    ["balanced", [32, 4], 500, None],
    ["fast", [2, 3], 1000, 0.9],
    ["fast", [4, 4], 500, None],
    ["fast", [4, 4], 500, 0.9],
    ["fast", [8, 4], 250, None],
    ["fast", [2, 3], 500, 0.9],
    ["fast", [1, 2], 500, 0.8],
    ["paper", [8, 4], None, None],
]
SETTINGS: Settings = {
    "n_train": 15,
    "n_test": 15,
    "seed": 0,
    "grids": GRIDS,
    "points": POINTS,
    "presets": {"balanced": POINTS[4], "fast": POINTS[10], "paper": POINTS[16]},
    "every": {"paper": 5},  # of the grids that take long, one image in so many is asked about
    "n_timed": {"balanced": 101, "fast": 101, "paper": 20},
}
QUICK: Settings = {
    "n_train": 4,
    "n_test": 2,
    "points": [POINTS[4], POINTS[10]],
    "presets": {"balanced": POINTS[4], "fast": POINTS[10]},
    "n_timed": {"balanced": 3, "fast": 3},
}


def plan(settings: Settings) -> list[Part]:
    """One part per grid: the model is fitted once for its points."""
    parts = []
    for grid in dict.fromkeys(point[0] for point in settings["points"]):
        own = {key: settings[key] for key in ("n_train", "n_test", "seed")}
        own["params"] = full_params("local-nbnn", {"descriptor_params": settings["grids"][grid]})
        own |= {"points": [point for point in settings["points"] if point[0] == grid]}
        own |= {"every": settings["every"].get(grid, 1), "n_timed": settings["n_timed"][grid]}
        parts.append(Part(f"frontier {grid}", own, compute, timed=True))
    return parts


def compute(lab: Lab, settings: Settings) -> Outcome:
    """The points of one grid."""
    train, test = lab.split_of(settings)
    model = lab.fit("local-nbnn", settings["params"], train, keep_features=False)
    asked = test.paths[:: max(1, len(test) // settings["n_timed"])]
    return {"points": [measure(lab, model, asked, point, settings["every"]) for point in settings["points"]]}


def measure(lab: Lab, model: Any, asked: tuple[str, ...], point: list[Any], every: int) -> dict[str, Any]:
    """Accuracy, and CPU milliseconds per image, of one choice of settings."""
    grid, (n_probes, factor), budget, confidence = point
    model.set_params(query_budget=budget, stop_confidence=confidence)
    model.index_.set_search(n_probes, factor)
    n_classes = len(model.classes_)

    def work(vectors: np.ndarray, own: range) -> np.ndarray:
        is_asked = inside.image_of_id(own.start) % every == 0
        return inside.estimated_totals(model, vectors, own) if is_asked else np.zeros(n_classes)

    found = inside.leave_each_out(model, work, lab.progress)[::every]
    truth = inside.places(model)[::every]
    extraction, classification = [], []
    for path in asked:
        begin = time.thread_time()
        features = features_of(path, model.descriptor_)
        middle = time.thread_time()
        inside.scores(model, features)
        extraction.append(1000 * (middle - begin))
        classification.append(1000 * (time.thread_time() - middle))
    return {
        "grid": grid,
        "n_probes": n_probes,
        "rerank_factor": factor,
        "query_budget": budget,
        "stop_confidence": confidence,
        "n_descriptors": len(model.index_),
        "n_images": len(truth),
        "accuracy": share_right(found.argmin(axis=1), truth),
        "classify_ms": round(statistics.mean(classification), 2),
        "classify_ms_median": round(statistics.median(classification), 2),
        "extract_ms": round(statistics.median(extraction), 2),
    }


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """All points, and which of them are presets."""
    done = [point for part, _ in outcomes for point in part.settings["points"]]
    presets = {name: done.index(point) for name, point in settings["presets"].items() if point in done}
    return {"points": [point for _, found in outcomes for point in found["points"]], "presets": presets}


def tabulate(results: dict[str, Any]) -> str:
    """One row per point, the presets named, most accurate first."""
    names = {place: f"preset `{name}`" for name, place in results["presets"].items()}
    rows = []
    for place, point in sorted(enumerate(results["points"]), key=lambda pair: -pair[1]["accuracy"]):
        queries = f"{point['query_budget']:,}" if point["query_budget"] else "all"
        row = [point["grid"], f"{point['n_probes']}, {point['rerank_factor']}", queries]
        row += [str(point["stop_confidence"] or "all asked for"), f"{point['accuracy']:.1f}"]
        rows.append([*row, f"{point['extract_ms']:.1f}", f"{point['classify_ms']:.1f}", names.get(place, "")])
    header = "grid of preset | lists, candidates | query descriptors | confidence | held-out accuracy, %"
    return table(f"{header} | CPU ms: extract | CPU ms: classify |", rows)


def draw(results: dict[str, Any]) -> Figure:
    """The points, the presets among them named."""
    figure, axes = new_plot("CPU ms per image, descriptors to answer", "held-out accuracy, %", size=(7, 4.2))
    for grid, marker in (("balanced", "o"), ("fast", "s"), ("paper", "^")):
        chosen = [point for point in results["points"] if point["grid"] == grid]
        label = f"every {GRIDS[grid]['step_px']} px, {len(GRIDS[grid]['bin_sizes'])} scales"
        axes.plot([p["classify_ms"] for p in chosen], [p["accuracy"] for p in chosen], marker, label=label)
    for name, place in results["presets"].items():
        point = results["points"][place]
        at = (point["classify_ms"], point["accuracy"])
        axes.annotate(name, at, xytext=(-6, -14), textcoords="offset points", ha="right")
    axes.set_xscale("log")
    plain_log(axes.xaxis)
    axes.legend(loc="lower right")
    return figure


TITLE = "Held-out accuracy against CPU time"
EXPERIMENT = Experiment("frontier", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, draw=draw, source="")

if __name__ == "__main__":
    run(EXPERIMENT)

"""Accuracy against CPU time: what grids, budgets and searches of Local NBNN are worth, on Caltech 101.

The 15 training images per class of one split are indexed; each is then asked about with its own descriptors left out,
so that what is found here may choose defaults. Time is taken on one thread, on test images, whose labels are not looked
at. Draws docs/images/frontier.png.
"""

import statistics
import time
from typing import Any

import numpy as np
from common import benchmark, parts_over, table

from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.axes import new_plot, plain_log
from lnbnn.lab.parts import share_right
from lnbnn.methods.matching import image_of_id
from lnbnn.params import preset_params
from lnbnn.reading.extraction import features_of

# lists visited, candidates compared again per neighbor; query budgets and confidences
SEARCHES: dict[str, list[Any]] = {
    "balanced": [
        [4, 4, [[1500, 0.95], [250, None], [500, None]]],
        [8, 4, [[500, None], [500, 0.95], [1000, 0.95]]],
        [16, 4, [[250, None], [500, None], [500, 0.95]]],
        [32, 4, [[500, None]]],
    ],
    "fast": [
        [2, 3, [[1000, 0.9], [500, 0.9]]],
        [4, 4, [[500, None], [500, 0.9]]],
        [8, 4, [[250, None]]],
        [1, 2, [[500, 0.8]]],
    ],
    "paper": [[8, 4, [[None, None]]]],
}
PRESETS = {"balanced": [8, 4, 500, 0.95], "fast": [2, 3, 1000, 0.9], "paper": [8, 4, None, None]}
OTHERWISE = {"paper": ", but with sizes"}  # every row has them
FIELDS = ("n_probes", "rerank_factor", "query_budget", "stop_confidence")
GRIDS: dict[str, Settings] = {  # every: of a grid that takes long, one image in so many is asked about
    name: {
        "descriptor": "dense-sift",
        "descriptor_params": preset_params(name).get("descriptor_params", {}),
        "points": [[lists, factor, *asked] for lists, factor, every in searches for asked in every],
        "every": 5 if name == "paper" else 1,
        "n_timed": 20 if name == "paper" else 101,
    }
    for name, searches in SEARCHES.items()
}
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seed": 0, "grids": GRIDS}
QUICK: Settings = {"n_train": 4, "n_test": 2}
QUICK["grids"] = {name: GRIDS[name] | {"points": [PRESETS[name]], "n_timed": 3} for name in ("balanced", "fast")}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """The points of one grid: the model is fitted once for them."""
    train, test = lab.split_of(settings)
    grid = {"descriptor": settings["descriptor"], "descriptor_params": settings["descriptor_params"]}
    model = lab.fit("local-nbnn", grid, train, keep_features=False)
    asked = test.paths[:: max(1, len(test) // settings["n_timed"])]
    return {"points": [measure(lab, model, asked, point, settings["every"]) for point in settings["points"]]}


def measure(lab: Lab, model: Any, asked: tuple[str, ...], point: list[Any], every: int) -> dict[str, Any]:
    """Accuracy, and CPU milliseconds per image, of one choice of settings."""
    n_probes, factor, budget, confidence = point
    model.set_params(query_budget=budget, stop_confidence=confidence)
    model.index_.set_search(n_probes, factor)

    def work(vectors: np.ndarray, own: range) -> np.ndarray:
        is_asked = image_of_id(own.start) % every == 0
        return model.matching_.estimated_totals(vectors, own) if is_asked else np.zeros(len(model.classes_))

    found = model.matching_.leave_each_out(work, lab.progress)[::every]
    truth = model.places_[::every]
    times = []
    for path in asked:
        begin = time.thread_time()
        features = features_of(path, model.descriptor_)
        middle = time.thread_time()
        model.decision_function([features])
        times.append([1000 * (middle - begin), 1000 * (time.thread_time() - middle)])
    extraction, classification = zip(*times, strict=True)
    return {
        **dict(zip(FIELDS, point, strict=True)),
        "n_descriptors": len(model.index_),
        "n_images": len(truth),
        "accuracy": share_right(found.argmin(axis=1), truth),
        "classify_ms": round(statistics.mean(classification), 2),
        "classify_ms_median": round(statistics.median(classification), 2),
        "extract_ms": round(statistics.median(extraction), 2),
    }


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    points = [{"grid": part.settings["grid"], **point} for part, found in outcomes for point in found["points"]]
    presets = {}
    for place, point in enumerate(points):
        if PRESETS[point["grid"]] == [point[field] for field in FIELDS]:
            presets[point["grid"]] = place
    return {"points": points, "presets": presets}


def tabulate(results: Results) -> str:
    names = {place: f"preset `{name}`{OTHERWISE.get(name, '')}" for name, place in results["presets"].items()}
    rows = []
    for place, point in sorted(enumerate(results["points"]), key=lambda pair: -pair[1]["accuracy"]):
        queries = f"{point['query_budget']:,}" if point["query_budget"] else "all"
        row = [point["grid"], f"{point['n_probes']}, {point['rerank_factor']}", queries]
        row += [str(point["stop_confidence"] or "all asked for"), f"{point['accuracy']:.1f}"]
        rows.append([*row, f"{point['extract_ms']:.1f}", f"{point['classify_ms']:.1f}", names.get(place, "")])
    header = "grid of preset | lists, candidates | query descriptors | confidence | held-out accuracy, %"
    return table(f"{header} | CPU ms: extract | CPU ms: classify |", rows)


def draw(results: Results) -> Any:
    figure, axes = new_plot("CPU ms per image, descriptors to answer", "held-out accuracy, %", size=(7, 4.2))
    for grid, marker in (("balanced", "o"), ("fast", "s"), ("paper", "^")):
        chosen = [point for point in results["points"] if point["grid"] == grid]
        axes.plot([p["classify_ms"] for p in chosen], [p["accuracy"] for p in chosen], marker, label=f"grid of {grid}")
    for name, place in results["presets"].items():
        at = (results["points"][place]["classify_ms"], results["points"][place]["accuracy"])
        axes.annotate(name, at, xytext=(-6, -14), textcoords="offset points", ha="right")
    axes.set_xscale("log")
    plain_log(axes.xaxis)
    axes.legend(loc="upper right")
    return figure


EXPERIMENT = benchmark(globals(), plan=parts_over("frontier", compute, timed=True, grids="grid"), source="")

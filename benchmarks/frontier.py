"""Accuracy against CPU time: what grids, budgets and searches of Local NBNN are worth, on Caltech 101.

The 15 training images a class of one split are indexed; each is then asked about with its own descriptors left out, so
that what is found here may choose defaults. Time is taken on one thread, on test images, whose labels are not looked
at. Writes results/frontier.json and
docs/images/frontier.png; each finished point is kept in runs/, so that a run that was stopped goes on where it was.

    python benchmarks/frontier.py
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
from common import HERE, mean_per_class, options_parser, show

from lnbnn import DenseSIFT, LocalNBNN
from lnbnn.classifiers.matching import image_of_id
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.lab.records import make_record, write_record
from lnbnn.params import preset_params
from lnbnn.reading.extraction import features_of

GRIDS: dict[str, dict[str, Any]] = {
    "balanced": DenseSIFT().settings(),
    "fast": preset_params("fast")["descriptor_params"],
    "paper": preset_params("paper")["descriptor_params"],
}
EVERY = {"paper": 5}  # of the grids that take long, one image in so many is asked about
POINTS = [  # grid, (lists visited, candidates compared again a neighbour), query budget, confidence
    ("balanced", (4, 4), 1500, 0.95),
    ("balanced", (4, 4), 250, None),
    ("balanced", (4, 4), 500, None),
    ("balanced", (8, 4), 500, None),
    ("balanced", (8, 4), 500, 0.95),
    ("balanced", (8, 4), 1000, 0.95),
    ("balanced", (16, 4), 250, None),
    ("balanced", (16, 4), 500, None),
    ("balanced", (16, 4), 500, 0.95),
    ("balanced", (32, 4), 500, None),
    ("fast", (2, 3), 1000, 0.9),
    ("fast", (4, 4), 500, None),
    ("fast", (4, 4), 500, 0.9),
    ("fast", (8, 4), 250, None),
    ("fast", (2, 3), 500, 0.9),
    ("fast", (1, 2), 500, 0.8),
    ("paper", (8, 4), None, None),
]
PRESETS = {"balanced": POINTS[4], "fast": POINTS[10], "paper": POINTS[16]}
N_TIMED = {"paper": 20}


def main() -> None:
    """Run the points that are not done yet, write the record and draw it."""
    parser = options_parser(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    train, test = split_images(load_caltech101(options.data), n_train=15, n_test=15, seed=options.seed)
    points = []
    for grid in GRIDS:
        model = None
        for point in [point for point in POINTS if point[0] == grid]:
            kept = HERE / "runs" / "frontier" / f"{'-'.join(map(str, point)).replace(' ', '')}-seed{options.seed}.json"
            if not kept.exists():
                model = model or LocalNBNN(descriptor_params=GRIDS[grid]).fit(train.paths, train.labels, progress=show)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(run(model, test, point)), encoding="utf-8")
            points.append(json.loads(kept.read_text(encoding="utf-8")))
    record = make_record(
        "frontier",
        f"python benchmarks/frontier.py --seed {options.seed}",
        settings={"n_train": 15, "grids": GRIDS, "threads_an_image": 1},
        seeds=[options.seed],
        results={"points": points, "presets": {name: POINTS.index(point) for name, point in PRESETS.items()}},
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "frontier.json", record)
    draw(record.results)


def run(
    model: LocalNBNN, test: LabelledImages, point: tuple[str, tuple[int, int], int | None, float | None]
) -> dict[str, Any]:
    """Accuracy, and CPU milliseconds an image, of one choice of settings."""
    grid, (n_probes, factor), budget, confidence = point
    model.set_params(query_budget=budget, stop_confidence=confidence)
    model.index_.set_search(n_probes, factor)  # type: ignore[attr-defined]
    every, n_classes = EVERY.get(grid, 1), len(model.classes_)

    def work(vectors: np.ndarray, own: range) -> np.ndarray:
        is_asked = image_of_id(own.start) % every == 0
        return model._estimated_totals(vectors, own) if is_asked else np.zeros(n_classes)

    found = model._leave_each_out(work, show)[::every]
    truth = np.array([image.label for image in model.images_])[::every]
    extraction, classification = [], []
    for path in test.paths[:: len(test) // N_TIMED.get(grid, 101)]:
        begin = time.thread_time()
        features = features_of(path, model.descriptor_)
        middle = time.thread_time()
        model._scores(features)
        extraction.append(1000 * (middle - begin))
        classification.append(1000 * (time.thread_time() - middle))
    result = {
        "grid": grid,
        "n_probes": n_probes,
        "rerank_factor": factor,
        "query_budget": budget,
        "stop_confidence": confidence,
        "n_descriptors": len(model.index_),
        "n_images": len(truth),
        "accuracy": mean_per_class(found.argmin(axis=1), truth),
        "classify_ms": round(statistics.mean(classification), 2),
        "classify_ms_median": round(statistics.median(classification), 2),
        "extract_ms": round(statistics.median(extraction), 2),
    }
    print(result, file=sys.stderr, flush=True)
    return result


def draw(results: dict[str, Any]) -> None:
    """The points, the presets among them named."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for grid, marker in (("balanced", "o"), ("fast", "s"), ("paper", "^")):
        chosen = [point for point in results["points"] if point["grid"] == grid]
        label = f"every {GRIDS[grid]['step_px']} px, {len(GRIDS[grid]['bin_sizes'])} scales"
        axes.plot([p["classify_ms"] for p in chosen], [p["accuracy"] for p in chosen], marker, label=label)
    for name, place in results["presets"].items():
        point = results["points"][place]
        axes.annotate(
            name, (point["classify_ms"], point["accuracy"]), xytext=(-6, -14), textcoords="offset points", ha="right"
        )
    axes.set(xscale="log", xlabel="CPU ms an image, descriptors to answer", ylabel="held-out accuracy, %")
    axes.set_xticks([5, 10, 20, 50, 100, 200, 500], minor=False)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3, which="both")
    figure.savefig(HERE / "docs" / "images" / "frontier.png", dpi=110)


if __name__ == "__main__":
    main()

"""How the time of a search grows with the number of classes and of reference descriptors, over 16-fold ranges.

Caltech 101, the default index. Writes results/growth.json and docs/images/growth.png, with the fits t = a + b log2(n)
and t = a n^p to each curve.

    python benchmarks/growth.py
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from common import HERE, options_parser

from lnbnn import DenseSIFT
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.splits import split_images
from lnbnn.features import ImageFeatures, append_location
from lnbnn.indexes import make_index
from lnbnn.lab.records import make_record, write_record
from lnbnn.reading.extraction import iter_features

SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)  # of the descriptors
N_ASKED = 30
QUERIES_AN_IMAGE = 500
REPEATS = 3


def main() -> None:
    """Measure both curves and write the record."""
    parser = options_parser(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    train, test = split_images(load_caltech101(options.data), n_train=15, n_test=15, seed=options.seed)
    images = []
    for features in iter_features(train.paths, DenseSIFT()):
        assert isinstance(features, ImageFeatures)
        images.append(append_location(features, 1.6))
    asked = []
    for features in iter_features(test.paths[:: len(test) // N_ASKED], DenseSIFT()):
        assert isinstance(features, ImageFeatures)
        vectors = append_location(features, 1.6)
        asked.append(vectors[np.linspace(0, len(vectors) - 1, QUERIES_AN_IMAGE).astype(int)])
    n_classes = len(set(train.labels))
    by_class = [images[place : place + 15] for place in range(0, len(images), 15)]
    descriptors, classes = [], []
    for share in SHARES:
        thinned = [vectors[:: round(1 / share)] for vectors in images]
        descriptors.append(measure(thinned, asked, n_classes))
    for share in SHARES:  # every fourth descriptor of 6 to 101 classes
        kept = np.linspace(0, n_classes - 1, round(4 * share * n_classes)).astype(int)
        classes.append(measure([vectors[::4] for place in kept for vectors in by_class[place]], asked, len(kept)))
    results = {
        "by_descriptors": {"points": descriptors, **fits([p["n_descriptors"] for p in descriptors], descriptors)},
        "by_classes": {"points": classes, **fits([p["n_classes"] for p in classes], classes)},
    }
    record = make_record(
        "growth",
        f"python benchmarks/growth.py --seed {options.seed}",
        settings={"n_neighbors": 10, "queries_an_image": QUERIES_AN_IMAGE, "n_images_asked": len(asked), "threads": 1},
        seeds=[options.seed],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "growth.json", record)
    draw(results)


def measure(images: list[np.ndarray], asked: list[np.ndarray], n_classes: int) -> dict[str, Any]:
    """CPU microseconds a query descriptor in an index of these images: the best of some repeats, mean over images."""
    index = make_index("faiss")
    for number, vectors in enumerate(images):
        index.add(vectors, (number << 20) + np.arange(len(vectors)))
    begin, cpu = time.perf_counter(), time.process_time()
    index.build()
    build_s, build_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    rounds = []
    for _ in range(REPEATS + 1):
        begin = time.thread_time()
        for vectors in asked:
            index.search(vectors, 11)
        rounds.append(1e6 * (time.thread_time() - begin) / (len(asked) * QUERIES_AN_IMAGE))
    point = {
        "n_classes": n_classes,
        "n_descriptors": len(index),
        "us_a_descriptor": round(min(rounds[1:]), 2),
        "us_a_descriptor_worst": round(max(rounds[1:]), 2),
        "build_s": round(build_s, 1),
        "build_cpu_s": round(build_cpu_s, 1),
        "index": index.describe(),
        "bytes_a_descriptor": round(index.nbytes / len(index), 1),
    }
    print(point, file=sys.stderr, flush=True)
    return point


def fits(sizes: list[int], points: list[dict[str, Any]]) -> dict[str, Any]:
    """t = a + b log2(n) and t = a n^p by least squares."""
    n, t = np.log2(np.array(sizes, float)), np.array([point["us_a_descriptor"] for point in points])
    slope, start = np.polyfit(n, t, 1)
    power, _ = np.polyfit(n, np.log2(t), 1)
    worst = float(np.abs(start + slope * n - t).max() / t.mean())
    return {
        "us_for_each_doubling": round(float(slope), 2),
        "worst_departure_from_logarithm": round(worst, 3),
        "power": round(float(power), 3),
        "times_for_16_fold": round(float(t[-1] / t[0]), 2),
    }


def draw(results: dict[str, Any]) -> None:
    """Both curves with their logarithms."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
    for axes, (name, field, words) in zip(
        panels,
        (
            ("by_descriptors", "n_descriptors", "reference descriptors"),
            ("by_classes", "n_classes", "classes, 15 images each"),
        ),
        strict=True,
    ):
        points = results[name]["points"]
        n, t = np.array([p[field] for p in points], float), np.array([p["us_a_descriptor"] for p in points])
        slope, start = np.polyfit(np.log2(n), t, 1)
        axes.plot(n, t, "o")
        axes.plot(n, start + slope * np.log2(n), "-", label=f"{start:.0f} + {slope:.1f} log2(n)")
        axes.set(xscale="log", xlabel=words)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
    panels[0].set_ylabel("CPU microseconds a query descriptor")
    figure.savefig(HERE / "docs" / "images" / "growth.png", dpi=110)


if __name__ == "__main__":
    main()

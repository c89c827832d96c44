"""Local NBNN's search against the ways one could do it otherwise, in one run: the same descriptors, the same images.

Some classes of Caltech 101 are indexed; the test images' descriptors are searched for by each way on one thread, and
scored alike. Writes results/search.json and docs/images/search.png. Ways whose package is not installed are left out
and named (hnswlib and kornia's torch are no dependencies of lnbnn).

    python benchmarks/search.py
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numpy as np
from common import HERE, mean_per_class, options_parser

from lnbnn import LocalNBNN
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.indexes import make_index
from lnbnn.indexes.base import Index
from lnbnn.lab.records import make_record, write_record
from lnbnn.scoring import local_nbnn_updates

N_NEIGHBORS = 10
Search = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Query vectors -> distances and row numbers of the N_NEIGHBORS + 1 nearest."""


def ours(vectors: np.ndarray) -> Search:
    """The default index."""
    return of_index(make_index("faiss"), vectors)


def flann(checks: int) -> Callable[[np.ndarray], Search]:
    """The paper's: four randomized kd-trees."""
    return lambda vectors: of_index(make_index("flann", {"checks": checks}), vectors)


def of_index(index: Index, vectors: np.ndarray) -> Search:
    """A search by one of our backends."""
    index.add(vectors, np.arange(len(vectors)))
    index.build()
    return lambda queries: index.search(queries, N_NEIGHBORS + 1)


def faiss_flat(vectors: np.ndarray) -> Search:
    """Exact, by matrix products."""
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(vectors.astype(np.float32))
    return lambda queries: index.search(queries.astype(np.float32), N_NEIGHBORS + 1)


def hnsw(vectors: np.ndarray) -> Search:
    """hnswlib's graph, at the settings of its README."""
    import hnswlib

    index = hnswlib.Index(space="l2", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors), ef_construction=200, M=16)
    index.set_num_threads(1)
    index.add_items(vectors.astype(np.float32))
    index.set_ef(50)

    def search(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, distances = index.knn_query(queries.astype(np.float32), k=N_NEIGHBORS + 1)
        return distances, rows.astype(np.int64)

    return search


def scikit_learn(vectors: np.ndarray) -> Search:
    """sklearn.neighbors as it comes, an image at a time."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=N_NEIGHBORS + 1, n_jobs=1)
    index.fit(vectors.astype(np.float32))

    def search(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        distances, rows = index.kneighbors(queries.astype(np.float32))
        return distances**2, rows

    return search


# name -> how to build it, how many images it is asked about (slow ones: fewer)
WAYS: dict[str, tuple[Callable[[np.ndarray], Search], int]] = {
    "lnbnn": (ours, 1000),
    "FLANN, 4 trees, 128 checks": (flann(128), 1000),
    "FLANN, 4 trees, 1024 checks": (flann(1024), 45),
    "hnswlib, M 16, ef 50": (hnsw, 1000),
    "FAISS flat (exact)": (faiss_flat, 15),
    "scikit-learn neighbors (exact)": (scikit_learn, 3),
}


def main() -> None:
    """Time every way and write the record."""
    parser = options_parser(__doc__)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--queries", type=int, default=500, help="descriptors an image")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    faiss.omp_set_num_threads(1)
    model, test = small_model(load_caltech101(options.data), options.classes, options.queries, options.seed)
    n = len(model.index_)
    vectors = model.index_.vectors_of(range(1 << 62))
    labels = np.repeat([image.label for image in model.images_], [image.n_descriptors for image in model.images_])
    queries = [model._vectors(model.query_features(path)) for path in test.paths]
    truth = np.searchsorted(model.classes_, test.labels)
    rows: list[dict[str, Any]] = []
    own_answers = np.empty(0, int)
    for name, (build, n_images) in WAYS.items():
        chosen = np.linspace(0, len(queries) - 1, min(n_images, len(queries))).astype(int)
        try:
            row, answers = measure(build, vectors, labels, [queries[i] for i in chosen])
        except ImportError as error:
            print(f"{name}: left out ({error})", file=sys.stderr)
            continue
        own_answers = own_answers if rows else answers
        row["accuracy"] = mean_per_class(answers, truth[chosen])
        row["accuracy_lnbnn_same_images"] = mean_per_class(own_answers[chosen], truth[chosen])
        rows.append({"way": name, **row})
        print(rows[-1], file=sys.stderr, flush=True)
    own = rows[0]["us_a_descriptor"]
    for row in rows:
        row["times_ours"] = round(row["us_a_descriptor"] / own, 1)
    answers, ms = stopping(model, test)
    results = {
        "n_classes": options.classes,
        "n_descriptors": n,
        "n_test_images": len(test),
        "queries_an_image": options.queries,
        "ways": rows,
        "stopping": {"accuracy": mean_per_class(answers, truth), "ms_an_image": round(float(np.mean(ms)), 2)},
    }
    command = (
        f"python benchmarks/search.py --classes {options.classes} --queries {options.queries} --seed {options.seed}"
    )
    record = make_record(
        "search",
        command,
        settings={"n_neighbors": N_NEIGHBORS, "threads": 1, "n_train": 15},
        seeds=[options.seed],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "search.json", record)
    draw(results)


def small_model(data: LabelledImages, n_classes: int, n_queries: int, seed: int) -> tuple[LocalNBNN, LabelledImages]:
    """A model of some classes with the default descriptors, and the test images of these classes."""
    chosen = set(np.random.default_rng(seed).permutation(sorted(set(data.labels)))[:n_classes].tolist())
    kept = [place for place, label in enumerate(data.labels) if label in chosen]
    part = LabelledImages(tuple(data.paths[i] for i in kept), tuple(data.labels[i] for i in kept))
    train, test = split_images(part, n_train=15, n_test=15, seed=seed)
    return LocalNBNN(query_budget=n_queries, stop_confidence=None).fit(train.paths, train.labels), test


def measure(
    build: Callable[[np.ndarray], Search],
    vectors: np.ndarray,
    labels: np.ndarray,
    images: list[np.ndarray],
) -> tuple[dict[str, Any], np.ndarray]:
    """CPU and wall-clock seconds of building and searching; the answers."""
    begin, cpu = time.perf_counter(), time.process_time()
    search = build(vectors)
    build_s, build_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    search(images[0][:2])
    answers, cpu_us, wall_us = [], [], []
    for queries in images:
        begin, cpu = time.perf_counter(), time.process_time()
        distances, rows = search(queries)
        cpu_us.append(1e6 * (time.process_time() - cpu) / len(queries))
        wall_us.append(1e6 * (time.perf_counter() - begin) / len(queries))
        updates = local_nbnn_updates(distances, np.where(rows >= 0, labels[rows], -1), N_NEIGHBORS)
        answers.append(int(np.argmin(updates.totals(int(labels.max()) + 1))))
    quarters = np.percentile(cpu_us, [25, 75])
    row = {
        "build_s": round(build_s, 2),
        "build_cpu_s": round(build_cpu_s, 2),
        "us_a_descriptor": round(statistics.median(cpu_us), 1),
        "us_a_descriptor_quartiles": [round(float(value), 1) for value in quarters],
        "wall_us_a_descriptor": round(statistics.median(wall_us), 1),
        "n_images": len(images),
    }
    return row, np.array(answers)


def stopping(model: LocalNBNN, test: LabelledImages) -> tuple[np.ndarray, list[float]]:
    """Answers and CPU milliseconds of the default settings, which stop when the lead is sure."""
    model.set_params(query_budget=LocalNBNN().query_budget, stop_confidence=LocalNBNN().stop_confidence)

    def timed() -> Iterator[tuple[int, float]]:
        for path in test.paths:
            features = model.query_features(path)
            begin = time.process_time()
            scores = model._scores(features)
            yield int(np.argmax(scores)), 1000 * (time.process_time() - begin)

    answers, ms = zip(*timed(), strict=True)
    return np.array(answers), list(ms)


def draw(results: dict[str, Any]) -> None:
    """A bar a way, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = results["ways"][::-1]
    figure, axes = pyplot.subplots(figsize=(7.5, 3.2), layout="constrained")
    bars = axes.barh([row["way"] for row in rows], [row["us_a_descriptor"] for row in rows])
    axes.bar_label(bars, [f"{row['us_a_descriptor']:,.0f}" for row in rows], padding=3)
    axes.set(
        xscale="log",
        xlabel=f"CPU microseconds a query descriptor, {results['n_descriptors'] / 1e6:.1f} million indexed",
    )
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.margins(x=0.15)
    figure.savefig(HERE / "docs" / "images" / "search.png", dpi=110)


if __name__ == "__main__":
    main()

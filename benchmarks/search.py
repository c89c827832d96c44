"""Local NBNN's search against the ways one could do it otherwise, in one run: the same descriptors, the same images.

Some classes of Caltech 101 are indexed; the test images' descriptors are searched for by each way on one thread, and
scored alike. Draws docs/images/search.png. Ways whose package is not installed are left out (hnswlib is no dependency
of lnbnn).

    python benchmarks/search.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np
from common import run, table, values_of

from lnbnn import LocalNBNN
from lnbnn.data.splits import split_images
from lnbnn.indexes import make_index
from lnbnn.lab import Experiment, Lab, Part, inside
from lnbnn.lab.axes import new_plot
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.lab import of_classes
from lnbnn.lab.parts import full_params, share_right, truth_of
from lnbnn.scoring import local_nbnn_updates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_NEIGHBORS = 10
Search = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Query vectors -> distances and row numbers of the N_NEIGHBORS + 1 nearest."""


def by_index(name: str, params: Settings, vectors: np.ndarray) -> Search:
    """One of our backends: the default one, or the paper's four randomized kd-trees."""
    index = make_index(name, params)
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


# name -> how to build it, how many images it is asked about (slow ones: fewer), the package it needs
WAYS: dict[str, tuple[Callable[[np.ndarray], Search], int, str]] = {
    "lnbnn": (partial(by_index, "faiss", {}), 1000, "faiss"),
    "FLANN, 4 trees, 128 checks": (partial(by_index, "flann", {"checks": 128}), 1000, "pyflann_ibeis"),
    "FLANN, 4 trees, 1024 checks": (partial(by_index, "flann", {"checks": 1024}), 45, "pyflann_ibeis"),
    "hnswlib, M 16, ef 50": (hnsw, 1000, "hnswlib"),
    "FAISS flat (exact)": (faiss_flat, 15, "faiss"),
    "scikit-learn neighbors (exact)": (scikit_learn, 3, "sklearn"),
}
SETTINGS: Settings = {
    "n_classes": 6,
    "n_queries": 500,
    "seed": 0,
    "n_train": 15,
    "n_test": 15,
    "n_neighbors": N_NEIGHBORS,
    "ways": {name: n_images for name, (_, n_images, package) in WAYS.items() if find_spec(package) is not None},
}
QUICK: Settings = {
    "n_classes": 2,
    "n_queries": 50,
    "n_train": 3,
    "n_test": 2,
    "ways": {"lnbnn": 4, "FAISS flat (exact)": 2},
}


def plan(settings: Settings) -> list[Part]:
    """One part: the ways are compared in one run."""
    budget = {"query_budget": settings["n_queries"], "stop_confidence": None}
    return [Part("search", settings | {"params": full_params("local-nbnn", budget)}, compute, timed=True)]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Time every way."""
    faiss.omp_set_num_threads(1)
    seed = settings["seed"]
    order = np.random.default_rng(seed).permutation(sorted(set(lab.data.labels)))
    part = of_classes(lab.data, order[: settings["n_classes"]].tolist())
    train, test = split_images(part, n_train=settings["n_train"], n_test=settings["n_test"], seed=seed)
    model = lab.fit("local-nbnn", settings["params"], train, keep_features=False)
    vectors = model.index_.vectors_of(range(1 << 62))
    labels = np.repeat(inside.places(model), [image.n_descriptors for image in model.images_])
    queries = [inside.query_vectors(model, path) for path in test.paths]
    truth = truth_of(model, test)
    rows: list[dict[str, Any]] = []
    own_answers = np.empty(0, int)
    for name, n_images in settings["ways"].items():
        chosen = np.linspace(0, len(queries) - 1, min(n_images, len(queries))).astype(int)
        row, answers = measure(WAYS[name][0], vectors, labels, [queries[i] for i in chosen])
        own_answers = own_answers if rows else answers
        row["accuracy"] = share_right(answers, truth[chosen])
        row["accuracy_lnbnn_same_images"] = share_right(own_answers[chosen], truth[chosen])
        rows.append({"way": name, **row})
        lab.progress("searching", len(rows), len(settings["ways"]))
    answers, ms = stopping(model, test.paths)
    return {
        "n_classes": settings["n_classes"],
        "n_descriptors": len(model.index_),
        "n_test_images": len(test),
        "queries_an_image": settings["n_queries"],
        "ways": rows,
        "stopping": {"accuracy": share_right(answers, truth), "ms_an_image": round(float(np.mean(ms)), 2)},
    }


def measure(
    build: Callable[[np.ndarray], Search], vectors: np.ndarray, labels: np.ndarray, images: list[np.ndarray]
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


def stopping(model: Any, paths: tuple[str, ...]) -> tuple[np.ndarray, list[float]]:
    """Answers and CPU milliseconds of the default settings, which stop when the lead is sure."""
    model.set_params(query_budget=LocalNBNN().query_budget, stop_confidence=LocalNBNN().stop_confidence)
    answers, ms = [], []
    for path in paths:
        features = model.query_features(path)
        begin = time.process_time()
        answers.append(int(np.argmax(inside.scores(model, features))))
        ms.append(1000 * (time.process_time() - begin))
    return np.array(answers), ms


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """What was measured, and how many times ours each way takes."""
    results = values_of(outcomes[0][1])
    own = results["ways"][0]["us_a_descriptor"]
    ways = [row | {"times_ours": round(row["us_a_descriptor"] / own, 1)} for row in results["ways"]]
    return results | {"ways": ways}


def tabulate(results: dict[str, Any]) -> str:
    """One row per way to search."""
    rows = []
    for row in results["ways"]:
        figures = [f"{row['us_a_descriptor']:,.0f}", f"{row['times_ours']:,.1f}", f"{row['build_cpu_s']:,.1f}"]
        share = f"{row['accuracy']:.1f} ({row['accuracy_lnbnn_same_images']:.1f}; {row['n_images']} images)"
        rows.append([row["way"], *figures, share])
    header = "search, one thread | CPU us a query descriptor | times ours | build, CPU s"
    stopping = results["stopping"]
    return table(f"{header} | accuracy, % (ours on the same images)", rows) + (
        f"\n{results['n_classes']} classes of Caltech 101, {results['n_descriptors'] / 1e6:.2f} million descriptors, "
        f"{results['queries_an_image']} query descriptors an image. With the default budget, stopping when the lead is "
        f"sure, an image takes {stopping['ms_an_image']:.1f} ms CPU ({stopping['accuracy']:.1f} %).\n"
    )


def draw(results: dict[str, Any]) -> Figure:
    """One bar per way, on a logarithmic axis."""
    rows = results["ways"][::-1]
    words = f"CPU microseconds per query descriptor, {results['n_descriptors'] / 1e6:.1f} million indexed"
    figure, axes = new_plot(words, size=(7.5, 3.2))
    bars = axes.barh([row["way"] for row in rows], [row["us_a_descriptor"] for row in rows])
    axes.bar_label(bars, [f"{row['us_a_descriptor']:,.0f}" for row in rows], padding=3)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.margins(x=0.15)
    return figure


TITLE = "CPU time per query descriptor of ways to search"
EXPERIMENT = Experiment("search", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, draw=draw, source="")

if __name__ == "__main__":
    run(EXPERIMENT)

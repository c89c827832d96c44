"""Local NBNN's search against the ways one could do it otherwise, in one run: the same descriptors, the same images.

Some classes of Caltech 101 are indexed; the test images' descriptors are searched for by each way on one thread, and
scored alike. Draws docs/images/search.png. Ways whose package is not installed are left out (hnswlib is no dependency
of lnbnn).
"""

import statistics
from functools import partial
from importlib.util import find_spec
from typing import Any

import faiss
import numpy as np
from common import benchmark, parts_over, table, watch

from lnbnn import LocalNBNN
from lnbnn.indexes import make_index
from lnbnn.lab import Lab, Outcome, Results, Settings
from lnbnn.lab.axes import new_plot
from lnbnn.lab.parts import share_right, truth_of
from lnbnn.scoring import local_nbnn_updates

N_NEIGHBORS = 10


def by_index(name: str, params: Settings, vectors: np.ndarray) -> Any:
    """One of our backends: the default one, or the paper's four randomized kd-trees."""
    index = make_index(name, params)
    index.add(vectors, np.arange(len(vectors)))
    index.build()
    return lambda queries: index.search(queries, N_NEIGHBORS + 1)


def faiss_flat(vectors: np.ndarray) -> Any:
    """Exact, by matrix products."""
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(vectors.astype(np.float32))
    return lambda queries: index.search(queries.astype(np.float32), N_NEIGHBORS + 1)


def hnsw(vectors: np.ndarray) -> Any:
    """hnswlib's graph, at the settings of its README."""
    import hnswlib

    index = hnswlib.Index(space="l2", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors), ef_construction=200, M=16)
    index.set_num_threads(1)
    index.add_items(vectors.astype(np.float32))
    index.set_ef(50)
    return lambda queries: index.knn_query(queries.astype(np.float32), k=N_NEIGHBORS + 1)[::-1]


def scikit_learn(vectors: np.ndarray) -> Any:
    """sklearn.neighbors as it comes, an image at a time."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=N_NEIGHBORS + 1, n_jobs=1).fit(vectors.astype(np.float32))
    return lambda queries: index.kneighbors(queries.astype(np.float32))


# what is built: query vectors -> distances and rows of the nearest; how many images it is asked about; its package
WAYS: dict[str, tuple[Any, int, str]] = {
    "lnbnn": (partial(by_index, "faiss", {}), 1000, "faiss"),
    "FLANN, 4 trees, 128 checks": (partial(by_index, "flann", {"checks": 128}), 1000, "pyflann_ibeis"),
    "FLANN, 4 trees, 1024 checks": (partial(by_index, "flann", {"checks": 1024}), 45, "pyflann_ibeis"),
    "hnswlib, M 16, ef 50": (hnsw, 1000, "hnswlib"),
    "FAISS flat (exact)": (faiss_flat, 15, "faiss"),
    "scikit-learn neighbors (exact)": (scikit_learn, 3, "sklearn"),
}
SETTINGS: Settings = {"n_classes": 6, "n_queries": 500, "seed": 0, "n_train": 15, "n_test": 15}
SETTINGS |= {"ways": {name: n_images for name, (_, n_images, _) in WAYS.items()}}
WAYS_QUICK = {"lnbnn": 4, "FAISS flat (exact)": 2}
QUICK: Settings = {"n_classes": 2, "n_queries": 50, "n_train": 3, "n_test": 2, "ways": WAYS_QUICK}
LEAST_IMAGES = 30  # an accuracy on fewer says nothing


def compute(lab: Lab, settings: Settings) -> Outcome:
    faiss.omp_set_num_threads(1)
    train, test = lab.split_of(settings, lab.shuffled_classes(settings["seed"])[: settings["n_classes"]])
    model = LocalNBNN(query_budget=settings["n_queries"], stop_confidence=None).fit(train.paths, train.labels)
    vectors = model.index_.vectors_of(range(1 << 62))
    labels = np.repeat(model.places_, [image.n_descriptors for image in model.images_])
    queries = [model.query_vectors(path) for path in test.paths]
    truth = truth_of(model, test)
    rows: list[dict[str, Any]] = []
    for name, n_images in settings["ways"].items():
        if find_spec(WAYS[name][2]) is None:
            continue  # a peer that is not installed is left out
        chosen = np.linspace(0, len(queries) - 1, min(n_images, len(queries))).astype(int)
        row, answers = measure(WAYS[name][0], vectors, labels, [queries[i] for i in chosen])
        if not rows:
            own_answers, own_us = answers, row["us_a_descriptor"]
        row["accuracy"] = share_right(answers, truth[chosen])
        row["accuracy_lnbnn_same_images"] = share_right(own_answers[chosen], truth[chosen])
        rows.append({"way": name, **row, "times_ours": round(row["us_a_descriptor"] / own_us, 1)})
        lab.progress("searching", len(rows), len(settings["ways"]))
    model.set_params(query_budget=LocalNBNN().query_budget, stop_confidence=LocalNBNN().stop_confidence)
    images = [model.query_features(path) for path in test.paths]
    with watch() as stopping:  # when the lead is sure, as the default settings do
        answers = np.array([np.argmax(model.decision_function([image])[0]) for image in images])
    ms = round(1000 * stopping.cpu_s / len(images), 2)
    return {
        "n_classes": settings["n_classes"],
        "n_descriptors": len(model.index_),
        "n_test_images": len(test),
        "queries_an_image": settings["n_queries"],
        "ways": rows,
        "stopping": {"accuracy": share_right(answers, truth), "ms_an_image": ms},
    }


def measure(build: Any, vectors: np.ndarray, labels: np.ndarray, images: list[np.ndarray]) -> tuple[Any, np.ndarray]:
    """CPU and wall-clock seconds of building and searching; the answers."""
    with watch() as building:
        search = build(vectors)
    search(images[0][:2])
    answers, cpu_us, wall_us = [], [], []
    for queries in images:
        with watch() as searching:
            distances, rows = search(queries)
        cpu_us.append(1e6 * searching.cpu_s / len(queries))
        wall_us.append(1e6 * searching.wall_s / len(queries))
        rows = rows.astype(np.int64)
        squared = distances**2 if build is scikit_learn else distances
        updates = local_nbnn_updates(squared, np.where(rows >= 0, labels[rows], -1), N_NEIGHBORS)
        answers.append(int(np.argmin(updates.totals(int(labels.max()) + 1))))
    row = {
        "build_s": round(building.wall_s, 2),
        "build_cpu_s": round(building.cpu_s, 2),
        "us_a_descriptor": round(statistics.median(cpu_us), 1),
        "us_a_descriptor_quartiles": np.percentile(cpu_us, [25, 75]).round(1).tolist(),
        "wall_us_a_descriptor": round(statistics.median(wall_us), 1),
        "n_images": len(images),
    }
    return row, np.array(answers)


def tabulate(results: Results) -> str:
    rows = []
    for row in results["ways"]:
        figures = [f"{row['us_a_descriptor']:,.0f}", f"{row['times_ours']:,.1f}", f"{row['build_cpu_s']:,.1f}"]
        share = f"{row['accuracy']:.1f} ({row['accuracy_lnbnn_same_images']:.1f}; {row['n_images']} images)"
        share = share if row["n_images"] >= LEAST_IMAGES else f"{row['n_images']} images: too few to tell"
        rows.append([row["way"], *figures, share])
    header = "search, one thread | CPU us per query descriptor | times ours | build, CPU s"
    stopping = results["stopping"]
    return table(f"{header} | accuracy, % (ours on the same images)", rows) + (
        f"\n{results['n_classes']} classes of Caltech 101, {results['n_descriptors'] / 1e6:.2f} million descriptors, "
        f"{results['queries_an_image']} query descriptors per image. With the default budget, stopping when the lead "
        f"is sure, an image takes {stopping['ms_an_image']:.1f} ms CPU ({stopping['accuracy']:.1f} %).\n"
    )


def draw(results: Results) -> Any:
    rows = results["ways"][::-1]
    words = f"CPU microseconds per query descriptor, {results['n_descriptors'] / 1e6:.1f} million indexed"
    figure, axes = new_plot(words, size=(7.5, 3.2))
    bars = axes.barh([row["way"] for row in rows], [row["us_a_descriptor"] for row in rows])
    axes.bar_label(bars, [f"{row['us_a_descriptor']:,.0f}" for row in rows], padding=3)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.margins(x=0.15)
    return figure


EXPERIMENT = benchmark(globals(), plan=parts_over("search", compute, timed=True), source="")

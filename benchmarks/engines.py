"""The same descriptors in every engine, in one run: accuracy, queries and images per second, and equal answers.

Caltech 101, 15 images per class. The embedded index in this process, and in one and two workers of a Ray cluster, to
which batches of questions go; Milvus in this process (milvus-lite), a Milvus standalone server, and FAISS in one and
two shards on a Ray cluster. Servers and clusters are started here and ended. Speeds are measured on some classes, as
milvus-lite is slow; accuracy on all, without it. ``make .venv/.engines .venv-milvus/.ready`` installs what is needed.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from common import HERE, benchmark, parts_over, table, values_of, watch
from ray_work import cluster, shards

import lnbnn
from lnbnn.cluster.tasks import RayCluster
from lnbnn.indexes import make_index
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.lab.parts import share_right, truth_of

FLAT = {"index_type": "FLAT"}


class Engine(NamedTuple):
    """An index and its settings, as they come and for exact answers; and workers, where they search and answer."""

    index: str
    params: Settings
    exact: str
    exact_params: Settings
    workers: RayCluster | None = None


@contextmanager
def embedded() -> Iterator[Engine]:
    yield Engine("faiss", {}, "exact", {})


@contextmanager
def ray_workers(n: int) -> Iterator[Engine]:
    with cluster(n) as nodes:
        yield Engine("faiss", {}, "exact", {}, RayCluster(nodes.address))


@contextmanager
def ray_shards(n: int) -> Iterator[Engine]:
    with shards(n) as found:
        yield Engine(*found)


@contextmanager
def milvus_lite() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        uri = {"uri": str(Path(folder) / "vectors.db")}
        yield Engine("milvus", uri, "milvus", uri | FLAT)


@contextmanager
def standalone() -> Iterator[Engine]:
    sys.path.insert(0, str(HERE / "tests"))
    from milvus_server import MilvusServer

    with MilvusServer() as server:
        yield Engine("milvus", {"uri": server.uri}, "milvus", {"uri": server.uri} | FLAT)


# What starts an engine. A row of the table is an entry here; the words are those of the table.
ENGINES: dict[str, Any] = {
    "embedded": embedded,
    "Ray, 1 worker": partial(ray_workers, 1),
    "Ray, 2 workers": partial(ray_workers, 2),
    "milvus-lite": milvus_lite,
    "Milvus standalone": standalone,
    "FAISS in 1 shard on Ray": partial(ray_shards, 1),
    "FAISS in 2 shards on Ray": partial(ray_shards, 2),
}
SPEED: Settings = {"n_classes": 4, "engines": list(ENGINES)}
ACCURACY: Settings = {"n_classes": 101, "engines": ["embedded", "Milvus standalone", "FAISS in 2 shards on Ray"]}
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seed": 0, "n_neighbors": 10, "speed": SPEED, "accuracy": ACCURACY}
SETTINGS |= {"n_queries_per_image": 500, "n_images_asked": 60, "n_images_exact": 60, "n_queries_exact": 200}
QUICK: Settings = {"n_train": 2, "n_test": 1, "n_images_asked": 2, "n_images_exact": 3, "n_queries_exact": 20}
QUICK |= {"speed": SPEED | {"n_classes": 2}, "accuracy": ACCURACY | {"n_classes": 3}}


def plan(settings: Settings) -> list[Part]:
    """The speed of each engine on some classes, then the accuracy of some engines on all."""
    rest = {key: value for key, value in settings.items() if key not in ("speed", "accuracy")}
    over = partial(parts_over, compute=compute, timed=True, engines="engine")
    return [part for which in ("speed", "accuracy") for part in over(f"engines {which}")(rest | settings[which])]


def compute(lab: Lab, settings: Settings) -> Outcome:
    train, test = lab.split_of(settings, lab.shuffled_classes(settings["seed"])[: settings["n_classes"]])
    start = ENGINES[settings["engine"]]
    with start() as engine, tempfile.TemporaryDirectory(dir=lab.runs) as folder:
        given = {"index": engine.index, "index_params": engine.params}
        with watch() as fitting:
            model = lab.fit("local-nbnn", {}, train, keep_features=False, **given)
        if engine.workers is not None:  # they open it
            model.save(Path(folder) / "model")
            model = lnbnn.load(Path(folder) / "model")
        truth = truth_of(model, test)
        asked = [model.query_vectors(path) for path in test.paths[:: max(1, len(test) // settings["n_images_asked"])]]
        asked = [vectors[: settings["n_queries_per_image"]] for vectors in asked]
        features = lab.ask(model.image_features, test.paths)
        answers, seconds = answered(lab, model, features, engine.workers)
        found = {
            "accuracy": share_right(answers, truth),
            "fit_s": round(fitting.wall_s, 1),
            "queries_a_second": searched_per_s(model, asked, settings["n_neighbors"] + 1, engine.workers),
            "images_a_second": round(len(test) / seconds, 1),
            "n_descriptors": len(model.index_),
            "index": model.index_.describe(),
        }
        if engine.workers is not None:
            return found
        images = [model.reference_vectors(place) for place in range(min(settings["n_images_exact"], len(train)))]
        return found | equal_to_exact(engine.exact, engine.exact_params, images, settings)


def searched_per_s(model: Any, asked: list[np.ndarray], k: int, workers: RayCluster | None) -> int:
    """Query descriptors per second: batches of one image, one at a time; on workers, as many as there are workers."""
    if workers is None:
        rates = []
        for vectors in asked[:1] + asked:  # the first warms up
            with watch() as searching:
                model.index_.search(vectors, k)
            rates.append(len(vectors) / searching.wall_s)
        return round(median(rates[1:]))
    opened, one_by_one = model.fitted(), replace(workers, chunk=1)
    for batches in (asked[:4], asked):  # the first opens the model there
        with watch() as searching:
            list(one_by_one.map(lambda vectors: opened.method.index.search(vectors, k)[0][:, 0], batches))
    return round(sum(map(len, asked)) / searching.wall_s)


def answered(lab: Lab, model: Any, features: list[Any], workers: RayCluster | None) -> tuple[np.ndarray, float]:
    """The answers, by place, for images that were extracted before; and the seconds that they took."""
    if workers is None:
        with watch() as answering:
            found = lab.ask(lambda one: int(np.argmax(model.decision_function([one])[0])), features)
        return np.array(found), answering.wall_s
    model.set_params(n_jobs=workers)
    for some in (features[:16], features):  # the first opens the model there
        with watch() as answering:
            scores = model.decision_function(some)
    return scores.argmax(axis=1), answering.wall_s


def equal_to_exact(name: str, params: Settings, images: list[np.ndarray], settings: Settings) -> dict[str, Any]:
    """The share of queries whose neighbors, ids and order included, are those of the embedded exact index."""
    indexes = [make_index("exact"), make_index(name, params)]
    for index in indexes:
        for number, vectors in enumerate(images[1:]):
            index.add(vectors, (number << 20) + np.arange(len(vectors)))
    queries = images[0][: settings["n_queries_exact"]]
    (distances, ids), (own, own_ids) = (index.search(queries, settings["n_neighbors"] + 1) for index in indexes)
    same = (ids == own_ids).all(axis=1) & (distances == own).all(axis=1)
    return {"equal_to_exact": round(float(same.mean()), 4), "n_exact": len(indexes[0])}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    results: Results = {"speed": [], "accuracy": []}
    for part, found in outcomes:
        row = {"engine": part.settings["engine"], "n_classes": part.settings["n_classes"], **values_of(found)}
        results[part.kind.split()[1]].append(row)
    found = [row["accuracy"] for row in results["accuracy"]]
    return results | {"most_apart": round(max(found) - min(found), 2)}


def tabulate(results: Results) -> str:
    rows = []
    for row in results["speed"] + results["accuracy"]:
        of = [row["engine"], str(row["n_classes"]), f"{row['n_descriptors']:,}", f"{row['accuracy']:.1f}"]
        speeds = [f"{row['queries_a_second']:,}", f"{row['images_a_second']:.1f}", f"{row['fit_s']:,.0f}"]
        rows.append([*of, *speeds, f"{100 * row['equal_to_exact']:.1f}" if "equal_to_exact" in row else "-"])
    header = "engine | classes | descriptors | accuracy, % | queries per second | images per second | fit, s"
    return table(f"{header} | exact path equal, %", rows) + (
        "\nQueries: batches of one image, one batch at a time, or one per Ray worker. Images: extracted before, "
        "answered on all cores, or by the Ray workers, which have a core each and the embedded index. With all classes "
        f"the accuracies are {results['most_apart']:.2f} points apart. Exact path: the share of queries "
        "whose neighbors, ids and order included, are those of the embedded `exact` index.\n"
    )


EXPERIMENT = benchmark(globals(), source="")

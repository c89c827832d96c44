"""The same descriptors in every engine, in one run: accuracy, queries and images per second, and equal answers.

Caltech 101, 15 images per class. The embedded index in this process, Milvus in this process (milvus-lite), a Milvus
standalone server and FAISS in one and two shards on a Ray cluster, both started here and ended. Speeds are measured on
some classes, as milvus-lite is slow; accuracy on all, without it. ``make .venv/.engines .venv-milvus/.ready`` installs
what is needed.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import HERE, benchmark, parts_over, table, values_of, watch
from ray_work import shards

from lnbnn.indexes import make_index
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.lab.parts import share_right, truth_of

FLAT = {"index_type": "FLAT"}


@contextmanager
def embedded() -> Iterator[tuple[str, Settings, str, Settings]]:
    yield "faiss", {}, "exact", {}


@contextmanager
def milvus_lite() -> Iterator[tuple[str, Settings, str, Settings]]:
    with tempfile.TemporaryDirectory() as folder:
        uri = {"uri": str(Path(folder) / "vectors.db")}
        yield "milvus", uri, "milvus", uri | FLAT


@contextmanager
def standalone() -> Iterator[tuple[str, Settings, str, Settings]]:
    sys.path.insert(0, str(HERE / "tests"))
    from milvus_server import MilvusServer

    with MilvusServer() as server:
        yield "milvus", {"uri": server.uri}, "milvus", {"uri": server.uri} | FLAT


# What starts an engine: it gives the index and its settings, as they come and for exact answers. A row of the table is
# an entry here; the words are those of the table.
ENGINES: dict[str, Any] = {
    "embedded": embedded,
    "milvus-lite": milvus_lite,
    "Milvus standalone": standalone,
    "FAISS in 1 shard on Ray": partial(shards, 1),
    "FAISS in 2 shards on Ray": partial(shards, 2),
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
    with ENGINES[settings["engine"]]() as (index, params, exact, exact_params):
        with watch() as fitting:
            model = lab.fit("local-nbnn", {}, train, keep_features=False, index=index, index_params=params)
        truth = truth_of(model, test)
        asked = [model.query_vectors(path) for path in test.paths[:: max(1, len(test) // settings["n_images_asked"])]]
        asked = [vectors[: settings["n_queries_per_image"]] for vectors in asked]
        searched = []
        for vectors in asked[:1] + asked:  # the first warms up
            with watch() as searching:
                model.index_.search(vectors, settings["n_neighbors"] + 1)
            searched.append(len(vectors) / searching.wall_s)
        features = lab.ask(model.image_features, test.paths)
        with watch() as answering:
            answers = lab.ask(lambda one: int(np.argmax(model.decision_function([one])[0])), features)
        found = {
            "accuracy": share_right(np.array(answers), truth),
            "fit_s": round(fitting.wall_s, 1),
            "queries_a_second": round(median(searched[1:])),
            "images_a_second": round(len(test) / answering.wall_s, 1),
            "n_descriptors": len(model.index_),
            "index": model.index_.describe(),
        }
        images = [model.reference_vectors(place) for place in range(min(settings["n_images_exact"], len(train)))]
        return found | equal_to_exact(exact, exact_params, images, settings)


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
        rows.append([*of, *speeds, f"{100 * row['equal_to_exact']:.1f}"])
    header = "engine | classes | descriptors | accuracy, % | queries per second | images per second | fit, s"
    return table(f"{header} | exact path equal, %", rows) + (
        "\nQueries: batches of one image, one batch at a time. Images: extracted before, answered on all cores. With "
        f"all classes the accuracies are {results['most_apart']:.2f} points apart. Exact path: the share of queries "
        "whose neighbors, ids and order included, are those of the embedded `exact` index.\n"
    )


EXPERIMENT = benchmark(globals(), source="")

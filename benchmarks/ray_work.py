"""A Ray cluster on one machine: extraction, questions and searches on one and two workers, accuracy, faults.

Caltech 101. Each node has one core; the program that asks is a process of its own. Workers have started, and have their
code and the model, before a time is taken. For the faults, workers and nodes are ended by kill -9 while they work.
"""

import hashlib
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, benchmark, parts_over, table, values_of, watch

import lnbnn
from lnbnn.cluster.connection import connect, disconnect
from lnbnn.cluster.tasks import RayCluster
from lnbnn.data.folder import LabeledImages
from lnbnn.descriptors import make_descriptor
from lnbnn.files.atomic import PARTIAL
from lnbnn.indexes import make_index
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings, of_classes
from lnbnn.reading.extraction import iter_features, iter_stored, map_in_order
from lnbnn.reading.store import FeatureStore
from lnbnn.trust.evaluation import mean_per_class

sys.path.insert(0, str(HERE / "tests"))

SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seed": 0, "preset": "balanced", "n_neighbors": 10}
SETTINGS |= {"n_extracted": 6000, "n_asked": 1000, "n_searched": 200, "n_exact_classes": 8, "n_faults": 30}
SETTINGS |= {"n_images_per_fault": 150, "n_network": 100}
QUICK: Settings = {"n_train": 4, "n_test": 4, "n_extracted": 24, "n_asked": 24, "n_searched": 4, "n_exact_classes": 3}
QUICK |= {"n_faults": 6, "n_images_per_fault": 24, "n_network": 4}
FAULTS = [(work, loss) for work in ("extraction", "questions", "searches") for loss in ("a worker", "a node")]
WORKERS = (1, 2)
TOKEN = secrets.token_hex(32)  # of every cluster: Ray reads it once in a process


def plan(settings: Settings) -> list[Part]:
    """Times, accuracies and faults, each made again on its own."""
    parts = []
    for kind, compute, names in (
        ("ray speed", speed, ("n_extracted", "n_asked", "n_searched", "n_neighbors", "n_network")),
        ("ray accuracy", accuracies, ("n_exact_classes", "n_neighbors")),
        ("ray faults", faults, ("n_faults", "n_images_per_fault")),
    ):
        own = {name: settings[name] for name in ("n_train", "n_test", "seed", "preset", *names)}
        parts += parts_over(kind, compute, timed=kind == "ray speed")(own)
    return parts


@contextmanager
def cluster(n_nodes: int) -> Iterator[Any]:
    """A cluster that this process is connected to."""
    from clusters import RayNodes  # of the tests

    before = dict(os.environ)
    with RayNodes(n_nodes, store_bytes=400 << 20, token=TOKEN) as nodes:
        os.environ.update(nodes.env)
        connect(nodes.address)
        try:
            yield nodes
        finally:
            disconnect()
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def shards(n_nodes: int) -> Iterator[tuple[str, Settings, str, Settings]]:
    """The index of a cluster, and its settings, as they come and for exact answers."""
    with cluster(n_nodes):
        yield "ray-shards", {"n_shards": n_nodes}, "ray-shards", {"n_shards": n_nodes, "shard": "exact"}


def fitted(lab: Lab, settings: Settings, images: LabeledImages, **changes: Any) -> Any:
    return lab.fit("local-nbnn", settings["params"], images, keep_features=False, **changes)


def saved(lab: Lab, settings: Settings, images: LabeledImages, folder: str) -> Any:
    """A model opened from a folder, which workers can open too."""
    fitted(lab, settings, images).save(Path(folder) / "model")
    return lnbnn.load(Path(folder) / "model")


# ---- speed -----------------------------------------------------------------------------------------------------------


def speed(lab: Lab, settings: Settings) -> Outcome:
    """Wall seconds and rates, of the same images and query descriptors."""
    train, test = lab.split_of(settings)
    asked = list(test.paths[: settings["n_asked"]])
    found: Outcome = {"extraction": {}, "questions": {}, "searches": {}}
    with tempfile.TemporaryDirectory(dir=lab.runs) as folder:
        model = saved(lab, settings, train, folder)
        paths = list(dict.fromkeys([*train.paths, *test.paths, *lab.data.paths]))[: settings["n_extracted"]]
        for name, jobs in (("1 thread", 1), ("2 threads", 2)):
            timed(found, name, model, paths, asked, jobs, folder, lab)
        searches(found, "embedded", model.index_, model, settings, test)
        network = make_descriptor("deep")
        for some in (paths[:1], paths[: settings["n_network"]]):
            with watch() as spent:
                list(iter_features(some, network, n_jobs=1))
        found["network"] = rates(spent, len(some), "images")
        for n_nodes in WORKERS:
            name = f"Ray, {n_nodes} worker{'s' * (n_nodes > 1)}"
            with cluster(n_nodes) as nodes:
                timed(found, name, model, paths, asked, RayCluster(nodes.address), folder, lab)
                index = make_index("ray-shards", {"n_shards": n_nodes})
                index.add(model.index_.vectors_of(range(1 << 62)), model.index_.live_ids())
                with watch() as building:
                    index.build()
                searches(found, f"FAISS in {n_nodes} shard{'s' * (n_nodes > 1)} on Ray", index, model, settings, test)
                found["searches"][list(found["searches"])[-1]]["build_s"] = round(building.wall_s, 1)
                del index
    seconds = [found["extraction"][f"Ray, {words}"]["wall_s"] for words in ("1 worker", "2 workers")]
    return found | {"speed_up": round(seconds[0] / seconds[1], 3), "n_rows": len(model.index_)}


def timed(found: Outcome, name: str, model: Any, paths: Any, asked: Any, jobs: Any, folder: str, lab: Lab) -> None:
    """Extract and ask, each once in small before."""
    for n in (8, len(paths)):
        store = FeatureStore(Path(folder) / "cache")
        with watch() as spent:
            for done, _ in enumerate(iter_stored(paths[:n], model.descriptor_, store, n_jobs=jobs), start=1):
                lab.progress(f"extracting, {name}", done, n)
        shutil.rmtree(store.folder)
    found["extraction"][name] = rates(spent, len(paths), "images")
    model.set_params(n_jobs=jobs)
    for n in (8, len(asked)):
        with watch() as spent:
            model.decision_function(asked[:n], progress=lab.progress)
    found["questions"][name] = rates(spent, len(asked), "images")
    model.set_params(n_jobs=None)


def searches(found: Outcome, name: str, index: Any, model: Any, settings: Settings, test: LabeledImages) -> None:
    """Searches of two threads at once, an image's query descriptors at a time."""
    paths = test.paths[:: max(1, len(test) // settings["n_searched"])][: settings["n_searched"]]
    queries = [model.query_vectors(path) for path in paths]

    def search(vectors: np.ndarray) -> np.ndarray:
        return index.search(vectors, settings["n_neighbors"] + 1)[0]

    list(map_in_order(search, queries, 2))
    with watch() as spent:
        distances = list(map_in_order(search, queries, 2))
    nearest = float(np.mean([np.sqrt(rows).mean() for rows in distances]))
    found["searches"][name] = {**rates(spent, sum(map(len, queries)), "queries"), "mean_distance": round(nearest, 3)}


def rates(spent: Any, n: int, what: str) -> dict[str, float]:
    return {f"n_{what}": n, "wall_s": round(spent.wall_s, 2), "per_s": round(n / spent.wall_s, 1)}


# ---- accuracy --------------------------------------------------------------------------------------------------------


def accuracies(lab: Lab, settings: Settings) -> Outcome:
    """The default index and Ray shards on all classes; exact search and exact shards, on some, to the last bit."""
    train, test = lab.split_of(settings)
    some = sorted(set(train.labels))[: settings["n_exact_classes"]]
    few_train, few_test = of_classes(train, some), of_classes(test, some)
    found: Outcome = {"accuracy": {}}
    exact = {"query_budget": 100, "descriptor_params": {**settings["params"]["descriptor_params"], "step_px": 16}}
    with cluster(2) as nodes:
        jobs = RayCluster(nodes.address)
        for name, changes in (
            ("embedded", {}),
            ("Ray shards", {"index": "ray-shards", "index_params": {"n_shards": 2}, "n_jobs": jobs}),
        ):
            model = fitted(lab, settings, train, **changes)
            best = model.decision_function(test.paths, progress=lab.progress).argmax(axis=1)
            answers = model.classes_[best]
            found["accuracy"][name] = round(100 * mean_per_class(answers, np.array(test.labels)), 2)
        one = fitted(lab, settings, few_train, index="exact", index_params=None, **exact)
        shards = {"index": "ray-shards", "index_params": {"shard": "exact", "n_shards": 2}, "n_jobs": jobs}
        many = fitted(lab, settings, few_train, **shards, **exact)
        scores = [model.decision_function(few_test.paths, progress=lab.progress) for model in (one, many)]
        k = settings["n_neighbors"] + 1
        pairs = [
            [model.index_.search(model.query_vectors(path), k) for path in few_test.paths] for model in (one, many)
        ]
        del model, many
    found["scores_equal"] = bool(np.array_equal(*scores))
    found["ids_equal"] = all(np.array_equal(a[1], b[1]) for a, b in zip(*pairs, strict=True))
    found["distances_equal"] = all(np.array_equal(a[0], b[0]) for a, b in zip(*pairs, strict=True))
    return found | {"n_exact_images": len(few_test), "n_exact_rows": len(one.index_)}


# ---- faults ----------------------------------------------------------------------------------------------------------


def faults(lab: Lab, settings: Settings) -> Outcome:
    """Losses of workers and nodes in turn, while features are extracted, questions answered, shards searched."""
    train, test = lab.split_of(settings)
    n = settings["n_images_per_fault"]
    paths = list(test.paths[:: max(1, len(test) // n)][:n])
    rng = np.random.default_rng(settings["seed"])
    counts = {f"{work}: {loss}": {"faults": 0, "equal": 0, "struck": 0} for work, loss in FAULTS}
    with tempfile.TemporaryDirectory(dir=lab.runs) as folder, cluster(2) as nodes:
        model = saved(lab, settings, of_classes(train, sorted(set(train.labels))[:20]), folder)
        index = make_index("ray-shards", {"n_shards": 2})
        index.add(model.index_.vectors_of(range(1 << 62)), model.index_.live_ids())
        index.build()
        queries = [model.query_vectors(path) for path in paths]
        jobs = RayCluster(nodes.address)

        def extraction() -> str:
            store = FeatureStore(Path(folder) / "cache")
            counted = list(iter_stored(paths, model.descriptor_, store, n_jobs=jobs))
            files = sorted(path for path in store.folder.rglob("*.npz") if not path.name.startswith(PARTIAL))
            found = digest([str(counted).encode(), *(path.read_bytes() for path in files)])
            shutil.rmtree(store.folder)
            return found

        def questions() -> str:
            model.set_params(n_jobs=jobs)
            return digest([model.decision_function(paths).tobytes()])

        def search(index: Any = index) -> str:
            return digest([array.tobytes() for vectors in queries for array in index.search(vectors, 11)])

        works: dict[str, Callable[[], str]] = {"extraction": extraction, "questions": questions, "searches": search}
        expected = {}
        for name, work in works.items():
            with watch() as spent:
                expected[name] = work(), spent
        for number in range(settings["n_faults"]):
            name, loss = FAULTS[number % len(FAULTS)]
            outcome, usual = expected[name]
            count = counts[f"{name}: {loss}"]
            count["faults"] += 1
            found, struck = struck_by(works[name], nodes, loss, rng.uniform(0.1, 0.6) * usual.wall_s)
            count["equal"] += found == outcome
            count["struck"] += struck
            lab.progress("faults", number + 1, settings["n_faults"])
        del index, works, search
    return {"faults": counts}


def struck_by(work: Callable[[], str], nodes: Any, loss: str, after_s: float) -> tuple[str, bool]:
    """What work gives while a worker or a node is lost, and whether it was still under way then."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    time.sleep(after_s)
    struck = thread.is_alive()
    if loss == "a node":
        nodes.kill_node(1)
    else:
        for worker in (nodes.busy_workers() or nodes.workers())[:1]:
            os.kill(worker, 9)
    thread.join()
    while len(nodes.raylets) < 2:
        nodes.add()
    return found[0] if found else "an error", struck


def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


# ---- results ---------------------------------------------------------------------------------------------------------


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    return {name: value for _, found in outcomes for name, value in values_of(found).items()}


def tabulate(results: Results) -> str:
    rows = []
    for name, words in (("extraction", "images extracted"), ("questions", "images answered"), ("searches", "searches")):
        rows += [
            [words, way, f"{found['wall_s']:.1f}", f"{found['per_s']:,.0f}"] for way, found in results[name].items()
        ]
    lost = results["faults"].values()
    same = ", ".join(
        f"{words} {'equal' if results[f'{name}_equal'] else 'NOT equal'}"
        for name, words in (("distances", "distances"), ("ids", "ids"), ("scores", "scores"))
    )
    return table("what | by | wall s | per s", rows) + (
        f"\nExtraction on two workers is {results['speed_up']:.2f} times as fast as on one. Accuracy "
        f"{results['accuracy']['embedded']:.2f} % with the embedded index, {results['accuracy']['Ray shards']:.2f} % "
        f"with two shards on Ray. Exact shards against one exact index ({results['n_exact_images']:,} images, "
        f"{results['n_exact_rows']:,} vectors): {same}. {sum(one['faults'] for one in lost)} workers and nodes were "
        f"lost, {sum(one['struck'] for one in lost)} of them in the middle of the work; "
        f"{sum(one['equal'] for one in lost)} runs gave the same bytes.\n"
    )


EXPERIMENT = benchmark(globals())

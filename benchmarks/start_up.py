"""Opening a model, the first answer of a new process, memory, adding one image; and where the time of an answer goes.

A model of some classes of Caltech 101 at the default settings is made and saved.

    python benchmarks/start_up.py
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from common import preset, run, table, values_of

from lnbnn.data.splits import split_images
from lnbnn.files.images import decode_gray, read_bytes
from lnbnn.indexes.faiss_kmeans import one_thread
from lnbnn.indexes.selection import rerank
from lnbnn.lab import Experiment, Lab, Part, inside
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.lab import of_classes
from lnbnn.scoring import local_nbnn_updates

SETTINGS: Settings = {"n_classes": 30, "n_train": 15, "n_test": 1, "seed": 0, "repeats": 5, "n_added": 6}
QUICK: Settings = {"n_classes": 3, "n_train": 8, "repeats": 1, "n_added": 2}
OPEN = (
    "import sys, time; import lnbnn.classifiers.local_nbnn, lnbnn.indexes.faiss_index, lnbnn.descriptors.dense_sift; "
    "begin, cpu = time.perf_counter(), time.process_time(); lnbnn.load(sys.argv[1]); "
    "print(time.perf_counter() - begin, time.process_time() - cpu)"
)


def plan(settings: Settings) -> list[Part]:
    """One part."""
    return [Part("start-up", settings | {"params": preset("balanced")}, compute, timed=True)]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Make the model, take the times."""
    part = of_classes(lab.data, sorted(set(lab.data.labels))[: settings["n_classes"]])
    train, test = split_images(part, n_train=settings["n_train"], n_test=settings["n_test"], seed=settings["seed"])
    repeats = range(settings["repeats"])
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        begin, cpu = time.perf_counter(), time.process_time()
        classifier = lab.fit("local-nbnn", settings["params"], train, keep_features=False)
        fit_s, fit_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
        classifier.save(model)
        n_descriptors = sum(image.n_descriptors for image in classifier.images_)
        over_raw = classifier.nbytes_ / (128 * n_descriptors)
        adding = [one_more(classifier, path) for path in test.paths[: settings["n_added"]]]
        opening = [[float(word) for word in python("-c", OPEN, model)[0].split()] for _ in repeats]
        answers = [python("-m", "lnbnn", "predict", model, test.paths[0], "--format", "json") for _ in repeats]
        json.loads(answers[0][0])
        bytes_on_disk = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    return {
        "stages": stages(classifier, test.paths),
        "n_descriptors": n_descriptors,
        "bytes_on_disk": bytes_on_disk,
        "index_bytes_over_raw": round(over_raw, 3),
        "fit_s": round(fit_s, 1),
        "fit_cpu_s": round(fit_cpu_s, 1),
        "open_s_median": round(statistics.median(wall for wall, _ in opening), 3),
        "open_cpu_s_median": round(statistics.median(cpu for _, cpu in opening), 3),
        "first_answer_s_median": round(statistics.median(seconds for _, seconds, _ in answers), 2),
        "first_answer_cpu_s_median": round(statistics.median(cpu for _, _, cpu in answers), 2),
        "add_one_image_cpu_ms_median": round(statistics.median(adding[1:]), 1),
        "add_first_image_cpu_ms": round(adding[0], 1),
    }


def stages(classifier: Any, paths: tuple[str, ...]) -> dict[str, float]:
    """CPU time of each stage of an answer: medians over the images, an image's best of a few repeats."""
    index = classifier.index_
    structure, table, n_probes = index._structure, index._require_table(), index._n_probes()
    in_tree = faiss.SearchParametersIVF(nprobe=index._n_branches())
    wide = faiss.SearchParametersIVF(nprobe=n_probes, quantizer_params=in_tree)
    tree = faiss.downcast_index(structure.quantizer)
    found = []
    for path in paths:
        gray = decode_gray(read_bytes(path), 300, name=path)
        features = classifier.query_features(path)
        asked = inside.query_vectors(classifier, features)
        vectors = np.ascontiguousarray(asked[:: max(1, len(asked) // 250)][:250])
        n = len(vectors)
        widened = index._widen(vectors)
        with one_thread():
            candidates = structure.search(widened, 44, params=wide)[1]
            row = {
                "read_and_decode_ms": best(lambda path=path: decode_gray(read_bytes(path), 300, name=path)) / 1000,
                "extract_ms": best(lambda gray=gray: classifier.descriptor_.extract(gray)) / 1000,
                "nearest_lists_us": best(lambda w=widened: tree.search(w, n_probes, params=in_tree)) / n,
                "lists_and_codes_us": best(lambda w=widened: structure.search(w, 44, params=wide)) / n,
            }
        row["compare_again_us"] = best(lambda v=vectors, c=candidates: rerank(v, *table.parts, c, 11)) / n
        distances, ids = index.search(vectors, 11)
        labels = inside.places_of_ids(classifier, ids).astype(np.int32)
        score = lambda d=distances, y=labels: local_nbnn_updates(d, y, 10).totals(len(classifier.classes_))  # noqa: E731
        row["score_us"] = best(score) / n
        row["whole_search_us"] = best(lambda v=vectors: index.search(v, 11)) / n
        begin = time.thread_time()
        inside.scores(classifier, features)
        row["answer_ms"] = 1000 * (time.thread_time() - begin)
        found.append(row)
    return {name: round(statistics.median(row[name] for row in found), 2) for name in found[0]}


def best(work: Callable[[], object]) -> float:
    """CPU microseconds of the best of a few repeats."""
    times = []
    for _ in range(4):
        begin = time.thread_time()
        work()
        times.append(1e6 * (time.thread_time() - begin))
    return min(times)


def one_more(classifier: Any, path: str) -> float:
    """CPU milliseconds of taking the descriptors of one more image into the index, extraction left out."""
    vectors = inside.vectors_of(classifier, path)
    ids = ((len(classifier.images_) + 1000) << 20) + np.arange(len(vectors))
    begin = time.process_time()
    classifier.index_.add(vectors, ids)
    spent = 1000 * (time.process_time() - begin)
    classifier.index_.remove(ids)
    return spent


def python(*words: object) -> tuple[str, float, float]:
    """Output, wall-clock and CPU seconds of a new process."""
    begin, before = time.perf_counter(), os.times()
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, time.perf_counter() - begin, cpu


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """What was measured."""
    return values_of(outcomes[0][1])


def tabulate(results: dict[str, Any]) -> str:
    """Stages of an answer; opening, adding, memory."""
    stages = results["stages"]
    codes_us = stages["lists_and_codes_us"] - stages["nearest_lists_us"]
    rows = [
        ["reading and decoding a file", f"{stages['read_and_decode_ms']:.1f} ms"],
        ["extracting descriptors, default grid", f"{stages['extract_ms']:.1f} ms"],
        ["searching, a query descriptor", f"{stages['whole_search_us']:.1f} us"],
        ["... of it the nearest lists", f"{stages['nearest_lists_us']:.1f} us"],
        ["... of it the codes", f"{codes_us:.1f} us"],
        ["... of it comparing again", f"{stages['compare_again_us']:.1f} us"],
        ["scoring, a query descriptor", f"{stages['score_us']:.1f} us"],
        ["all query descriptors of an image, stopping when sure", f"{stages['answer_ms']:.1f} ms"],
    ]
    return table("stage | CPU", rows) + (
        f"\n{results['n_descriptors'] / 1e6:.1f} million descriptors. Index and labels take "
        f"{results['index_bytes_over_raw']:.2f} times the raw 8-bit descriptors. Opening the model takes "
        f"{results['open_s_median']:.2f} s, the first answer of a new process "
        f"{results['first_answer_s_median']:.1f} s ({results['first_answer_cpu_s_median']:.1f} s CPU), "
        f"adding the descriptors of one image to the index {results['add_one_image_cpu_ms_median']:.0f} ms CPU.\n"
    )


TITLE = "Opening a model, the first answer, and the stages of an answer"
EXPERIMENT = Experiment("start-up", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, source="")

if __name__ == "__main__":
    run(EXPERIMENT)

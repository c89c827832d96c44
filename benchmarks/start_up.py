"""Opening a model, the first answer of a new process, memory, adding one image; and where the time of an answer goes.

A model of some classes of Caltech 101 at the default settings is made and saved. Writes results/start-up.json.

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

import faiss
import numpy as np
from common import HERE, options_parser

import lnbnn
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.files.images import decode_gray, read_bytes
from lnbnn.indexes.faiss_kmeans import one_thread
from lnbnn.indexes.selection import rerank
from lnbnn.lab.records import make_record, write_record
from lnbnn.reading.extraction import features_of
from lnbnn.scoring import local_nbnn_updates

REPEATS = 5
OPEN = (
    "import sys, time; import lnbnn.classifiers.local_nbnn, lnbnn.indexes.faiss_index, lnbnn.descriptors.dense_sift; "
    "begin, cpu = time.perf_counter(), time.process_time(); lnbnn.load(sys.argv[1]); "
    "print(time.perf_counter() - begin, time.process_time() - cpu)"
)


def main() -> None:
    """Make the model, take the times, write the record."""
    parser = options_parser(__doc__)
    parser.add_argument("--classes", type=int, default=30)
    options = parser.parse_args()
    start = time.perf_counter()
    data = load_caltech101(options.data)
    chosen = set(sorted(set(data.labels))[: options.classes])
    kept = [place for place, label in enumerate(data.labels) if label in chosen]
    part = LabelledImages(tuple(data.paths[i] for i in kept), tuple(data.labels[i] for i in kept))
    train, test = split_images(part, n_train=15, n_test=1, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        begin, cpu = time.perf_counter(), time.process_time()
        classifier = lnbnn.LocalNBNN().fit(train.paths, train.labels)
        fit_s, fit_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
        classifier.save(model)
        over_raw = classifier.nbytes_ / (128 * sum(image.n_descriptors for image in classifier.images_))
        adding = [
            one_more(classifier, path, label) for path, label in zip(test.paths[:6], test.labels[:6], strict=True)
        ]
        opening = [[float(word) for word in python("-c", OPEN, model)[0].split()] for _ in range(REPEATS)]
        answers = [python("-m", "lnbnn", "predict", model, test.paths[0], "--format", "json") for _ in range(REPEATS)]
        json.loads(answers[0][0])
        results = {
            "stages": stages(classifier, test.paths),
            "n_descriptors": sum(image.n_descriptors for image in classifier.images_[: len(train)]),
            "bytes_on_disk": sum(file.stat().st_size for file in model.rglob("*") if file.is_file()),
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
    record = make_record(
        "start-up",
        f"python benchmarks/start_up.py --classes {options.classes}",
        settings={"n_classes": options.classes, "n_train": 15, "repeats": REPEATS},
        seeds=[0],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "start-up.json", record)
    print(json.dumps(results, indent=1))


def stages(classifier: lnbnn.LocalNBNN, paths: tuple[str, ...]) -> dict[str, float]:
    """CPU time of each stage of an answer: medians over the images, an image's best of a few repeats."""
    index = classifier.index_
    structure, table = index._structure, index._require_table()  # type: ignore[attr-defined]
    n_probes = index._n_probes()  # type: ignore[attr-defined]
    in_tree = faiss.SearchParametersIVF(nprobe=index._n_branches())  # type: ignore[attr-defined]
    wide = faiss.SearchParametersIVF(nprobe=n_probes, quantizer_params=in_tree)
    tree = faiss.downcast_index(structure.quantizer)
    found = []
    for path in paths:
        gray = decode_gray(read_bytes(path), 300, name=path)
        features = classifier.query_features(path)
        vectors = np.ascontiguousarray(classifier._vectors(features)[:: max(1, len(features) // 250)][:250])
        n = len(vectors)
        widened = index._widen(vectors)  # type: ignore[attr-defined]
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
        labels = classifier._labels_of(ids)
        score = lambda d=distances, y=labels: local_nbnn_updates(d, y, 10).totals(len(classifier.classes_))  # noqa: E731
        row["score_us"] = best(score) / n
        row["whole_search_us"] = best(lambda v=vectors: index.search(v, 11)) / n
        begin = time.thread_time()
        classifier._scores(features)
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


def one_more(classifier: lnbnn.LocalNBNN, path: str, label: str) -> float:
    """CPU milliseconds of taking the descriptors of one more image into the index, extraction left out."""
    vectors = classifier._vectors(features_of(path, classifier.descriptor_))
    first = (len(classifier.images_) + 1000) << 20
    begin = time.process_time()
    ids = first + np.arange(len(vectors))
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


if __name__ == "__main__":
    main()

"""A model of 23 million descriptors: building its index, memory, opening it, sharing it between processes.

Caltech 101, 15 images a class, the grid of the paper. Each step is a process of its own, so that its peak of memory is
its own; FLANN's four trees are built over the same vectors, on one thread as FLANN does. Writes results/large.json. The
model is kept in runs/large.

    python benchmarks/large.py
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import HERE, options_parser, show

import lnbnn
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.splits import split_images
from lnbnn.indexes import make_index
from lnbnn.lab.records import make_record, write_record
from lnbnn.model.folder import is_model
from lnbnn.params import preset_params

MODEL = HERE / "runs" / "large" / "model"
FITTED = MODEL.parent / "fit.json"
N_READERS = 4
REPEATS = 5


def main() -> None:
    """Do the steps one after another and write the record."""
    parser = options_parser(__doc__)
    parser.add_argument("--classes", type=int, default=101, help="fewer for a trial")
    options = parser.parse_args()
    start = time.perf_counter()
    if not (is_model(MODEL) and FITTED.exists()):
        apart(fit, options.data, options.classes)
    results = {
        "fit": json.loads(FITTED.read_text()),
        "flann": apart(flann),
        "opening": {
            key: round(median(run[key] for run in runs), 3)
            for runs in [[apart(opening) for _ in range(REPEATS)]]
            for key in runs[0]
        },
        "readers": readers(),
    }
    record = make_record(
        "large",
        f"python benchmarks/large.py --classes {options.classes}",
        settings={"n_train": 15, "preset": "paper", "n_readers": N_READERS},
        seeds=[0],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "large.json", record)
    print(json.dumps(results, indent=1))


def apart(step: Callable[..., Any], *args: Any) -> Any:
    """A step in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(step, *args).result()


def fit(data: Path | None, n_classes: int) -> None:
    """Fit and save the model; the index's own share of the time, and the peak of memory."""
    images = load_caltech101(data)
    train, _ = split_images(images, n_train=15, n_test=15, seed=0)
    chosen = set(sorted(set(train.labels))[:n_classes])
    kept = [place for place, label in enumerate(train.labels) if label in chosen]
    marks: dict[str, tuple[float, float]] = {}

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "building the index" and done in (0, total):
            marks["end" if done else "begin"] = (time.perf_counter(), time.process_time())
        show(stage, done, total)

    model = lnbnn.LocalNBNN(**preset_params("paper"))
    begin = time.perf_counter()
    model.fit([train.paths[i] for i in kept], [train.labels[i] for i in kept], progress=progress)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    n_descriptors = sum(image.n_descriptors for image in model.images_)
    model.save(MODEL)
    found = {
        "n_descriptors": n_descriptors,
        "fit_s": round(seconds, 1),
        "index_s": round(marks["end"][0] - marks["begin"][0], 1),
        "index_cpu_s": round(marks["end"][1] - marks["begin"][1], 1),
        "bytes_over_raw": round(model.nbytes_ / (128 * n_descriptors), 3),
        "final_gib": round(model.nbytes_ / 2**30, 2),
        "peak_gib": round(peak / 2**30, 2),
        "disk_gib": round(sum(file.stat().st_size for file in MODEL.rglob("*") if file.is_file()) / 2**30, 2),
        "threads": os.cpu_count(),
    }
    FITTED.write_text(json.dumps(found))
    print(found, file=sys.stderr, flush=True)


def flann() -> dict[str, float]:
    """FLANN's four trees over the same vectors."""
    vectors = lnbnn.load(MODEL).index_.vectors_of(range(1 << 62))
    index = make_index("flann", {"checks": 1024})
    index.add(vectors, np.arange(len(vectors)))
    begin, cpu = time.perf_counter(), time.process_time()
    index.build()
    found = {"index_s": round(time.perf_counter() - begin, 1), "index_cpu_s": round(time.process_time() - cpu, 1)}
    print("FLANN", found, file=sys.stderr, flush=True)
    return found


def opening() -> dict[str, float]:
    """Seconds to open the model, the package imported before."""
    import lnbnn.classifiers.local_nbnn
    import lnbnn.descriptors.dense_sift
    import lnbnn.indexes.faiss_index

    begin, cpu = time.perf_counter(), time.process_time()
    lnbnn.load(MODEL)
    return {"wall_s": time.perf_counter() - begin, "cpu_s": time.process_time() - cpu}


def readers() -> dict[str, Any]:
    """Processes that answer from the model at once: memory of their own, and memory they share."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(N_READERS)
    queue = context.Queue()
    processes = [context.Process(target=_read, args=(barrier, queue)) for _ in range(N_READERS)]
    for process in processes:
        process.start()
    found = [queue.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return {
        "private_mib": [one["private"] for one in found],
        "shared_mib": [one["shared"] for one in found],
        "same_answer": len({one["answer"] for one in found}) == 1,
    }


def _read(barrier: Barrier, queue: Any) -> None:
    model = lnbnn.load(MODEL)
    model.set_params(n_jobs=1, query_budget=1000)
    answers = model.predict([image.name for image in model.images_[::200]])
    barrier.wait()
    fields = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, value, _ = line.split()
        fields[name.rstrip(":")] = int(value) // 1024
    barrier.wait()
    queue.put(
        {
            "private": fields["Private_Clean"] + fields["Private_Dirty"],
            "shared": fields["Shared_Clean"] + fields["Shared_Dirty"],
            "answer": tuple(answers),
        }
    )


if __name__ == "__main__":
    main()

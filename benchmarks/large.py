"""A model of 23 million descriptors: building its index, memory, opening it, sharing it between processes.

Caltech 101, 15 images per class, the grid of the paper. Each step is a process of its own, so that its peak of memory is
its own; FLANN's four trees are built over the same vectors, on one thread as FLANN does. The model is kept in runs/.

    python benchmarks/large.py
"""

from __future__ import annotations

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
from common import preset, run, table, values_of

import lnbnn
from lnbnn.data.folder import LabelledImages
from lnbnn.indexes import make_index
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.lab import of_classes
from lnbnn.model.folder import is_model

SETTINGS: Settings = {
    "n_classes": 101,
    "n_train": 15,
    "n_test": 15,
    "seed": 0,
    "preset": "paper",
    "n_readers": 4,
    "query_budget": 1000,  # of the readers
    "repeats": 5,
}
QUICK: Settings = {"n_classes": 2, "n_train": 2, "n_test": 1, "n_readers": 2, "repeats": 1}


def plan(settings: Settings) -> list[Part]:
    """The fit, then what is done with its model."""
    own = {key: settings[key] for key in ("n_classes", "n_train", "n_test", "seed")}
    own["params"] = preset(settings["preset"])
    fitted = Part("large fit", own, fit_step, timed=True)

    def step(name: str, work: Callable[[Path, Settings], Outcome]) -> Part:
        def compute(lab: Lab, settings: Settings) -> Outcome:
            return work(model_of(lab, fitted), settings)

        more = {key: settings[key] for key in ("n_readers", "query_budget", "repeats")}
        return Part(f"large {name}", own | more, compute, timed=True)

    return [fitted, step("flann", flann_step), step("opening", opening_step), step("readers", readers_step)]


def model_of(lab: Lab, fitted: Part) -> Path:
    """The folder of the fitted model; fitted again if it was removed."""
    folder = lab.path(fitted).with_suffix("")
    lab.get(fitted, again=not is_model(folder))
    return folder


def apart(work: Callable[..., Any], *args: Any) -> Any:
    """A step in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *args).result()


def fit_step(lab: Lab, settings: Settings) -> Outcome:
    """Fit and save the model."""
    train, _ = lab.split_of(settings)
    images = of_classes(train, sorted(set(train.labels))[: settings["n_classes"]])
    folder = lab.path(Part("large fit", settings, fit_step, timed=True)).with_suffix("")
    found: Outcome = apart(fit, images, settings["params"], folder)
    return found


def fit(images: LabelledImages, params: Settings, folder: Path) -> dict[str, Any]:
    """The index's own share of the time of a fit, and the peak of memory."""
    marks: dict[str, tuple[float, float]] = {}

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "building the index" and done in (0, total):
            marks["end" if done else "begin"] = (time.perf_counter(), time.process_time())
        if done % max(1, total // 10) == 0:
            print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)

    begin = time.perf_counter()
    model = lnbnn.LocalNBNN(**params).fit(images.paths, images.labels, progress=progress)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    n_descriptors = sum(image.n_descriptors for image in model.images_)
    model.save(folder, overwrite=True)
    return {
        "n_descriptors": n_descriptors,
        "fit_s": round(seconds, 1),
        "index_s": round(marks["end"][0] - marks["begin"][0], 1),
        "index_cpu_s": round(marks["end"][1] - marks["begin"][1], 1),
        "bytes_over_raw": round(model.nbytes_ / (128 * n_descriptors), 3),
        "final_gib": round(model.nbytes_ / 2**30, 2),
        "peak_gib": round(peak / 2**30, 2),
        "disk_gib": round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**30, 2),
        "threads": os.cpu_count(),
    }


def flann_step(model: Path, settings: Settings) -> Outcome:
    """FLANN's four trees over the same vectors."""
    found: Outcome = apart(flann, model)
    return found


def flann(model: Path) -> dict[str, float]:
    """Seconds to build them."""
    vectors = lnbnn.load(model).index_.vectors_of(range(1 << 62))
    index = make_index("flann", {"checks": 1024})
    index.add(vectors, np.arange(len(vectors)))
    begin, cpu = time.perf_counter(), time.process_time()
    index.build()
    return {"index_s": round(time.perf_counter() - begin, 1), "index_cpu_s": round(time.process_time() - cpu, 1)}


def opening_step(model: Path, settings: Settings) -> Outcome:
    """Medians of the seconds to open the model, each time in a fresh process."""
    runs = [apart(opening, model) for _ in range(settings["repeats"])]
    return {name: round(median(one[name] for one in runs), 3) for name in runs[0]}


def opening(model: Path) -> dict[str, float]:
    """Seconds to open it, the package imported before."""
    import lnbnn.classifiers.local_nbnn
    import lnbnn.descriptors.dense_sift
    import lnbnn.indexes.faiss_index

    begin, cpu = time.perf_counter(), time.process_time()
    lnbnn.load(model)
    return {"wall_s": time.perf_counter() - begin, "cpu_s": time.process_time() - cpu}


def readers_step(model: Path, settings: Settings) -> Outcome:
    """Processes that answer from the model at once: memory of their own, and memory they share."""
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(settings["n_readers"]), context.Queue()
    args = (model, settings["query_budget"], barrier, queue)
    processes = [context.Process(target=_read, args=args) for _ in range(settings["n_readers"])]
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


def _read(folder: Path, query_budget: int, barrier: Barrier, queue: Any) -> None:
    model = lnbnn.load(folder)
    model.set_params(n_jobs=1, query_budget=query_budget)
    answers = model.predict([image.name for image in model.images_[::200]])
    barrier.wait()
    fields = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, value, _ = line.split()
        fields[name.rstrip(":")] = int(value) // 1024
    barrier.wait()
    private, shared = (fields[f"{kind}_Clean"] + fields[f"{kind}_Dirty"] for kind in ("Private", "Shared"))
    queue.put({"private": private, "shared": shared, "answer": tuple(answers)})


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """What each step found."""
    return {part.kind.removeprefix("large "): values_of(found) for part, found in outcomes}


def tabulate(results: dict[str, Any]) -> str:
    """A model of the paper's size: its index against FLANN's, memory, opening, sharing."""
    fit, flann, opening, readers = (results[name] for name in ("fit", "flann", "opening", "readers"))
    rows = [
        [f"lnbnn, {fit['threads']} threads", f"{fit['index_cpu_s']:.0f}", f"{fit['index_s']:.0f}"],
        ["FLANN, 4 trees, 1 thread", f"{flann['index_cpu_s']:.0f}", f"{flann['index_s']:.0f}"],
    ]
    return table("index of | CPU s to build | wall s", rows) + (
        f"\nPreset `paper`, {fit['n_descriptors'] / 1e6:.1f} million descriptors: index and labels take "
        f"{fit['bytes_over_raw']:.2f} times the raw 8-bit descriptors ({fit['final_gib']:.1f} GiB); the peak while "
        f"fitting is {fit['peak_gib']:.1f} GiB. The saved model ({fit['disk_gib']:.1f} GiB) opens in "
        f"{opening['wall_s']:.2f} s ({opening['cpu_s']:.2f} s CPU). {len(readers['private_mib'])} processes that "
        f"answer from it at once have {max(readers['private_mib']):,} MiB each of their own and share "
        f"{min(readers['shared_mib']):,} MiB."
    )


TITLE = "A model of the paper's size: index, memory, opening, sharing"
EXPERIMENT = Experiment("large", TITLE, SETTINGS, plan, summarize, tabulate, QUICK)

if __name__ == "__main__":
    run(EXPERIMENT)

"""A model of 23 million descriptors: building its index, memory, opening it, sharing it between processes.

Caltech 101, 15 images per class, the grid of the paper. Each step is a process of its own, so that its peak of memory
is its own; FLANN's four trees are built over the same vectors, on one thread as FLANN does. The model is kept in runs/.
"""

import multiprocessing
import os
import resource
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import benchmark, parts_over, show, table, values_of, watch

import lnbnn
from lnbnn.data.folder import LabeledImages
from lnbnn.indexes import make_index
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings, of_classes
from lnbnn.model.folder import is_model

FITTED: Settings = {"n_classes": 101, "n_train": 15, "n_test": 15, "seed": 0, "preset": "paper"}
SETTINGS: Settings = {**FITTED, "n_readers": 4, "query_budget": 1000, "repeats": 5}
QUICK: Settings = {"n_classes": 2, "n_train": 2, "n_test": 1, "n_readers": 2, "repeats": 1}
SPAWN = multiprocessing.get_context("spawn")


def plan(settings: Settings) -> list[Part]:
    """The fit, then what is done with its model."""
    fitted = parts_over("large fit", fit_model, timed=True)({key: settings[key] for key in FITTED})
    return fitted + parts_over("large", use_model, timed=True, steps="step")(settings | {"steps": list(STEPS)})


def model_of(lab: Lab, part: Part) -> Path:
    """The folder of the model that a part fits; it is fitted again if the folder was removed."""
    folder = lab.path(part).with_suffix("")
    lab.get(part, again=not is_model(folder))
    return folder


def apart(work: Any, *args: Any) -> Any:
    """A step in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        return pool.submit(work, *args).result()


def fit_model(lab: Lab, settings: Settings) -> Outcome:
    train, _ = lab.split_of(settings)
    images = of_classes(train, sorted(set(train.labels))[: settings["n_classes"]])
    folder = lab.path(Part("large fit", settings, fit_model, timed=True)).with_suffix("")
    return apart(fit, images, settings["params"], folder)


def fit(images: LabeledImages, params: Settings, folder: Path) -> dict[str, Any]:
    """The index's own share of the time of a fit, and the peak of memory."""
    building = watch()

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "building the index" and done in (0, total):
            (building.stop if done else building.start)()
        show(stage, done, total)

    with watch() as fitting:
        model = lnbnn.LocalNBNN(**params).fit(images.paths, images.labels, progress=progress)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    n_descriptors = sum(image.n_descriptors for image in model.images_)
    model.save(folder, overwrite=True)
    return {
        "n_descriptors": n_descriptors,
        "fit_s": round(fitting.wall_s, 1),
        "index_s": round(building.wall_s, 1),
        "index_cpu_s": round(building.cpu_s, 1),
        "bytes_over_raw": round(model.nbytes_ / (128 * n_descriptors), 3),
        "final_gib": round(model.nbytes_ / 2**30, 2),
        "peak_gib": round(peak, 2),
        "disk_gib": round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**30, 2),
        "threads": os.cpu_count(),
    }


def use_model(lab: Lab, settings: Settings) -> Outcome:
    """A step after the fit, in a fresh process; the median of those that are repeated."""
    model = model_of(lab, plan(settings)[0])
    work, is_repeated = STEPS[settings["step"]]
    runs = [apart(work, model, settings) for _ in range(settings["repeats"] if is_repeated else 1)]
    return {name: round(median(one[name] for one in runs), 3) for name in runs[0]} if is_repeated else runs[0]


def flann(model: Path, settings: Settings) -> dict[str, float]:
    """FLANN's four trees over the same vectors: seconds to build them."""
    vectors = lnbnn.load(model).index_.vectors_of(range(1 << 62))
    index = make_index("flann", {"checks": 1024})
    index.add(vectors, np.arange(len(vectors)))
    with watch() as building:
        index.build()
    return {"index_s": round(building.wall_s, 1), "index_cpu_s": round(building.cpu_s, 1)}


def opening(model: Path, settings: Settings) -> dict[str, float]:
    """Seconds to open the model, the package imported before."""
    import lnbnn.classifiers.local_nbnn
    import lnbnn.descriptors.dense_sift
    import lnbnn.indexes.faiss_index

    with watch() as spent:
        lnbnn.load(model)
    return {"wall_s": spent.wall_s, "cpu_s": spent.cpu_s}


def readers(model: Path, settings: Settings) -> dict[str, Any]:
    """Processes that answer from the model at once: memory of their own, and memory they share."""
    barrier, queue = SPAWN.Barrier(settings["n_readers"]), SPAWN.Queue()
    args = (model, settings["query_budget"], barrier, queue)
    processes = [SPAWN.Process(target=_read, args=args) for _ in range(settings["n_readers"])]
    for process in processes:
        process.start()
    private, shared, answers = zip(*(queue.get(timeout=600) for _ in processes), strict=True)
    for process in processes:
        process.join()
    return {"private_mib": private, "shared_mib": shared, "same_answer": len(set(answers)) == 1}


def _read(folder: Path, query_budget: int, barrier: Any, queue: Any) -> None:
    model = lnbnn.load(folder)
    model.set_params(n_jobs=1, query_budget=query_budget)
    answers = model.predict([image.name for image in model.images_[::200]])
    barrier.wait()
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    mib = {name.rstrip(":"): int(value) // 1024 for name, value, _ in lines}
    barrier.wait()
    queue.put((*(mib[f"{kind}_Clean"] + mib[f"{kind}_Dirty"] for kind in ("Private", "Shared")), tuple(answers)))


STEPS = {"flann": (flann, False), "opening": (opening, True), "readers": (readers, False)}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    return {part.kind.removeprefix("large "): values_of(found) for part, found in outcomes}


def tabulate(results: Results) -> str:
    fit, flann, opening, readers = (results[name] for name in ("fit", "flann", "opening", "readers"))
    ways = ((f"lnbnn, {fit['threads']} threads", fit), ("FLANN, 4 trees, 1 thread", flann))
    rows = [[words, f"{found['index_cpu_s']:.0f}", f"{found['index_s']:.0f}"] for words, found in ways]
    return table("index of | CPU s to build | wall s", rows) + (
        f"\nPreset `paper`, {fit['n_descriptors'] / 1e6:.1f} million descriptors: index and labels take "
        f"{fit['bytes_over_raw']:.2f} times the raw 8-bit descriptors ({fit['final_gib']:.1f} GiB); the peak while "
        f"fitting is {fit['peak_gib']:.1f} GiB. The saved model ({fit['disk_gib']:.1f} GiB) opens in "
        f"{opening['wall_s']:.2f} s ({opening['cpu_s']:.2f} s CPU). {len(readers['private_mib'])} processes that "
        f"answer from it at once have {max(readers['private_mib']):,} MiB each of their own and share "
        f"{min(readers['shared_mib']):,} MiB."
    )


EXPERIMENT = benchmark(globals())

"""The embedded index at 50 million descriptors and more, memory-mapped: build time, peak memory, searches per second.

Dense SIFT every 4 pixels on Caltech 101 and 256, with location and size as a model has them, images in a random order;
where there are too few, the rest are copies with seeded noise. The vectors are one file in runs/, which grows image by
image and is kept. Each step is a process of its own, so that its peak of memory is its own.
"""

import json
import multiprocessing
import os
import shutil
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from common import benchmark, parts_over, show, table, values_of, watch

from lnbnn.data import DATASETS
from lnbnn.data.published import load_set
from lnbnn.descriptors import make_descriptor
from lnbnn.errors import DatasetError, ImageReadError
from lnbnn.features import append_location
from lnbnn.indexes.faiss_index import FaissIndex
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.axes import new_plot
from lnbnn.lab.provenance import digest_of
from lnbnn.params import resolve
from lnbnn.reading.extraction import iter_features, map_in_order

SETTINGS: Settings = {"n_descriptors": [3_500_000, 7_000_000, 14_000_000, 28_000_000, 56_000_000]}
SETTINGS |= {"sets": ["caltech101", "caltech256"], "seed": 0, "n_images_asked": 60, "queries_per_image": 500}
SETTINGS |= {"n_neighbors": 10, "n_checked": 100, "noise": 6.0, "n_threads": 2}
SETTINGS |= {"descriptor": "dense-sift", "descriptor_params": {"step_px": 4}}
QUICK: Settings = {"n_descriptors": [40_000, 80_000], "n_images_asked": 4, "n_checked": 10, "sets": ["caltech101"]}
SPAWN = multiprocessing.get_context("spawn")
BLOCK = 1 << 18


def compute(lab: Lab, settings: Settings) -> Outcome:
    """One size: the vectors, the index over the first of them, its searches."""
    descriptor = make_descriptor(settings["descriptor"], settings["descriptor_params"])
    what = {name: settings[name] for name in ("sets", "seed", "n_images_asked", "noise", "descriptor_params", "total")}
    vectors = lab.runs / f"growth-large-{digest_of(what)}"
    vectors.mkdir(exist_ok=True)
    made = apart(write_vectors, vectors, settings, descriptor, lab.dataset.endswith("quick"))
    folder = vectors / f"first-{settings['n_rows']}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        apart(take_first, vectors, folder, settings["n_rows"])
        return {**made, **apart(build, folder), **apart(search, vectors, folder, settings)}
    finally:
        shutil.rmtree(folder)


def apart(work: Any, *args: Any) -> Any:
    """A step in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        return pool.submit(work, *args).result()


# ---- the vectors -----------------------------------------------------------------------------------------------------


def write_vectors(folder: Path, settings: Settings, descriptor: Any, is_quick: bool) -> dict[str, int]:
    """The file of all vectors; a run that was stopped goes on with the next images. Returns what it is made of."""
    state = folder / "state.json"
    total, rng = settings["total"], np.random.default_rng(settings["seed"])
    done = json.loads(state.read_text()) if state.exists() else {"n_images": 0, "n_real": 0, "n_rows": 0}
    if done["n_rows"] == total:
        return {"n_images": done["n_images"], "n_real": done["n_real"]}
    paths = [path for name in settings["sets"] for path in paths_of(name, is_quick)]
    paths = [paths[place] for place in rng.permutation(len(paths))]
    asked, paths = paths[: settings["n_images_asked"]], paths[settings["n_images_asked"] :]
    if not (folder / "asked.npy").exists():
        queries = [vectors_of(one, descriptor) for one in iter_features(asked, descriptor)]
        n = settings["queries_per_image"]
        np.save(
            folder / "asked.npy", np.stack([rows[np.linspace(0, len(rows) - 1, n).astype(int)] for rows in queries])
        )
    width, quota = np.load(folder / "asked.npy").shape[2], -(-total // len(paths))
    mode = "r+" if done["n_rows"] else "w+"
    shape = {} if done["n_rows"] else {"shape": (total, width), "dtype": np.uint8}
    every = np.lib.format.open_memmap(folder / "vectors.npy", mode=mode, **shape)
    shape = {} if done["n_rows"] else {"shape": (total,), "dtype": np.int64}
    ids = np.lib.format.open_memmap(folder / "ids.npy", mode=mode, **shape)

    def keep(n_images: int, n_real: int, n_rows: int) -> None:
        every.flush()
        ids.flush()
        state.with_suffix(".new").write_text(json.dumps({"n_images": n_images, "n_real": n_real, "n_rows": n_rows}))
        os.replace(state.with_suffix(".new"), state)
        show("vectors", n_rows, total)

    first, n_real, n_rows = done["n_images"], done["n_real"], done["n_rows"]
    n_images = first
    for number, found in enumerate(iter_features(paths[first:], descriptor), start=first):
        if n_rows == total:
            break
        n_images = number + 1
        if not isinstance(found, ImageReadError) and len(found):
            rows = vectors_of(found, descriptor)
            rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(quota, len(rows))).astype(int))][: total - n_rows]
            every[n_rows : n_rows + len(rows)] = rows
            ids[n_rows : n_rows + len(rows)] = (number << 20) + np.arange(len(rows))
            n_real = n_rows = n_rows + len(rows)
        if number % 500 == 0:
            keep(n_images, n_real, n_rows)
    while n_rows < total:  # copies of the first rows, with noise
        start = (n_rows - n_real) % n_real
        noise = np.random.default_rng([settings["seed"], n_rows])
        rows = every[start : min(start + BLOCK, n_real)][: total - n_rows].astype(np.float32)
        rows = np.clip(np.rint(rows + noise.normal(0, settings["noise"], rows.shape)), 0, 255)
        every[n_rows : n_rows + len(rows)] = rows
        ids[n_rows : n_rows + len(rows)] = (len(paths) << 20) + np.arange(n_rows, n_rows + len(rows))
        n_rows += len(rows)
        keep(n_images, n_real, n_rows)
    keep(n_images, n_real, n_rows)
    return {"n_images": n_images, "n_real": n_real}


def paths_of(name: str, is_quick: bool) -> list[str]:
    """The images of a published set; none where it is not here and the run is quick."""
    try:
        paths = list(load_set(resolve(DATASETS, name, "set of images")).paths)
    except DatasetError:
        if not is_quick:
            raise
        paths = []
    return paths[:40] if is_quick else paths


def vectors_of(features: Any, descriptor: Any) -> np.ndarray:
    return append_location(features, descriptor.location_weight, descriptor.scale_weight)


def take_first(vectors: Path, folder: Path, n_rows: int) -> None:
    """The first rows as files of their own; all of them under a second name."""
    for name in ("vectors.npy", "ids.npy"):
        every = np.load(vectors / name, mmap_mode="r")
        if n_rows == len(every):
            os.link(vectors / name, folder / name)
            continue
        some = np.lib.format.open_memmap(folder / name, mode="w+", dtype=every.dtype, shape=(n_rows, *every.shape[1:]))
        for start in range(0, n_rows, BLOCK):
            some[start : start + BLOCK] = every[start : min(start + BLOCK, n_rows)]
        some.flush()


# ---- the index -------------------------------------------------------------------------------------------------------


def build(folder: Path) -> dict[str, Any]:
    """The index over mapped vectors, and its files."""
    with Memory() as memory, watch() as building:
        index = FaissIndex.load(folder, {})
    with watch() as saving:
        index.save_structure(folder)
    return {
        "n_descriptors": len(index),
        "build_s": round(building.wall_s, 1),
        "build_cpu_s": round(building.cpu_s, 1),
        "save_s": round(saving.wall_s, 1),
        "peak_gib": round(memory.peak_bytes / 2**30, 2),
        "disk_gib": round(sum(file.stat().st_size for file in folder.iterdir()) / 2**30, 2),
        "index": index.describe(),
    }


def search(vectors: Path, folder: Path, settings: Settings) -> dict[str, Any]:
    """Searches of the mapped index: the first, and again."""
    queries = list(np.load(vectors / "asked.npy"))
    k = settings["n_neighbors"]
    with Memory() as memory:
        with watch() as opening:
            index = FaissIndex.load(folder, {})
        index.search(queries[0][:1], k)
        spent = [watch(), watch()]
        for one in spent:
            with one:
                list(map_in_order(lambda rows: index.search(rows, k)[1], queries, settings["n_threads"]))
    n = sum(map(len, queries))
    some = np.concatenate(queries)[:: max(1, n // settings["n_checked"])][: settings["n_checked"]]
    nearest = exact(np.load(folder / "vectors.npy", mmap_mode="r"), some, k)
    found = index.search(some, k)[0]
    return {
        "open_s": round(opening.wall_s, 2),
        "queries_per_s": round(n / spent[1].wall_s),
        "first_queries_per_s": round(n / spent[0].wall_s),
        "us_per_query": round(1e6 * spent[1].cpu_s / n, 2),
        "search_gib": round(memory.peak_bytes / 2**30, 2),
        "recall_at_1": round(float(np.mean(found[:, 0] <= nearest[:, 0])), 3),
        f"recall_at_{k}": round(float(np.mean([np.isin(a, b).mean() for a, b in zip(nearest, found, strict=True)])), 3),
    }


def exact(vectors: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """The squared distances of the nearest, by comparing with all."""
    asked = queries.astype(np.float32)
    best = np.full((len(queries), k), np.inf, np.float32)
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK].astype(np.float32)
        squared = (asked**2).sum(1)[:, None] + (block**2).sum(1)[None] - 2 * asked @ block.T  # whole numbers: exact
        best = np.sort(np.hstack([best, np.partition(squared, min(k, len(block)) - 1, axis=1)[:, :k]]), axis=1)[:, :k]
        show("comparing with all", start + len(block), len(vectors))
    return best


class Memory:
    """The most memory of its own that this process held in a block: pages of mapped files are the system's."""

    def __enter__(self) -> "Memory":
        self.peak_bytes, self._is_over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while True:
            line = next(line for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line)
            self.peak_bytes = max(self.peak_bytes, int(line.split()[1]) << 10)
            if self._is_over.wait(0.05):
                return

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


# ---- results ---------------------------------------------------------------------------------------------------------


def plan(settings: Settings) -> list[Any]:
    own = settings | {"total": max(settings["n_descriptors"])}
    return parts_over("growth large", compute, timed=True, n_descriptors="n_rows")(own)


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    points = [values_of(found) for _, found in outcomes]
    n, t = (np.array([point[name] for point in points], float) for name in ("n_descriptors", "us_per_query"))
    slope, start = np.polyfit(np.log2(n), t, 1)
    return {
        "points": points,
        "us_for_each_doubling": round(float(slope), 2),
        "worst_departure_from_logarithm": round(float(np.abs(start + slope * np.log2(n) - t).max() / t.mean()), 3),
        "times_the_time": round(float(t[-1] / t[0]), 2),
        "times_the_size": round(float(n[-1] / n[0]), 1),
    }


def tabulate(results: Results) -> str:
    rows = [
        [
            f"{point['n_descriptors']:,}",
            f"{point['build_s']:,.0f}",
            f"{point['peak_gib']:.1f}",
            f"{point['disk_gib']:.1f}",
            f"{point['open_s']:.1f}",
            f"{point['queries_per_s']:,}",
            f"{point['us_per_query']:.1f}",
            f"{100 * point['recall_at_1']:.0f} %",
            f"{100 * point['recall_at_10']:.0f} %",
        ]
        for point in results["points"]
    ]
    last = results["points"][-1]
    n_copies = max(0, last["n_descriptors"] - last["n_real"])
    copies = f"{n_copies:,} of them copies with noise" if n_copies else "none of them a copy"
    header = "descriptors | s to build | GiB of memory | GiB on disk | s to open | queries per s | CPU us per query"
    return table(f"{header} | nearest found | of the ten nearest", rows) + (
        f"\n{last['n_descriptors']:,} descriptors of {last['n_images']:,} images, {copies}. "
        f"{results['times_the_time']:.2f} times the time per query for {results['times_the_size']:.0f} times the "
        "descriptors. Memory is the process's own; the vectors are mapped, and the system keeps what it has room for.\n"
    )


def draw(results: Results) -> Any:
    figure, (left, right) = new_plot("descriptors", "", size=(8, 3.2), n_panels=2)
    n = [point["n_descriptors"] for point in results["points"]]
    for axes, name, words in ((left, "us_per_query", "CPU us per query"), (right, "build_s", "s to build")):
        axes.plot(n, [point[name] for point in results["points"]], "o-")
        axes.set(xscale="log", ylabel=words)
        axes.set_xticks(n, [f"{one / 1e6:g} M" for one in n], minor=False)
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
    return figure


EXPERIMENT = benchmark(globals(), source="")

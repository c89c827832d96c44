"""How long a change to a large model takes: Caltech 101, 15 images a class, the default settings.

One image is added, relabelled and removed, again and again: from the command line (the whole process), and in a running
Python process (one transaction each, on the disk when it returns). With --loaded also what it takes a loaded model to
follow, and the same changes in memory. Wall time and CPU time: on a busy machine only the second says much. The model
is made once and kept in runs/living. Writes results/living.json.

    python benchmarks/living.py --repeats 7
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, TypeAlias

from common import HERE, options_parser, show

import lnbnn
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.splits import split_images
from lnbnn.lab.records import make_record, write_record
from lnbnn.model.changes import list_images
from lnbnn.model.folder import is_model

Times: TypeAlias = dict[str, dict[str, float]]
UNITS = ("wall_ms", "cpu_ms")
MODEL = HERE / "runs" / "living" / "model"


def main() -> None:
    """Time the changes and write their record."""
    parser = options_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--loaded", action="store_true", help="also load the model, follow, and change it in memory")
    parser.add_argument("--prepare", action="store_true", help="only make the model")
    options = parser.parse_args()
    start = time.perf_counter()
    train, test = split_images(load_caltech101(options.data), n_train=15, n_test=15, seed=0)
    if not is_model(MODEL):
        lnbnn.LocalNBNN().fit(train.paths, train.labels, progress=show).save(MODEL)
    if options.prepare:
        return
    paths = test.paths[:: len(test.paths) // (2 * options.repeats + 2)]
    runs = {
        "command": [by_command(path) for path in paths[: options.repeats]],
        "process": in_process(paths[options.repeats : 2 * options.repeats + 1])[1:],  # the first one compiles
    }
    if options.loaded:
        runs["loaded"] = in_memory(paths[options.repeats : 2 * options.repeats + 1])[1:]
    images = list_images(MODEL)
    results: dict[str, Any] = {
        "n_images": len(images),
        "n_descriptors": sum(image.n_descriptors for image in images),
        "load_average": os.getloadavg()[0],
        **{
            part: {name: {unit: summary([run[name][unit] for run in done]) for unit in UNITS} for name in done[0]}
            for part, done in runs.items()
        },
    }
    record = make_record(
        "living",
        f"python benchmarks/living.py --repeats {options.repeats}",
        settings={"n_train": 15, "preset": "balanced"},
        seeds=[0],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "living.json", record)
    print(json.dumps(results, indent=1))


def summary(values: list[float]) -> dict[str, float]:
    """Median, least and most, to three figures."""
    return {name: float(f"{of(values):.3g}") for name, of in (("median", median), ("least", min), ("most", max))}


def by_command(path: str) -> Times:
    """The whole process to add an image, to relabel it and to remove it again."""
    times: Times = {}
    with timed(times, "add", resource.RUSAGE_CHILDREN):
        printed = run("add", MODEL, "--label", "a new class", path, "--format", "json")
    number = json.loads(printed)["added"][0]["id"]
    with timed(times, "relabel", resource.RUSAGE_CHILDREN):
        run("relabel", MODEL, "--image", number, "--label", "another class")
    with timed(times, "remove", resource.RUSAGE_CHILDREN):
        run("remove", MODEL, "--image", number)
    return times


def run(*args: object) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "lnbnn", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def in_process(paths: Sequence[str]) -> list[Times]:
    """Each change a transaction of its own."""
    runs = []
    for path in paths:
        times: Times = {}
        with timed(times, "add"), lnbnn.edit(MODEL) as editor:
            (image,) = editor.add([path], ["a new class"])
        with timed(times, "relabel"), lnbnn.edit(MODEL) as editor:
            editor.relabel(image.id, "another class")
        with timed(times, "remove"), lnbnn.edit(MODEL) as editor:
            editor.remove(image.id)
        runs.append(times)
    return runs


def in_memory(paths: Sequence[str]) -> list[Times]:
    """A loaded model follows each change of its folder; then the same changes in memory alone."""
    follower, model = lnbnn.load(MODEL), lnbnn.load(MODEL)
    runs = []
    for path in paths:
        times: Times = {}
        with lnbnn.edit(MODEL) as editor:
            (image,) = editor.add([path], ["a new class"])
        with timed(times, "refresh after add"):
            follower.refresh()
        with lnbnn.edit(MODEL) as editor:
            editor.remove(image.id)
        with timed(times, "refresh after remove"):
            follower.refresh()
        with timed(times, "partial_fit"):
            model.partial_fit([path], ["a new class"])
        with timed(times, "relabel"):
            model.relabel(model.images_[-1].id, "another class")
        with timed(times, "remove"):
            model.remove(model.images_[-1].id)
        runs.append(times)
    return runs


@contextmanager
def timed(times: Times, name: str, who: int = resource.RUSAGE_SELF) -> Iterator[None]:
    """Put the wall time and the CPU time of a block under a name."""
    wall, cpu = time.perf_counter(), resource.getrusage(who)
    yield
    after = resource.getrusage(who)
    used = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
    times[name] = {"wall_ms": 1000 * (time.perf_counter() - wall), "cpu_ms": 1000 * used}


if __name__ == "__main__":
    main()

"""How long a change to a large model takes: Caltech 101, 15 images per class, the default settings.

One image is added, relabelled and removed, again and again: from the command line (the whole process), and in a running
Python process (one transaction each, on the disk when it returns). With --loaded also what it takes a loaded model to
follow, and the same changes in memory. Wall time and CPU time: on a busy machine only the second says much. The model
is made once and kept in runs/.

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
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from common import preset, run, table, values_of
from large import model_of

import lnbnn
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings
from lnbnn.model.changes import list_images

Times: TypeAlias = dict[str, dict[str, float]]
UNITS = ("wall_ms", "cpu_ms")
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seed": 0, "preset": "balanced", "repeats": 7, "loaded": False}
QUICK: Settings = {"n_train": 3, "n_test": 2, "repeats": 1, "loaded": True}


def plan(settings: Settings) -> list[Part]:
    """The changes; the model they are made to is a part too, asked for by them."""
    own = {key: settings[key] for key in ("n_train", "n_test", "seed")} | {"params": preset(settings["preset"])}
    more = {key: settings[key] for key in ("repeats", "loaded")}
    return [Part("living changes", own | more, compute, timed=True)]


def make_model(lab: Lab, settings: Settings) -> Outcome:
    """Fit the model and save it beside the outcome."""
    model = lab.fit("local-nbnn", settings["params"], lab.split_of(settings)[0], keep_features=False)
    model.save(lab.path(Part("living model", settings, make_model)).with_suffix(""), overwrite=True)
    return {"n_images": len(model.images_)}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Time the changes."""
    own = {key: settings[key] for key in ("n_train", "n_test", "seed", "params")}
    model = model_of(lab, Part("living model", own, make_model))
    repeats = settings["repeats"]
    test = lab.split_of(settings)[1]
    paths = test.paths[:: max(1, len(test.paths) // (2 * repeats + 2))]
    runs = {
        "command": [by_command(model, path) for path in paths[:repeats]],
        "process": in_process(model, paths[repeats : 2 * repeats + 1])[1:],  # the first one compiles
    }
    if settings["loaded"]:
        runs["loaded"] = in_memory(model, paths[repeats : 2 * repeats + 1])[1:]
    images = list_images(model)
    return {
        "n_images": len(images),
        "n_descriptors": sum(image.n_descriptors for image in images),
        "load_average": os.getloadavg()[0],
        "runs": runs,
    }


def by_command(model: Path, path: str) -> Times:
    """The whole process to add an image, to relabel it and to remove it again."""
    times: Times = {}
    with timed(times, "add", resource.RUSAGE_CHILDREN):
        printed = command("add", model, "--label", "a new class", path, "--format", "json")
    number = json.loads(printed)["added"][0]["id"]
    with timed(times, "relabel", resource.RUSAGE_CHILDREN):
        command("relabel", model, "--image", number, "--label", "another class")
    with timed(times, "remove", resource.RUSAGE_CHILDREN):
        command("remove", model, "--image", number)
    return times


def command(*args: object) -> str:
    """What a command prints."""
    words = [sys.executable, "-m", "lnbnn", *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def in_process(model: Path, paths: Sequence[str]) -> list[Times]:
    """Each change a transaction of its own."""
    runs = []
    for path in paths:
        times: Times = {}
        with timed(times, "add"), lnbnn.edit(model) as editor:
            (image,) = editor.add([path], ["a new class"])
        with timed(times, "relabel"), lnbnn.edit(model) as editor:
            editor.relabel(image.id, "another class")
        with timed(times, "remove"), lnbnn.edit(model) as editor:
            editor.remove(image.id)
        runs.append(times)
    return runs


def in_memory(folder: Path, paths: Sequence[str]) -> list[Times]:
    """A loaded model follows each change of its folder; then the same changes in memory alone."""
    follower, model = lnbnn.load(folder), lnbnn.load(folder)
    runs = []
    for path in paths:
        times: Times = {}
        with lnbnn.edit(folder) as editor:
            (image,) = editor.add([path], ["a new class"])
        with timed(times, "refresh after add"):
            follower.refresh()
        with lnbnn.edit(folder) as editor:
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


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """Median, least and most of each change, to three figures."""
    found = values_of(outcomes[0][1])
    for part, done in found.pop("runs").items():
        found[part] = {name: {unit: _spread([one[name][unit] for one in done]) for unit in UNITS} for name in done[0]}
    return found


def _spread(values: list[float]) -> dict[str, float]:
    return {name: float(f"{of(values):.3g}") for name, of in (("median", median), ("least", min), ("most", max))}


def tabulate(results: dict[str, Any]) -> str:
    """What a change to a large model costs."""
    rows = []
    for name in ("add", "relabel", "remove"):
        command, process = results["command"][name], results["process"][name]
        cells = [f"{command[unit]['median'] / 1000:.2f} s" for unit in ("cpu_ms", "wall_ms")]
        rows.append([name, *cells, *(f"{process[unit]['median']:.0f} ms" for unit in ("cpu_ms", "wall_ms"))])
    return table("| command, CPU | command, wall | in Python, CPU | in Python, wall", rows) + (
        f"\nMedians; a model of {results['n_images']:,} images with {results['n_descriptors'] / 1e6:.1f} million "
        f"descriptors; the load of the machine was {results['load_average']:.1f}, on 2 cores."
    )


TITLE = "What a change to a large model costs"
EXPERIMENT = Experiment("living", TITLE, SETTINGS, plan, summarize, tabulate, QUICK)

if __name__ == "__main__":
    run(EXPERIMENT)

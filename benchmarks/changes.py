"""How long a change to a large model takes: Caltech 101, 15 images per class, the default settings.

One image is added, relabeled, removed and asked about, again and again: from the command line (the whole process), and
in a running Python process (each change a transaction, on the disk when it returns; a question to an open model). With
--loaded also what it takes a loaded model to follow, and the same changes in memory. Wall time and CPU time: on a busy
computer only the second says much. The model is made once and kept in runs/.
"""

import json
import os
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from common import benchmark, parts_over, python, table, values_of, watch
from large import model_of

import lnbnn
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.model.changes import list_images

FITTED = ("n_train", "n_test", "seed", "preset", "params")
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seed": 0, "preset": "auto", "repeats": 7, "loaded": False}
QUICK: Settings = {"n_train": 3, "n_test": 2, "repeats": 1, "loaded": True}
LABEL, OTHER = "a new class", "another class"
MODEL, CHANGES = "model to change", "changes"  # names of parts


def make_model(lab: Lab, settings: Settings) -> Outcome:
    with watch() as fit:
        model = lab.fit_preset(settings, lab.split_of(settings)[0])
    model.save(lab.path(Part(MODEL, settings, make_model)).with_suffix(""), overwrite=True)
    return {"n_images": len(model.images_), "fit": {"wall_s": round(fit.wall_s), "cpu_s": round(fit.cpu_s)}}


def compute(lab: Lab, settings: Settings) -> Outcome:
    made = Part(MODEL, {key: settings[key] for key in FITTED}, make_model)
    model = model_of(lab, made)
    test, repeats = lab.split_of(settings)[1], settings["repeats"]
    paths = test.paths[:: max(1, len(test.paths) // (2 * repeats + 2))]
    in_python = paths[repeats : 2 * repeats + 1]
    opened = lnbnn.load(model)
    opened.set_params(n_jobs=1)
    runs = {
        "command": [by_command(model, path) for path in paths[:repeats]],
        "process": [in_process(model, opened, path) for path in in_python][1:],  # the first one compiles
    }
    if settings["loaded"]:
        loaded = lnbnn.load(model), lnbnn.load(model)
        runs["loaded"] = [in_memory(model, *loaded, path) for path in in_python][1:]
    images = list_images(model)
    found = {"n_images": len(images), "n_descriptors": sum(image.n_descriptors for image in images)}
    times = {
        part: [{name: [spent.wall_s, spent.cpu_s] for name, spent in one.items()} for one in done]
        for part, done in runs.items()
    }
    return {**found, "fit": lab.get(made)["fit"], "load_average": os.getloadavg()[0], "runs": times}


def by_command(model: Path, path: str) -> dict[str, Any]:
    """The whole process to add an image, to relabel it and to remove it again."""
    add = python("-m", "lnbnn", "add", model, "--label", LABEL, path, "--format", "json")
    number = json.loads(add.text)["added"][0]["id"]
    relabel = python("-m", "lnbnn", "relabel", model, "--image", number, "--label", OTHER)
    remove = python("-m", "lnbnn", "remove", model, "--image", number)
    return {"add": add, "relabel": relabel, "remove": remove, "predict": python("-m", "lnbnn", "predict", model, path)}


def in_process(model: Path, opened: Any, path: str) -> dict[str, Any]:
    """Each change a transaction of its own; the answer of a model that is open."""
    with watch() as add, lnbnn.edit(model) as editor:
        (image,) = editor.add([path], [LABEL])
    with watch() as relabel, lnbnn.edit(model) as editor:
        editor.relabel(image.id, OTHER)
    with watch() as remove, lnbnn.edit(model) as editor:
        editor.remove(image.id)
    with watch() as predict:
        opened.predict([path])
    return {"add": add, "relabel": relabel, "remove": remove, "predict": predict}


def in_memory(folder: Path, follower: Any, model: Any, path: str) -> dict[str, Any]:
    """A loaded model follows each change of its folder; then the same changes in memory alone."""
    with lnbnn.edit(folder) as editor:
        (image,) = editor.add([path], [LABEL])
    with watch() as after_add:
        follower.refresh()
    with lnbnn.edit(folder) as editor:
        editor.remove(image.id)
    with watch() as after_remove:
        follower.refresh()
    with watch() as partial_fit:
        model.partial_fit([path], [LABEL])
    with watch() as relabel:
        model.relabel(model.images_[-1].id, OTHER)
    with watch() as remove:
        model.remove(model.images_[-1].id)
    found = {"refresh after add": after_add, "refresh after remove": after_remove}
    return found | {"partial_fit": partial_fit, "relabel": relabel, "remove": remove}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """Median, least and most of each change, to three figures."""
    found = values_of(outcomes[0][1])
    for part, done in found.pop("runs").items():
        found[part] = {}
        for name, (place, unit) in product(done[0], enumerate(("wall_ms", "cpu_ms"))):
            values = [1000 * one[name][place] for one in done]
            spread = {"median": median(values), "least": min(values), "most": max(values)}
            found[part].setdefault(name, {})[unit] = {word: float(f"{value:.3g}") for word, value in spread.items()}
    return found


def tabulate(results: Results) -> str:
    rows = []
    for name in results["command"]:
        command, process = results["command"][name], results["process"][name]
        cells = [f"{command[unit]['median'] / 1000:.2f} s" for unit in ("cpu_ms", "wall_ms")]
        rows.append([name, *cells, *(f"{process[unit]['median']:.0f} ms" for unit in ("cpu_ms", "wall_ms"))])
    fit = results["fit"]
    return table("| command, CPU | command, wall | in Python, CPU | in Python, wall", rows) + (
        f"\nMedians. The model was fitted in {fit['wall_s']} s ({fit['cpu_s']} s of CPU time); it "
        f"has {results['n_images']:,} images with {results['n_descriptors'] / 1e6:.1f} million "
        f"descriptors; the load average was {results['load_average']:.1f}, on 2 cores."
    )


EXPERIMENT = benchmark(globals(), plan=parts_over(CHANGES, compute, timed=True))

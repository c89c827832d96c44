"""How the settings of the cells of a network were chosen: on training images alone, each left out in turn.

Of each set, the 15 training images per class of split 0, some 40 classes; test images are not looked at. Each trial
changes one thing and is scored by Local NBNN on the cells, by least squares on the mean of an image's cells, and by the
sum of their log-probabilities. The log-loss, at the best temperature, moves before the accuracy does.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import benchmark, cpu_seconds, parts_over, table, values_of
from numpy.typing import NDArray
from scipy.special import log_softmax

from lnbnn.data.folder import LabeledImages
from lnbnn.descriptors import make_descriptor
from lnbnn.descriptors.normalization import Normalization
from lnbnn.features import ImageFeatures, append_location
from lnbnn.files.images import read_bytes
from lnbnn.indexes import make_index
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.lab.lab import of_classes
from lnbnn.lab.parts import accuracy
from lnbnn.lab.reproduce import find_images
from lnbnn.methods.matching import ids_of_image, image_of_id
from lnbnn.reading.extraction import features_of
from lnbnn.scoring import local_nbnn_updates

Rows = list[NDArray[Any]]

BASE: Settings = {
    "layers": ["deep"],
    "longest_side": 288,
    "n_components": 128,
    "location_weight": 1.4,
    "n_neighbors": 20,
    "is_rooted": False,
    "is_mirrored": False,
    "weights": "equal",
    "hubs": "as they are",
}
TRIALS: dict[str, Settings] = {
    "Lite2, 288 pixels, last map": {},
    "Lite0": {"layers": ["deep-small"]},
    "224 pixels": {"longest_side": 224},
    "256 pixels": {"longest_side": 256},
    "320 pixels": {"longest_side": 320},
    "352 pixels": {"longest_side": 352},
    "stage 7": {"layers": ["deep@stage7"]},
    "last map and stage 7": {"layers": ["deep", "deep@stage7"]},
    "last map and stage 5 (stride 16)": {"layers": ["deep", "deep@stage5"]},
    "64 components": {"n_components": 64},
    "192 components": {"n_components": 192},
    "256 components": {"n_components": 256},
    "location weight 0": {"location_weight": 0.0},
    "location weight 0.5": {"location_weight": 0.5},
    "location weight 1": {"location_weight": 1.0},
    "k = 10": {"n_neighbors": 10},
    "k = 40": {"n_neighbors": 40},
    "square root of cells": {"is_rooted": True},
    "mirrored references": {"is_mirrored": True},
    "cells weighted by length": {"weights": "length"},
    "cells weighted toward the middle": {"weights": "middle"},
    "classes: mean score taken off": {"hubs": "class mean"},
    "cells: mean distance taken off": {"hubs": "cell mean"},
}
SETTINGS: Settings = {"datasets": ["caltech101", "caltech256"], "n_classes": 40, "n_train": 15, "seed": 0}
SETTINGS["trials"] = {name: {"choice": BASE | changes} for name, changes in TRIALS.items()}
SETTINGS |= {"networks": ["deep-small", "deep"], "sides": [224, 256, 288, 320, 352]}
QUICK: Settings = {"datasets": ["caltech101"], "n_classes": 4, "n_train": 4}
QUICK["trials"] = {name: SETTINGS["trials"][name] for name in list(TRIALS)[:2]}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """What one trial gives on one set."""
    choice = settings["choice"]
    images = training_images(lab, settings)
    classes, truth = np.unique(images.labels, return_inverse=True)
    cells = cells_of(lab, images.paths, choice)
    mirrored = cells_of(lab, images.paths, choice, mirror=True) if choice["is_mirrored"] else None
    found = {"local-nbnn": matched(cells, mirrored, truth, choice), "head": pooled(cells, mirrored, truth)}
    chosen = {name: log_probabilities(scores, truth) for name, scores in found.items()}
    chosen["both"] = log_probabilities(sum(chosen.values()), truth)
    result = {name: [accuracy(rows, truth), loss(rows, truth)] for name, rows in chosen.items()}
    return result | {"n_images": len(truth), "n_classes_used": len(classes)}


def training_images(lab: Lab, settings: Settings) -> LabeledImages:
    """The training images of one split, of classes spread evenly over those of the set."""
    data = find_images(settings["dataset"], None, lab.runs, quick=lab.dataset.endswith("-quick"))
    names = sorted(set(data.labels))
    chosen = names[:: max(1, len(names) // settings["n_classes"])][: settings["n_classes"]]
    own = Lab(settings["dataset"], of_classes(data, chosen), lab.runs)
    return own.split_of(settings | {"n_test": 1})[0]


def cells_of(lab: Lab, paths: Any, choice: Settings, *, mirror: bool = False) -> list[ImageFeatures]:
    """The cells of each image, of all layers; those of finer layers averaged over the cells of the first."""
    made = [make_descriptor(name, {"longest_side": choice["longest_side"]}) for name in choice["layers"]]
    layers = []
    for descriptor in made:
        if mirror:
            pictures = (descriptor.decode(read_bytes(path))[:, ::-1] for path in paths)
            layers.append([descriptor.extract(picture) for picture in pictures])
        else:
            layers.append(lab.ask(partial(features_of, descriptor=descriptor, store=lab.store), paths))
    return [joined(parts, choice["is_rooted"]) for parts in zip(*layers, strict=True)]


def joined(parts: tuple[ImageFeatures, ...], is_rooted: bool) -> ImageFeatures:
    """One image's layers side by side, each scaled to cells of mean length 1 if there are several."""
    first = parts[0]
    columns, rows = (round(side / float(first.scale[0])) for side in first.size)
    arrays = []
    for part in parts:
        factor = round(float(first.scale[0] / part.scale[0]))
        grid = part.descriptors.astype(np.float32).reshape(rows, factor, columns, factor, -1)
        values = grid.mean(axis=(1, 3)).reshape(rows * columns, -1)
        values = np.sqrt(np.maximum(values, 0)) if is_rooted else values
        length = np.linalg.norm(values, axis=1).mean() if len(parts) > 1 else 1.0
        arrays.append(values / max(float(length), 1e-9))
    return ImageFeatures(np.concatenate(arrays, axis=1), first.xy, first.scale, first.size)


# ---- scores, each image left out ------------------------------------------------------------------------------------


def matched(
    cells: list[ImageFeatures], mirrored: list[ImageFeatures] | None, truth: NDArray[Any], choice: Settings
) -> NDArray[Any]:
    """Of Local NBNN, the mean over an image's cells."""
    normalizer = Normalization(choice["n_components"], 0.0).learn(cells)

    def vectors(images: list[ImageFeatures]) -> Rows:
        return [append_location(normalizer.apply(image), choice["location_weight"]) for image in images]

    queries, copies = vectors(cells), vectors(mirrored or [])
    references = [np.concatenate(pair) for pair in zip(queries, copies, strict=True)] if mirrored else queries
    index = make_index("faiss", {"form": "flat"})
    for number, rows in enumerate(references):
        index.add(rows, np.array(ids_of_image(number, len(rows)), np.int64))
    index.build()
    k, n_classes = choice["n_neighbors"], int(truth.max()) + 1
    n_found = 4 * k if choice["hubs"] == "cell mean" else k + 1
    found = neighbors(index, queries, n_found, max(map(len, references)))
    if choice["hubs"] == "cell mean":
        found = rescaled(found, k)
    totals = []
    for features, (distances, ids) in zip(cells, found, strict=True):
        labels = np.where(ids < 0, -1, truth[np.maximum(image_of_id(ids), 0)])
        updates = local_nbnn_updates(distances, labels, k)
        weights = WEIGHTS[choice["weights"]](normalizer.project(features.descriptors), features.xy)
        scores = np.zeros(n_classes)
        places = updates.labels >= 0
        np.subtract.at(scores, updates.labels[places], (updates.values * weights[:, None])[places])
        totals.append(scores / weights.sum())
    scores = np.stack(totals)
    return without_class_means(scores, truth) if choice["hubs"] == "class mean" else scores


def neighbors(index: Any, queries: Rows, n: int, n_own: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """The n nearest cells of other images for the cells of each: searched together, which FAISS does faster."""
    found = []
    for first in range(0, len(queries), 64):
        some = queries[first : first + 64]
        distances, ids = index.search(np.concatenate(some), n + n_own)
        asking = np.repeat(np.arange(first, first + len(some)), list(map(len, some)))
        order = np.argsort(image_of_id(ids) == asking[:, None], axis=1, kind="stable")[:, :n]
        ends = np.cumsum(list(map(len, some)))[:-1]
        nearest = (np.split(np.take_along_axis(array, order, 1), ends) for array in (distances, ids))
        found += zip(*nearest, strict=True)
    return found


WEIGHTS: dict[str, Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]] = {
    "equal": lambda cells, xy: np.ones(len(cells)),
    "length": lambda cells, xy: np.linalg.norm(cells, axis=1),
    "middle": lambda cells, xy: np.exp(-((xy - 0.5) ** 2).sum(axis=1) / (2 * 0.35**2)),
}


def rescaled(found: list[tuple[NDArray[Any], NDArray[Any]]], k: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Distances less half the mean distance of the reference cell to its own k nearest, sorted again (as CSLS does)."""
    mean = [distances[:, :k].mean(axis=1) for distances, _ in found]
    starts = np.cumsum([0, *map(len, mean)])
    every = np.concatenate(mean)
    result = []
    for distances, ids in found:
        images = image_of_id(ids)
        cell = ids - np.array([ids_of_image(int(n), 1).start for n in images.ravel()]).reshape(ids.shape)
        less = distances - 0.5 * every[starts[images] + cell]
        order = np.argsort(less, axis=1, kind="stable")[:, : k + 1]
        result.append((np.take_along_axis(less, order, 1), np.take_along_axis(ids, order, 1)))
    return result


def without_class_means(scores: NDArray[Any], truth: NDArray[Any]) -> NDArray[Any]:
    """Scores less what images of other classes, the image itself left out, give the class on average."""
    other = truth[:, None] != np.arange(scores.shape[1])
    sums, counts = (scores * other).sum(axis=0), other.sum(axis=0)
    return scores - (sums - scores * other) / (counts - other)


def pooled(cells: list[ImageFeatures], mirrored: list[ImageFeatures] | None, truth: NDArray[Any]) -> NDArray[Any]:
    """Of least squares on the mean of an image's cells, centered, of unit length; the penalty has the least error."""
    n = len(cells)
    rows = np.stack([image.descriptors.mean(axis=0, dtype=np.float64) for image in [*cells, *(mirrored or [])]])
    rows -= rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    targets = np.eye(int(truth.max()) + 1)[np.resize(truth, len(rows))]
    targets -= targets.mean(axis=0)
    found = [left_out(rows, targets, penalty, n) for penalty in (0.03, 0.1, 0.3, 1.0, 3.0)]
    return min(found, key=lambda answers: ((targets[:n] - answers) ** 2).sum())


def left_out(rows: NDArray[Any], targets: NDArray[Any], penalty: float, n: int) -> NDArray[Any]:
    """What least squares answers to the first n rows, each left out in turn, together with the rows n, 2n ... on."""
    inverse = np.linalg.inv(rows @ rows.T + penalty * np.eye(len(rows)))
    weights = inverse @ targets
    own = [np.arange(image, len(rows), n) for image in range(n)]
    errors = [np.linalg.solve(inverse[np.ix_(some, some)], weights[some])[0] for some in own]
    return targets[:n] - np.stack(errors)


def log_probabilities(scores: Any, truth: NDArray[Any]) -> NDArray[Any]:
    """At the temperature with the least log-loss."""
    unit = scores / np.std(scores)
    return min(
        (log_softmax(unit * factor, axis=1) for factor in np.geomspace(0.1, 100, 61)), key=lambda p: loss(p, truth)
    )


def loss(log_proba: NDArray[Any], truth: NDArray[Any]) -> float:
    return round(-float(log_proba[np.arange(len(truth)), truth].mean()), 4)


# ---- record ---------------------------------------------------------------------------------------------------------


def network_time(lab: Lab, settings: Settings) -> Outcome:
    """CPU milliseconds from a picture of 3 x 2 to its cells, on one thread: the least of several runs."""
    descriptor = make_descriptor(settings["network"], {"longest_side": settings["side"]})
    picture = np.random.default_rng(0).integers(0, 256, (200, 300, 3), np.uint8)
    return {"cpu_ms": round(1000 * min(cpu_seconds(20, descriptor.extract, picture)), 1)}


def plan(settings: Settings) -> list[Part]:
    trials = {key: value for key, value in settings.items() if key not in ("networks", "sides")}
    timing = {key: settings[key] for key in ("networks", "sides")}
    parts = parts_over("deep-choice", compute, datasets="dataset", trials="trial")(trials)
    return parts + parts_over("network-time", network_time, timed=True, networks="network", sides="side")(timing)


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    trials: Settings = {}
    times: Settings = {}
    for part, outcome in outcomes:
        if part.kind.startswith("network-time"):
            times.setdefault(part.settings["network"], {})[str(part.settings["side"])] = outcome["cpu_ms"]
        else:
            trials.setdefault(part.settings["trial"], {})[part.settings["dataset"]] = values_of(outcome)
    return {"trials": trials, "cpu_ms": times}


def tabulate(results: Results) -> str:
    sets = {"caltech101": "Caltech 101", "caltech256": "Caltech 256"}
    used = [name for name in sets if name in next(iter(results["trials"].values()))]
    header = ["trial", *(f"{sets[name]}, {what}" for name in used for what in COLUMNS.values())]
    rows = []
    for trial, found in results["trials"].items():
        cells = [found[name][column] for name in used for column in COLUMNS]
        rows.append([trial, *(f"{right:.1f} ({nats:.3f})" for right, nats in cells)])
    sides = list(next(iter(results["cpu_ms"].values())))
    times = [[name, *(f"{found[side]:.1f}" for side in sides)] for name, found in results["cpu_ms"].items()]
    return table(" | ".join(header), rows) + "\n" + table(" | ".join(["CPU ms, long side", *sides]), times)


COLUMNS = {"local-nbnn": "cells", "head": "mean", "both": "both"}
EXPERIMENT = benchmark(globals(), dataset="")

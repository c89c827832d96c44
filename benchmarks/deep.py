"""Cells of a network through Local NBNN, beside the obvious ways to use the same network's pooled vector.

For each seeded split of Caltech 101: Local NBNN on the cells, SVMs on its responses, and the fusion of Local NBNN on
two layers with SVMs on pooled cells; and, on the mean of the same cells, nearest class mean, 5 nearest neighbors and
logistic regression. Writes results/deep-<images>.json. What is fused was chosen among some 25 combinations by
leave-one-out scores of the training images of splits 0 and 1, in trials without a record; size, components, location
weight, k and the penalty of the regression on training images of split 0. Training images of one split are among the
test images of others. benchmarks/deep_choice.py repeats the main comparisons with a record.

    python benchmarks/deep.py --train 15
    python benchmarks/deep.py --train 30
    python benchmarks/deep.py --train 15 --methods fused     # a record of its own: results/deep-fused-15.json
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Recipe, full, make, run, table, values_of
from sklearn.linear_model import LogisticRegression

from lnbnn.data.folder import LabelledImages
from lnbnn.descriptors import make_descriptor
from lnbnn.lab import Experiment, Lab, Part, inside
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.parts import accuracy, truth_of
from lnbnn.lab.records import RunRecord
from lnbnn.presets import preset_params
from lnbnn.reading.extraction import features_of

DEEP = preset_params("deep")
FUSED: Recipe = {  # Local NBNN on two layers, of which one sees a larger picture, and SVMs on the pooled last one
    "cells": ["local-nbnn", DEEP],
    "finer": ["local-nbnn", DEEP | {"descriptor": "deep@stage6", "descriptor_params": {"longest_side": 384}}],
    "pooled": ["pooled-svm", {"descriptor": "deep"}],
}
METHODS: dict[str, tuple[str, Recipe]] = {  # what is run on each split: its name in the table, and how it is made
    "cells": ("local-nbnn", ["local-nbnn", DEEP]),
    "fused": ("local-nbnn on two layers, pooled-svm, fused", FUSED),
    "kernel": ("local-nbnn-kernel", ["local-nbnn-kernel", DEEP]),
    "pooled": ("pooled", None),
}
SETTINGS: Settings = {
    "n_train": 15,
    "n_test": 15,
    "seeds": [0, 1, 2, 3, 4],
    "methods": list(METHODS),
    "inverse_penalty": 100.0,  # of logistic regression
    "n_timed": 40,
}
QUICK: Settings = {"n_train": 3, "n_test": 2, "seeds": [0], "n_timed": 2}


def plan(settings: Settings) -> list[Part]:
    """One part per method and split."""
    own = {key: settings[key] for key in ("n_train", "n_test")}
    parts = []
    for name in settings["methods"]:
        for seed in settings["seeds"]:
            if name == "pooled":
                how = {"descriptor": "deep", "inverse_penalty": settings["inverse_penalty"]}
                parts.append(Part("deep pooled", own | {"seed": seed} | how, pooled))
            else:
                how = {"recipe": full(METHODS[name][1]), "n_timed": settings["n_timed"]}
                parts.append(Part(f"deep {name}", own | {"seed": seed} | how, compute, timed=True))
    return parts


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Fit and evaluate: scores, times with the features at hand, and CPU time from file to answer."""
    train, test = lab.split_of(settings)
    classifier = make(settings["recipe"])
    start = np.array([time.perf_counter(), time.process_time()])
    classifier.fit(train.paths, train.labels, store=lab.store, progress=lab.progress)
    middle = np.array([time.perf_counter(), time.process_time()])
    scores = classifier.decision_function(test.paths, store=lab.store)
    end = np.array([time.perf_counter(), time.process_time()])
    times = {"fit": middle - start, "evaluate": end - middle}
    is_cells = settings["recipe"] == full(METHODS["cells"][1])
    paths = list(test.paths[:: max(1, len(test) // settings["n_timed"])][: settings["n_timed"]])
    return {
        "accuracy": accuracy(scores, truth_of(classifier, test)),
        "with_cached_features": {
            name: dict(zip(("wall", "cpu"), np.round(spent, 1).tolist(), strict=True)) for name, spent in times.items()
        },
        "described": classifier.describe(),
        "settings": classifier.plain_params(),
        "cpu_ms_an_image": cpu_times(classifier, paths) if is_cells else {"all": cpu_of_answers(classifier, paths)},
        **({"n_descriptors": len(classifier.index_)} if is_cells else {}),
    }


def cpu_times(classifier: Any, paths: list[str]) -> dict[str, float]:
    """CPU time of one image, one at a time: network and all, and of the search alone."""
    features_of(paths[0], classifier.descriptor_)
    start = time.process_time()
    features = [classifier.query_features(path) for path in paths]
    middle = time.process_time()
    for found in features:
        classifier.index_.search(inside.query_vectors(classifier, found), classifier.n_neighbors + 1)
    searched = time.process_time()
    classifier.set_params(n_jobs=1).decision_function(features)
    end = time.process_time()
    spent = {"read and extract": middle - start, "search": searched - middle, "all": middle - start + end - searched}
    return {name: round(1000 * seconds / len(paths), 2) for name, seconds in spent.items()}


def cpu_of_answers(classifier: Any, paths: list[str]) -> float:
    """CPU time of one image in ms, from file to answer, network and all."""
    classifier.decision_function(paths[:1])
    start = time.process_time()
    classifier.set_params(n_jobs=1).decision_function(paths)
    return round((time.process_time() - start) / len(paths) * 1000, 2)


def pooled(lab: Lab, settings: Settings) -> Outcome:
    """Plain methods on the mean of the cells."""
    split = lab.split_of(settings)
    classes = sorted(set(split[0].labels))
    known, truth = (np.searchsorted(classes, images.labels) for images in split)
    means = [pool(images, lab) for images in split]
    scores = pooled_scores(means[0], known, means[1], settings["inverse_penalty"])
    return {"accuracy": {name: accuracy(found, truth) for name, found in scores.items()}}


def pool(images: LabelledImages, lab: Lab) -> np.ndarray:
    """The mean of the cells of each image: what the network's own classifier is given."""
    descriptor = make_descriptor("deep")
    cells = [features_of(path, descriptor, lab.store).descriptors for path in images.paths]
    return np.array([of_image.mean(axis=0, dtype=np.float64) for of_image in cells])


def pooled_scores(train: np.ndarray, labels: np.ndarray, test: np.ndarray, penalty: float) -> dict[str, np.ndarray]:
    """Scores by three plain methods on pooled vectors, centered on the training images and of unit length."""
    center = train.mean(axis=0)
    train, test = (part - center for part in (train, test))
    train, test = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (train, test))
    n_classes = labels.max() + 1
    means = np.array([train[labels == label].mean(axis=0) for label in range(n_classes)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    similar = test @ train.T
    nearest = np.argsort(-similar, axis=1)[:, :5]
    votes = np.zeros((len(test), n_classes))
    for row, places in enumerate(nearest):
        np.add.at(votes[row], labels[places], 1.0 + 1e-3 * similar[row, places])  # of equal votes the nearer
    regression = LogisticRegression(C=penalty, max_iter=200)
    return {
        "pooled, nearest class mean": test @ means.T,
        "pooled, 5 nearest neighbours": votes,
        "pooled, logistic regression": regression.fit(train, labels).decision_function(test),
    }


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """By split: the accuracy of each row of the table, and what else each method said."""
    splits: dict[int, dict[str, Any]] = {}
    for part, outcome in outcomes:
        name, found = part.kind.removeprefix("deep "), values_of(outcome)
        split = splits.setdefault(part.settings["seed"], {"seed": part.settings["seed"], "accuracy": {}, "parts": {}})
        share = found.pop("accuracy")
        split["accuracy"] |= share if isinstance(share, dict) else {METHODS[name][0]: share}
        split["parts"][name] = found | {"seconds": round(float(outcome["seconds"]), 1)}
    names = dict.fromkeys(row for split in splits.values() for row in split["accuracy"])
    rows = {row: [split["accuracy"][row] for split in splits.values() if row in split["accuracy"]] for row in names}
    spreads = {row: statistics.stdev(values) if len(values) > 1 else None for row, values in rows.items()}
    return {
        "accuracy_mean": {row: round(statistics.mean(values), 2) for row, values in rows.items()},
        "accuracy_sd": {row: None if spread is None else round(spread, 2) for row, spread in spreads.items()},
        "splits": list(splits.values()),
    }


def tabulate(results: dict[str, Any]) -> str:
    """One row per method."""
    return table("on EfficientNet-Lite0 | accuracy, %", [[name, cell] for name, cell in _cells(results).items()])


def _cells(results: dict[str, Any]) -> dict[str, str]:
    spreads = results["accuracy_sd"]
    means = results["accuracy_mean"].items()
    return {row: f"{mean:.1f}" if spreads[row] is None else f"{mean:.1f} ± {spreads[row]:.1f}" for row, mean in means}


def render(read: Callable[[str], RunRecord | None]) -> str:
    """The table of the docs: records of all methods and of one, with 15 and with 30 images."""
    columns: dict[int, dict[str, str]] = {}
    times, n_splits = [], set()
    for n_images in (15, 30):
        for part in ("", "fused-", "kernel-"):
            record = read(f"deep-{part}{n_images}")
            if record is not None:
                columns[n_images] = columns.get(n_images, {}) | _cells(record.results)
                splits = record.results["splits"]
                n_splits.add(len(splits))
                times += [split.get("parts", {}).get("cells", split)["cpu_ms_an_image"] for split in splits if not part]
    if not times:
        return ""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [[name, *(column.get(name, "") for column in columns.values())] for name in names]
    whole, search = (statistics.median(time[part] for time in times) for part in ("all", "search"))
    return table(" | ".join(["on EfficientNet-Lite0", *(f"{n} images" for n in columns)]), rows) + (
        f"\nCaltech 101, mean per-class accuracy in %, {' or '.join(map(str, sorted(n_splits)))} splits, up to 15 test "
        f"images a class. With local-nbnn an image takes {whole:.0f} ms of CPU time, file and network included, "
        f"{search:.1f} ms of them to search.\n"
    )


def label(settings: Settings) -> str:
    """All methods are one record; fewer have one of their own."""
    names = settings["methods"] if len(settings["methods"]) < len(METHODS) else []
    return "-".join(["deep", *names, str(settings["n_train"])])


TITLE = "Local NBNN on the cells of a network, beside its pooled vector"
EXPERIMENT = Experiment("deep", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, label=label)

if __name__ == "__main__":
    run(EXPERIMENT)

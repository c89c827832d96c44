"""Cells of a network through Local NBNN, beside the obvious ways to use the same network's pooled vector.

For each seeded split: Local NBNN on the cells, and, on the mean of the same cells, nearest class mean, 5 nearest
neighbors and logistic regression. Writes results/deep-<images>.json. ``--methods``: SVMs on the responses of Local
NBNN (kernel), and the fusion of Local NBNN on two layers with SVMs on pooled cells (fused). What is fused was chosen
among some 25 combinations by leave-one-out scores of the training images of splits 0 and 1, in trials without a
record; size, components, location weight, k and the penalty of the regression on training images of split 0. Training
images of one split are among the test images of others. benchmarks/deep_choice.py repeats the main comparisons with a
record.

    python benchmarks/deep.py --train 15 --methods fused     # a record of its own: results/deep-fused-15.json
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from common import benchmark, full, make, parts_over, respelled, table, values_of, watch
from sklearn.linear_model import LogisticRegression

from lnbnn.descriptors import make_descriptor
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.lab.parts import accuracy, truth_of
from lnbnn.params import preset_params
from lnbnn.reading.extraction import features_of

NETWORK = "EfficientNet-Lite2"
FORMER_NETWORK = "EfficientNet-Lite0"  # of records that do not say which
DEEP = preset_params("deep")
FUSED: Settings = {  # Local NBNN on two layers, of which one sees a larger picture, and SVMs on the pooled last one
    "cells": ["local-nbnn", DEEP],
    "finer": ["local-nbnn", DEEP | {"descriptor": "deep@stage6", "descriptor_params": {"longest_side": 384}}],
    "pooled": ["pooled-svm", {"descriptor": "deep"}],
}
METHODS: dict[str, tuple[str, Any]] = {  # what is run on each split: its name in the table, and its recipe
    "cells": ("local-nbnn", FUSED["cells"]),
    "fused": ("local-nbnn on two layers, pooled-svm, fused", FUSED),
    "kernel": ("local-nbnn-kernel", ["local-nbnn-kernel", DEEP]),
    "pooled": ("pooled", None),
}
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seeds": [0, 1, 2, 3, 4], "methods": ["cells", "pooled"]}
SETTINGS |= {"inverse_penalty": 100.0, "n_timed": 40}
QUICK: Settings = {"n_train": 3, "n_test": 2, "seeds": [0], "n_timed": 2}


def plan(settings: Settings) -> list[Part]:
    parts = []
    for name in settings["methods"]:
        own = {key: settings[key] for key in ("n_train", "n_test", "seeds")} | {"method": name}
        if name == "pooled":
            own |= {"descriptor": "deep", "inverse_penalty": settings["inverse_penalty"]}
            parts += parts_over("deep pooled", pooled, seeds="seed")(own)
        else:
            own |= {"recipe": full(METHODS[name][1]), "n_timed": settings["n_timed"]}
            parts += parts_over(f"deep {name}", compute, timed=True, seeds="seed")(own)
    return parts


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Fit and evaluate: accuracy, times with cached features, and CPU time from file to answer."""
    train, test = lab.split_of(settings)
    classifier = make(settings["recipe"])
    with watch() as fit:
        classifier.fit(train.paths, train.labels, store=lab.store, progress=lab.progress)
    with watch() as evaluate:
        scores = classifier.decision_function(test.paths, store=lab.store)
    paths = list(test.paths[:: max(1, len(test) // settings["n_timed"])][: settings["n_timed"]])
    times = {"fit": fit, "evaluate": evaluate}
    return {
        "accuracy": accuracy(scores, truth_of(classifier, test)),
        "with_cached_features": {n: {"wall": round(t.wall_s, 1), "cpu": round(t.cpu_s, 1)} for n, t in times.items()},
        "described": classifier.describe(),
        "settings": classifier.plain_params(),
        "cpu_ms_an_image": cpu_times(classifier, paths, by_stage=settings["method"] == "cells"),
        **({"n_descriptors": len(classifier.index_)} if settings["method"] == "cells" else {}),
    }


def cpu_times(classifier: Any, paths: list[str], *, by_stage: bool) -> dict[str, float]:
    """CPU ms of one image, one at a time, network and all; if ``by_stage``, also of reading and of the search."""
    classifier.set_params(n_jobs=1).decision_function(paths[:1])
    with watch() as whole:
        classifier.decision_function(paths)
    spent = {"all": whole}
    if by_stage:
        with watch() as spent["read and extract"]:
            vectors = [classifier.query_vectors(path) for path in paths]
        with watch() as spent["search"]:
            for asked in vectors:
                classifier.index_.search(asked, classifier.n_neighbors + 1)
    return {name: round(1000 * one.cpu_s / len(paths), 2) for name, one in spent.items()}


def pooled(lab: Lab, settings: Settings) -> Outcome:
    """Plain methods on the mean of the cells, centered on the training images and of unit length."""
    split, descriptor = lab.split_of(settings), make_descriptor(settings["descriptor"])
    classes = sorted(set(split[0].labels))
    labels, truth = (np.searchsorted(classes, images.labels) for images in split)
    cells = [[features_of(path, descriptor, lab.store).descriptors for path in images.paths] for images in split]
    known, asked = (np.array([one.mean(axis=0, dtype=np.float64) for one in images]) for images in cells)
    train, test = (part - known.mean(axis=0) for part in (known, asked))
    train, test = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (train, test))
    means = np.array([train[labels == label].mean(axis=0) for label in range(len(classes))])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    similar = test @ train.T
    votes = np.zeros((len(test), len(classes)))
    for row, places in enumerate(np.argsort(-similar, axis=1)[:, :5]):
        np.add.at(votes[row], labels[places], 1.0 + 1e-3 * similar[row, places])  # of equal votes the nearer
    regression = LogisticRegression(C=settings["inverse_penalty"], max_iter=200).fit(train, labels)
    scores = {
        "pooled, nearest class mean": test @ means.T,
        "pooled, 5 nearest neighbors": votes,
        "pooled, logistic regression": regression.decision_function(test),
    }
    return {"accuracy": {name: accuracy(found, truth) for name, found in scores.items()}}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By split: the accuracy of each row of the table, and what else each method said."""
    splits: dict[int, dict[str, Any]] = {}
    for part, outcome in outcomes:
        name, seed, found = part.settings["method"], part.settings["seed"], values_of(outcome)
        split = splits.setdefault(seed, {"seed": seed, "accuracy": {}, "parts": {}})
        share = found.pop("accuracy")
        split["accuracy"] |= share if isinstance(share, dict) else {METHODS[name][0]: share}
        split["parts"][name] = found | {"seconds": round(float(outcome["seconds"]), 1)}
    names = dict.fromkeys(row for split in splits.values() for row in split["accuracy"])
    rows = {row: [split["accuracy"][row] for split in splits.values() if row in split["accuracy"]] for row in names}
    return {
        "accuracy_mean": {row: round(statistics.mean(of), 2) for row, of in rows.items()},
        "accuracy_sd": {row: round(statistics.stdev(of), 2) if len(of) > 1 else None for row, of in rows.items()},
        "splits": list(splits.values()),
        "network": NETWORK,
    }


def tabulate(results: Results) -> str:
    rows = [[name, cell] for name, cell in _cells(results).items()]
    return table(f"on {results.get('network', FORMER_NETWORK)} | accuracy, %", rows)


def _cells(results: Results) -> dict[str, str]:
    spreads = results["accuracy_sd"]
    means = results["accuracy_mean"].items()
    return {
        respelled(row): f"{mean:.1f}" if spreads[row] is None else f"{mean:.1f} ± {spreads[row]:.1f}"
        for row, mean in means
    }


def render(read: Callable[[str], Any]) -> str:
    """The table of the docs: records of all methods and of one, with 15 and with 30 images."""
    columns: dict[int, dict[str, str]] = {}
    times, n_splits, networks = [], set(), set()
    for n_images in (15, 30):
        for part in ("", "fused-", "kernel-"):
            if (record := read(f"deep-{part}{n_images}")) is not None:
                columns[n_images] = columns.get(n_images, {}) | _cells(record.results)
                splits = record.results["splits"]
                n_splits.add(len(splits))
                networks.add(record.results.get("network", FORMER_NETWORK))
                times += [split.get("parts", {}).get("cells", split)["cpu_ms_an_image"] for split in splits if not part]
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [[name, *(column.get(name, "") for column in columns.values())] for name in names]
    whole, search = (statistics.median(time[part] for time in times) for part in ("all", "search"))
    return table(" | ".join([f"on {' or '.join(sorted(networks))}", *(f"{n} images" for n in columns)]), rows) + (
        f"\nCaltech 101, mean per-class accuracy in %, {' or '.join(map(str, sorted(n_splits)))} splits, up to 15 test "
        f"images per class. With local-nbnn an image takes {whole:.0f} ms of CPU time, file and network included, "
        f"{search:.1f} ms of them to search.\n"
    )


def label(settings: Settings) -> str:
    names = settings["methods"] if settings["methods"] != SETTINGS["methods"] else []
    return "-".join(["deep", *names, str(settings["n_train"])])


EXPERIMENT = benchmark(globals())

"""Unequal classes on purpose: Caltech 101 with 5 training images in half of the classes and 25 in the rest.

Each seed chooses classes and images; each choice is run twice, so that every class is once small and once large.

    python benchmarks/unequal.py --seeds 0 1

The defaults of nbnn-affine are chosen by benchmarks/unequal_choice.py, or:

    python benchmarks/unequal.py --choose
"""

from __future__ import annotations

import sys
from collections import Counter
from statistics import mean
from typing import Any

import numpy as np
from common import full, make, mean_of, run, table, values_of

from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.lab import of_classes
from lnbnn.trust.evaluation import evaluate

MODEL: Settings = {
    "descriptor_params": {"bin_sizes": [8, 16], "step_px": 10},
    "index_params": {"n_probes": 4},
    "query_budget": 100,
}
METHODS = {
    "nbnn": ["nbnn", MODEL],
    "nbnn-affine": ["nbnn-affine", MODEL],
    "local-nbnn": ["local-nbnn", MODEL],
    "local-nbnn, normalize_classes": ["local-nbnn", MODEL | {"normalize_classes": True}],
}
SIZES: Settings = {"n_classes": 20, "n_train_small": 5, "n_train_large": 25, "n_test": 15}
SETTINGS: Settings = {**SIZES, "seeds": [0, 1], "methods": METHODS}
SMALL: Settings = {"n_classes": 2, "n_train_small": 3, "n_train_large": 6, "n_test": 4}
QUICK: Settings = {**SMALL, "seeds": [0], "methods": {name: METHODS[name] for name in ("nbnn", "local-nbnn")}}
MEASURES = ("accuracy", "accuracy_small", "accuracy_large", "answers_large")


def plan(settings: Settings) -> list[Part]:
    """Two parts per seed."""
    own = {key: settings[key] for key in SIZES} | {"methods": full(settings["methods"])}
    return [
        Part("unequal", own | {"seed": seed, "swapped": swapped}, compute)
        for seed in settings["seeds"]
        for swapped in (False, True)
    ]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """One choice of classes and images, one choice of which are small; percentages per method."""
    chosen = classes_of(lab.data, settings)
    halves = [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
    small, large = reversed(halves) if settings["swapped"] else halves
    parts = []
    for labels, size in ((small, "n_train_small"), (large, "n_train_large")):
        how = {"n_train": settings[size], "n_test": settings["n_test"], "seed": settings["seed"]}
        parts.append(split_images(of_classes(lab.data, labels), **how))
    (train, test) = (_joined(*sides) for sides in zip(*parts, strict=True))
    result: Outcome = {"seed": settings["seed"], "small": sorted(small), "large": sorted(large)}
    for name, recipe in settings["methods"].items():
        classifier = make(recipe).fit(train.paths, train.labels, store=lab.store)
        outcome = evaluate(classifier, test.paths, test.labels, store=lab.store, progress=lab.progress)
        answers = dict(zip(outcome.answers, outcome.confusion.sum(axis=0).tolist(), strict=True))
        result[name] = {
            "accuracy": round(100 * outcome.mean_per_class_accuracy, 2),
            "accuracy_small": round(100 * mean(outcome.per_class[label] for label in small), 2),
            "accuracy_large": round(100 * mean(outcome.per_class[label] for label in large), 2),
            "answers_large": round(100 * sum(answers[label] for label in large) / outcome.n_images, 2),
        }
    return result


def _joined(first: LabelledImages, second: LabelledImages) -> LabelledImages:
    return LabelledImages(first.paths + second.paths, first.labels + second.labels)


def large_enough(data: LabelledImages, settings: Settings) -> list[str]:
    """The classes with images enough to be large ones."""
    least = settings["n_train_large"] + settings["n_test"]
    return sorted(label for label, n in Counter(data.labels).items() if n >= least)


def classes_of(data: LabelledImages, settings: Settings) -> list[str]:
    """The classes that a seed draws."""
    order = np.random.default_rng(settings["seed"]).permutation(large_enough(data, settings))
    found: list[str] = order[: settings["n_classes"]].tolist()
    return found


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """The runs, and the mean of each measure."""
    runs = [values_of(found) for _, found in outcomes]
    return {**{name: mean_of([one[name] for one in runs], 2) for name in settings["methods"]}, "runs": runs}


def tabulate(results: dict[str, Any]) -> str:
    """Accuracy on small and large classes of each method."""
    methods = {name: row for name, row in results.items() if name != "runs"}
    rows = [[f"`{name}`", *(f"{row[measure]:.1f}" for measure in MEASURES)] for name, row in methods.items()]
    header = "method | all | small classes | large classes | answers to large"
    return table(header, rows) + f"\nMean of {len(results['runs'])} runs."


TITLE = "Classes of 5 and of 25 training images"
EXPERIMENT = Experiment("unequal", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, source=" {}\n")

if __name__ == "__main__":
    if "--choose" in sys.argv:
        from unequal_choice import EXPERIMENT as CHOICE

        run(CHOICE, [word for word in sys.argv[1:] if word != "--choose"])
    else:
        run(EXPERIMENT)

"""Unequal classes on purpose: Caltech 101 with 5 training images in half of the classes and 25 in the rest.

Each seed chooses classes and images; each choice is run twice, so that every class is once small and once large.
The defaults of nbnn-affine are chosen by benchmarks/unequal_choice.py, which --choose runs.
"""

import sys
from collections import Counter
from statistics import mean

import numpy as np
from common import benchmark, make, mean_of, parts_over, run, table, values_of

from lnbnn.data.folder import LabeledImages
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.trust.evaluation import evaluate

GRID = {"bin_sizes": [8, 16], "step_px": 10}
MODEL: Settings = {"descriptor_params": GRID, "index_params": {"n_probes": 4}, "query_budget": 100}
METHODS = {name: [name, MODEL] for name in ("nbnn", "nbnn-affine", "local-nbnn")}
SIZES: Settings = {"n_classes": 20, "n_train_small": 5, "n_train_large": 25, "n_test": 15}
SETTINGS: Settings = {**SIZES, "seeds": [0, 1], "swaps": [False, True], "methods": METHODS}
SMALL: Settings = {"n_classes": 2, "n_train_small": 3, "n_train_large": 6, "n_test": 4}
QUICK: Settings = {**SMALL, "seeds": [0], "methods": {name: METHODS[name] for name in ("nbnn", "local-nbnn")}}
MEASURES = ("accuracy", "accuracy_small", "accuracy_large", "answers_large")


def compute(lab: Lab, settings: Settings) -> Outcome:
    """One choice of classes and images, one choice of which are small; percentages per method."""
    chosen = classes_of(lab.data, settings)
    halves = [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
    small, large = reversed(halves) if settings["swapped"] else halves
    sizes = ((small, "n_train_small"), (large, "n_train_large"))
    parts = [lab.split_of(settings | {"n_train": settings[size]}, labels) for labels, size in sizes]
    train, test = (LabeledImages(a.paths + b.paths, a.labels + b.labels) for a, b in zip(*parts, strict=True))
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


def classes_of(data: LabeledImages, settings: Settings) -> list[str]:
    """The classes that a seed draws from those with images enough to be large ones."""
    least = settings["n_train_large"] + settings["n_test"]
    enough = sorted(label for label, n in Counter(data.labels).items() if n >= least)
    return np.random.default_rng(settings["seed"]).permutation(enough)[: settings["n_classes"]].tolist()


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    runs = [values_of(found) for _, found in outcomes]
    return {**{name: mean_of([one[name] for one in runs], 2) for name in settings["methods"]}, "runs": runs}


def tabulate(results: Results) -> str:
    methods = {name: row for name, row in results.items() if name != "runs"}
    rows = [[f"`{name}`", *(f"{row[measure]:.1f}" for measure in MEASURES)] for name, row in methods.items()]
    header = "method | all | small classes | large classes | answers to large"
    return table(header, rows) + f"\nMean of {len(results['runs'])} runs."


if __name__ == "__main__" and "--choose" in sys.argv:
    from unequal_choice import EXPERIMENT

    run(EXPERIMENT, [word for word in sys.argv[1:] if word != "--choose"])
else:
    EXPERIMENT = benchmark(
        globals(), plan=parts_over("unequal", compute, seeds="seed", swaps="swapped"), source=" {}\n"
    )

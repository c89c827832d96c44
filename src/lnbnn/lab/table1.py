"""Table 1: all increments of the log-odds against the positive ones only, on images of 128 pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from lnbnn.classifiers.nbnn import LogOddsNBNN
from lnbnn.lab.base import Arrays, Experiment, Part, markdown_table, mean_sd
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import accuracy, full_params, truth_of
from lnbnn.reading.extraction import features_of, map_in_order
from lnbnn.scoring import nbnn_updates

__all__ = ["EXPERIMENT"]

_FORMS = ("nbnn", "all", "positive")

SETTINGS: dict[str, Any] = {
    "n_train": 15,
    "n_test": 15,
    "seeds": [0, 1, 2],
    "params": {
        "descriptor_params": {"longest_side": 128, "bin_sizes": [4, 6, 9], "step_px": 3},
        "scale_weight": 0.0,
        "query_budget": 300,
        "index_params": {"form": "ivf-4bit", "n_lists": 64, "n_probes": 2},
    },
}
QUICK: dict[str, Any] = {
    "n_train": 4,
    "n_test": 4,
    "seeds": [0, 1],
    "params": {**SETTINGS["params"], "query_budget": 100, "index_params": None},
}
PAPER = {"all": ("101", "55.2 ± 0.97"), "positive": ("55.0", "55.6 ± 1.17")}


def plan(settings: dict[str, Any]) -> list[Part]:
    """One part a split."""
    own = {"n_train": settings["n_train"], "n_test": settings["n_test"]}
    own["params"] = full_params("nbnn-log-odds", settings["params"])
    return [Part("log-odds", own | {"seed": seed}, _compute(seed, settings)) for seed in settings["seeds"]]


def _compute(seed: int, settings: dict[str, Any]):  # type: ignore[no-untyped-def]
    def compute(lab: Lab) -> Arrays:
        """NBNN, all increments, and the positive ones, from the same searches."""
        train, test = lab.split(settings["n_train"], settings["n_test"], seed)
        classifier = LogOddsNBNN(**settings["params"], n_jobs=lab.n_jobs)
        classifier.fit(train.paths, train.labels, store=lab.store, progress=lab.progress)
        n_classes = len(classifier.classes_)

        def work(path: str) -> tuple[list[np.ndarray], list[float]]:
            distances = classifier.class_distances(features_of(path, classifier.descriptor_, lab.store))
            both = [classifier.increments(distances, positive_only=positive) for positive in (False, True)]
            totals = [nbnn_updates(distances).totals(n_classes), *(updates.totals(n_classes) for updates in both)]
            return totals, [updates.n_increments for updates in both]

        found = []
        for answer in map_in_order(work, test.paths, lab.n_jobs):
            found.append(answer)
            lab.progress("classifying", len(found), len(test))
        totals = np.array([entry[0] for entry in found], dtype=np.float32)
        return {
            "truth": truth_of(classifier, test),
            **{name: totals[:, place] for place, name in enumerate(_FORMS)},
            "increments": np.array([entry[1] for entry in found]).mean(axis=0),
        }

    return compute


def summarize(settings: dict[str, Any], outcomes: list[tuple[Part, Arrays]]) -> dict[str, Any]:
    """Accuracies of each split and the mean number of increments a descriptor."""
    results: dict[str, Any] = {
        "accuracy": {name: [accuracy(-arrays[name], arrays["truth"]) for _, arrays in outcomes] for name in _FORMS}
    }
    increments = np.mean([arrays["increments"] for _, arrays in outcomes], axis=0)
    results["increments"] = {"all": round(float(increments[0]), 1), "positive": round(float(increments[1]), 1)}
    agree = [np.mean(np.argmin(arrays["nbnn"], axis=1) == np.argmin(arrays["all"], axis=1)) for _, arrays in outcomes]
    results["all_increments_answer_as_nbnn"] = round(float(np.mean(agree)), 4)
    difference = np.subtract(results["accuracy"]["positive"], results["accuracy"]["all"])
    results["positive_less_all"] = round(float(difference.mean()), 2)
    return results


def tabulate(results: dict[str, Any]) -> str:
    """Two rows, as in the paper."""
    names = {"all": "full NBNN", "positive": "positive increments only"}
    return markdown_table(
        ["method", "increments a descriptor, ours", "the paper's", "accuracy, ours, %", "the paper's"],
        [
            [
                title,
                str(results["increments"][name]),
                PAPER[name][0],
                mean_sd(results["accuracy"][name]),
                PAPER[name][1],
            ]
            for name, title in names.items()
        ],
    )


EXPERIMENT = Experiment(
    name="table1",
    title="Full NBNN against positive increments only, images of 128 pixels",
    settings=SETTINGS,
    quick=QUICK,
    paper=PAPER,
    plan=plan,
    summarize=summarize,
    tabulate=tabulate,
)

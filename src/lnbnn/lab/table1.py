"""Table 1: all increments of the log-odds against the positive ones only, on images of 128 pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from lnbnn.lab.base import Experiment, Outcome, Outcomes, Part, Results, Settings, markdown_table, mean_sd
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import accuracy, full_params, truth_of
from lnbnn.reading.extraction import features_of
from lnbnn.scoring import nbnn_updates

__all__ = ["EXPERIMENT"]

_FORMS = ("nbnn", "all", "positive")

SETTINGS: Settings = {
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
QUICK: Settings = {"n_train": 4, "n_test": 4, "seeds": [0, 1]}
QUICK["params"] = {**SETTINGS["params"], "query_budget": 100, "index_params": None}
PAPER = {"all": ("101", "55.2 ± 0.97"), "positive": ("55.0", "55.6 ± 1.17")}


def plan(settings: Settings) -> list[Part]:
    """One part per split."""
    own = {"n_train": settings["n_train"], "n_test": settings["n_test"]}
    own["params"] = full_params("nbnn-log-odds", settings["params"])
    return [Part("log-odds", own | {"seed": seed}, compute) for seed in settings["seeds"]]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """NBNN, all increments, and the positive ones, from the same searches."""
    train, test = lab.split_of(settings)
    classifier = lab.fit("nbnn-log-odds", settings["params"], train)
    n_classes = len(classifier.classes_)

    def work(path: str) -> tuple[list[np.ndarray], list[float]]:
        distances = classifier.class_distances(features_of(path, classifier.descriptor_, lab.store))
        both = [classifier.increments(distances, positive_only=positive) for positive in (False, True)]
        totals = [nbnn_updates(distances).totals(n_classes), *(updates.totals(n_classes) for updates in both)]
        return totals, [updates.n_increments for updates in both]

    totals, increments = zip(*lab.ask(work, test.paths), strict=True)
    return {
        "truth": truth_of(classifier, test),
        **dict(zip(_FORMS, np.array(totals, dtype=np.float32).swapaxes(0, 1), strict=True)),
        "increments": np.array(increments).mean(axis=0),
    }


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """Accuracies of each split and the mean number of increments per descriptor."""
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


def tabulate(results: Results) -> str:
    """Two rows, as in the paper."""
    rows = []
    for name, title in (("all", "full NBNN"), ("positive", "positive increments only")):
        increments, share = PAPER[name]
        ours = mean_sd(results["accuracy"][name])
        rows.append([title, str(results["increments"][name]), increments, ours, share])
    header = ["method", "increments a descriptor, ours", "the paper's", "accuracy, ours, %", "the paper's"]
    return markdown_table(header, rows)


TITLE = "Full NBNN against positive increments only, images of 128 pixels"
EXPERIMENT = Experiment("table1", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, PAPER)

"""Probabilities on Caltech 101: how far they can be trusted, and what fusing two methods gains.

Local NBNN and the spatial pyramid with soft assignment on 20 classes, 15 training and 15 test images each. Temperatures
and weights come from the training images alone.

    python benchmarks/probabilities.py --seeds 0
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import full, make, mean_of, run, table, values_of

from lnbnn.data.splits import split_images
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.lab import of_classes
from lnbnn.lab.parts import accuracy, truth_of
from lnbnn.reading.extraction import features_of
from lnbnn.reading.location import UNIT_LENGTH
from lnbnn.trust.calibration import expected_calibration_error, fuse, log_probabilities, negative_log_likelihood

GRID = {"bin_sizes": [8, 16], "step_px": 10}
SETTINGS: Settings = {
    "n_classes": 20,
    "n_train": 15,
    "n_test": 15,
    "seeds": [0],
    "members": {
        "local-nbnn": ["local-nbnn", {"descriptor_params": GRID, "query_budget": 300}],
        "spm-soft": ["spm-soft", {"descriptor_params": GRID, "n_words": 256, "n_samples": 50_000}],
    },
}
QUICK: Settings = {
    "n_classes": 3,
    "n_train": 6,
    "n_test": 2,
    "members": SETTINGS["members"] | {"spm-soft": ["spm-soft", {"descriptor_params": GRID, "n_words": 32}]},
}
NAMES = {
    "local-nbnn, no temperature": "`local-nbnn`, totals between unit vectors as they are",
    "local-nbnn": "`local-nbnn`, calibrated",
    "spm-soft": "`spm-soft`, calibrated",
    "fusion": "fusion of the two",
}


def plan(settings: Settings) -> list[Part]:
    """One part per seed."""
    own = {key: settings[key] for key in ("n_classes", "n_train", "n_test")} | {"members": full(settings["members"])}
    return [Part("probabilities", own | {"seed": seed}, compute) for seed in settings["seeds"]]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Accuracy (%), negative log-likelihood and expected calibration error of each method and of their fusion."""
    order = np.random.default_rng(settings["seed"]).permutation(sorted(set(lab.data.labels)))
    data = of_classes(lab.data, order[: settings["n_classes"]].tolist())
    train, test = split_images(data, n_train=settings["n_train"], n_test=settings["n_test"], seed=settings["seed"])
    fusion = make(settings["members"]).fit(train.paths, train.labels, store=lab.store)
    features = [features_of(path, fusion.estimators_[0].descriptor_, lab.store) for path in test.paths]
    local = fusion.estimators_[0].decision_function(features)
    log_probas = {"local-nbnn, no temperature": log_probabilities(local, UNIT_LENGTH**2)}
    for name, member in zip(settings["members"], fusion.estimators_, strict=True):
        log_probas[name] = np.log(np.maximum(member.predict_proba(features), 1e-300))
    log_probas["fusion"] = fuse([log_probas[name] for name in settings["members"]], fusion.weights_)
    truth = truth_of(fusion, test)
    result: Outcome = {name: measures(log_proba, truth) for name, log_proba in log_probas.items()}
    return {**result, "weights": [round(float(weight), 3) for weight in fusion.weights_]}


def measures(log_proba: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """The three figures of one method."""
    return {
        "accuracy": accuracy(log_proba, truth),
        "negative_log_likelihood": round(negative_log_likelihood(log_proba, truth), 3),
        "expected_calibration_error": round(expected_calibration_error(np.exp(log_proba), truth), 3),
    }


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """The runs, and the mean of each figure."""
    runs = [values_of(found) for _, found in outcomes]
    return {**{name: mean_of([one[name] for one in runs], 3) for name in NAMES}, "runs": runs}


def tabulate(results: dict[str, Any]) -> str:
    """How honest the probabilities are, before and after calibration, and what a fusion gains."""
    rows = []
    for name, shown in NAMES.items():
        row = results[name]
        likelihood, error = row["negative_log_likelihood"], row["expected_calibration_error"]
        rows.append([shown, f"{row['accuracy']:.1f}", f"{likelihood:.2f}", f"{error:.3f}"])
    return table("method | accuracy, % | negative log-likelihood | expected calibration error", rows)


TITLE = "How far probabilities can be trusted"
EXPERIMENT = Experiment("probabilities", TITLE, SETTINGS, plan, summarize, tabulate, QUICK)

if __name__ == "__main__":
    run(EXPERIMENT)

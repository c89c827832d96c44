"""Probabilities on Caltech 101: how far they can be trusted, and what fusing two methods gains.

Local NBNN and the spatial pyramid with soft assignment on 20 classes, 15 training and 15 test images each. Temperatures
and weights come from the training images alone.
"""

import numpy as np
from common import benchmark, make, mean_of, parts_over, table, values_of

from lnbnn.features import UNIT_LENGTH
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.parts import accuracy, truth_of
from lnbnn.model.calibration import expected_calibration_error, fuse, log_probabilities, negative_log_likelihood
from lnbnn.reading.extraction import features_of

GRID = {"bin_sizes": [8, 16], "step_px": 10}
MEMBERS = {"local-nbnn": ["local-nbnn", {"descriptor_params": GRID, "query_budget": 300}]}
PYRAMID = {"descriptor_params": GRID, "n_words": 256, "n_samples": 50_000}
SETTINGS: Settings = {"n_classes": 20, "n_train": 15, "n_test": 15, "seeds": [0]}
SETTINGS["members"] = MEMBERS | {"spm-soft": ["spm-soft", PYRAMID]}
QUICK: Settings = {"n_classes": 3, "n_train": 6, "n_test": 2}
QUICK["members"] = MEMBERS | {"spm-soft": ["spm-soft", PYRAMID | {"n_words": 32}]}
NAMES = {
    "local-nbnn, no temperature": "`local-nbnn`, totals between unit vectors as they are",
    "local-nbnn": "`local-nbnn`, calibrated",
    "spm-soft": "`spm-soft`, calibrated",
    "fusion": "fusion of the two",
}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Accuracy (%), negative log-likelihood and expected calibration error of each method and of their fusion."""
    train, test = lab.split_of(settings, lab.shuffled_classes(settings["seed"])[: settings["n_classes"]])
    fusion = make(settings["members"]).fit(train.paths, train.labels, store=lab.store)
    features = [features_of(path, fusion.estimators_[0].descriptor_, lab.store) for path in test.paths]
    local = fusion.estimators_[0].decision_function(features)
    log_probas = {"local-nbnn, no temperature": log_probabilities(local, UNIT_LENGTH**2)}
    for name, member in zip(settings["members"], fusion.estimators_, strict=True):
        log_probas[name] = np.log(np.maximum(member.predict_proba(features), 1e-300))
    log_probas["fusion"] = fuse([log_probas[name] for name in settings["members"]], fusion.weights_)
    truth = truth_of(fusion, test)
    found: Outcome = {"weights": [round(float(weight), 3) for weight in fusion.weights_]}
    for name, log_proba in log_probas.items():
        found[name] = {
            "accuracy": accuracy(log_proba, truth),
            "negative_log_likelihood": round(negative_log_likelihood(log_proba, truth), 3),
            "expected_calibration_error": round(expected_calibration_error(np.exp(log_proba), truth), 3),
        }
    return found


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    runs = [values_of(found) for _, found in outcomes]
    return {**{name: mean_of([one[name] for one in runs], 3) for name in NAMES}, "runs": runs}


def tabulate(results: Results) -> str:
    rows = []
    for name, shown in NAMES.items():
        row = results[name]
        likelihood, error = row["negative_log_likelihood"], row["expected_calibration_error"]
        rows.append([shown, f"{row['accuracy']:.1f}", f"{likelihood:.2f}", f"{error:.3f}"])
    return table("method | accuracy, % | negative log-likelihood | expected calibration error", rows)


EXPERIMENT = benchmark(globals(), plan=parts_over("probabilities", compute, seeds="seed"))

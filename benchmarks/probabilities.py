"""Probabilities on Caltech 101: how far they can be trusted, and what fusing two methods gains.

Presets of Local NBNN on all classes, 15 training and 15 test images each: how often answers of each probability are
right. Local NBNN and the spatial pyramid with soft assignment on 20 classes. Calibrations and weights come from the
training images alone. Draws docs/images/probabilities.png.
"""

from typing import Any

import numpy as np
from common import benchmark, make, mean_of, parts_over, reliability_bins, table, values_of

from lnbnn.features import UNIT_LENGTH
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.lab.axes import BLUE, RED, new_plot
from lnbnn.lab.parts import accuracy, truth_of
from lnbnn.model.calibration import expected_calibration_error, fuse, log_probabilities, negative_log_likelihood
from lnbnn.reading.extraction import features_of

GRID = {"bin_sizes": [8, 16], "step_px": 10}
MEMBERS = {"local-nbnn": ["local-nbnn", {"descriptor_params": GRID, "query_budget": 300}]}
PYRAMID = {"descriptor_params": GRID, "n_words": 256, "n_samples": 50_000}
SETTINGS: Settings = {"n_classes": 20, "n_train": 15, "n_test": 15, "seeds": [0], "presets": ["balanced", "deep"]}
SETTINGS["members"] = MEMBERS | {"spm-soft": ["spm-soft", PYRAMID]}
QUICK: Settings = {"n_classes": 3, "n_train": 6, "n_test": 2, "presets": ["balanced"]}
QUICK["members"] = MEMBERS | {"spm-soft": ["spm-soft", PYRAMID | {"n_words": 32}]}
EDGES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.01]
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


def reliability(lab: Lab, settings: Settings) -> Outcome:
    """How sure the answers of a preset are and how often they are right, with the temperature alone and corrected."""
    train, test = lab.split_of(settings)
    store = lab.store_for(settings["params"])
    model = lab.fit("local-nbnn", settings["params"], train, keep_features=store is not None)
    model.calibrate(progress=lab.progress)
    rows = list(model.fitted().iter_scores(test.paths, store, log_proba=True))
    truth, calibration = truth_of(model, test), model.fitted().calibration
    scales = np.array([model.fitted().method.score_scale(len(model.fitted().features(p, store))) for p in test.paths])
    alone = calibration.log_softmax(np.stack([row[0] for row in rows]) / scales[:, None])
    found: Outcome = {"confidence": [round(value, 3) for value in calibration.confidence]}
    for name, log_proba in (("temperature", alone), ("corrected", np.stack([row[1] for row in rows]))):
        probabilities = np.exp(log_proba)
        sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
        found[name] = {
            "accuracy": accuracy(log_proba, truth),
            "negative_log_likelihood": round(negative_log_likelihood(log_proba, truth), 3),
            "expected_calibration_error": round(expected_calibration_error(probabilities, truth), 3),
            "bins": reliability_bins(sure, right, EDGES),
        }
    return found


def plan(settings: Settings) -> list[Part]:
    of_presets = {name: settings[name] for name in ("n_train", "n_test", "seeds", "presets")}
    of_members = {name: value for name, value in settings.items() if name != "presets"}
    parts = parts_over("reliability", reliability, presets="preset", seeds="seed")(of_presets)
    return parts + parts_over("probabilities", compute, seeds="seed")(of_members)


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    runs = [values_of(found) for part, found in outcomes if "preset" not in part.settings]
    methods = {name: mean_of([one[name] for one in runs], 3) for name in NAMES} if runs else {}
    presets = {
        f"{part.settings['preset']}, split {part.settings['seed']}": values_of(found)
        for part, found in outcomes
        if "preset" in part.settings
    }
    return {"methods": methods, "presets": presets, "runs": runs}


def tabulate(results: Results) -> str:
    header = "preset | calibrated by | accuracy, % | negative log-likelihood | expected calibration error"
    rows = []
    for preset, found in results["presets"].items():
        for name in ("temperature", "corrected"):
            top, row = found[name]["bins"][-1], _figures(found[name])
            rows.append([f"`{preset.split(',')[0]}`", name, *row, f"{top[0]} | {top[1]:.3f} | {100 * top[2]:.1f}"])
    header += " | answers of 0.95 or more | their mean probability | of these right, %"
    text = table(header, rows) + "\n![Reliability diagram](images/probabilities.png)\n\n"
    rows = [[shown, *_figures(results["methods"][name])] for name, shown in NAMES.items() if results["methods"]]
    return text + table("method | accuracy, % | negative log-likelihood | expected calibration error", rows)


def _figures(found: Settings) -> list[str]:
    likelihood, error = found["negative_log_likelihood"], found["expected_calibration_error"]
    return [f"{found['accuracy']:.1f}", f"{likelihood:.2f}", f"{error:.3f}"]


def draw(results: Results) -> Any:
    figure, axes = new_plot("probability of the answer, %", "answers that are right, %", size=(5.2, 4.6))
    axes.plot([0, 100], [0, 100], color="#999999", lw=1, ls="--", label="as often as it says")
    for color, (preset, found) in zip((RED, BLUE), results["presets"].items(), strict=False):
        for name, style in (("temperature", ":"), ("corrected", "-")):
            _, sure, right = np.array(found[name]["bins"]).T
            look = {"color": color, "ls": style, "marker": "o", "ms": 4}
            axes.plot(100 * sure, 100 * right, label=f"{preset.split(',')[0]}: {name}", **look)
    axes.set(xlim=(0, 101), ylim=(0, 101))
    axes.legend(frameon=False, fontsize=8)
    return figure


EXPERIMENT = benchmark(globals())

"""Does --reject keep its promise? Held-out classes of Caltech 101 against the rate that was asked for.

The model knows 50 classes of 15 training images and is calibrated on these alone. It is asked for test images of its
classes, and for images of the 51 classes that it has never seen; another seed is another choice of classes and images.
Draws docs/images/unknown.png.
"""

from typing import Any

import numpy as np
from common import benchmark, grouped, mean_of, parts_over, table

from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings, of_classes
from lnbnn.lab.axes import BLUE, RED, new_plot
from lnbnn.model.calibration import expected_calibration_error

SETTINGS: Settings = {"presets": ["balanced", "deep"], "seeds": [0, 1, 2], "n_known": 50, "n_train": 15, "n_test": 8}
SETTINGS |= {"rates": [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]}
QUICK: Settings = {"presets": ["balanced"], "seeds": [0], "n_known": 4, "n_train": 4, "n_test": 3}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Shares of unknown images accepted, of known ones accepted, and of known ones accepted with the right answer."""
    rates, params = settings["rates"], settings["params"]
    store = lab.store_for(params)
    known = set(lab.shuffled_classes(settings["seed"])[: settings["n_known"]])
    train, test = lab.split_of(settings)
    model = lab.fit("local-nbnn", params, of_classes(train, known), keep_features=store is not None)
    model.calibrate(unknown=True, progress=lab.progress)
    found: dict[bool, list[tuple[float, bool, float]]] = {True: [], False: []}
    for label, answer in zip(test.labels, model.iter_answers(test.paths, store=store), strict=True):
        rate = 1.0 if answer.false_accept_rate is None else answer.false_accept_rate
        right = bool(answer.ranking) and answer.ranking[0][0] == label
        found[label in known].append((rate, right, answer.probabilities[0] if answer.probabilities else 0.0))
    rates_known, right, sure = map(np.array, zip(*found[True], strict=True))
    rates_unknown = np.array([rate for rate, _, _ in found[False]])
    # Two columns, the answer and all else, are enough for how far its probability is from how often it is right.
    error = expected_calibration_error(np.stack([sure, 1 - sure], axis=1)[sure > 0.5], (~right[sure > 0.5]).astype(int))
    return {
        "n_known_images": len(rates_known),
        "n_unknown_images": len(rates_unknown),
        "accuracy": round(float(right.mean()), 4),
        "false_accepts": [round(float((rates_unknown <= rate).mean()), 4) for rate in rates],
        "known_accepted": [round(float((rates_known <= rate).mean()), 4) for rate in rates],
        "known_right": [round(float(((rates_known <= rate) & right).mean()), 4) for rate in rates],
        "expected_calibration_error": round(error, 4),
    }


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    found = {name: {"mean": mean_of(runs), "runs": runs} for name, runs in grouped(outcomes, "preset").items()}
    return {"rates": settings["rates"], "presets": found}


def tabulate(results: Results) -> str:
    rows = []
    for name, found in results["presets"].items():
        for place, rate in enumerate(results["rates"]):
            if rate in (0.01, 0.05, 0.1, 0.2, 0.5):
                shares = [found["mean"][kind][place] for kind in ("false_accepts", "known_accepted", "known_right")]
                rows.append([f"`{name}`", f"{100 * rate:.0f} %", *(f"{100 * share:.1f} %" for share in shares)])
    header = "preset | `--reject` | unknown accepted | known accepted | known accepted and right"
    return table(header, rows) + "\n![The rate asked for and the share accepted](images/unknown.png)\n"


def draw(results: Results) -> Any:
    rates = 100 * np.array(results["rates"])
    figure, (left, right) = new_plot("--reject, %", size=(9.6, 4.2), n_panels=2)
    left.plot([0, 100], [0, 100], color="#999999", lw=1, ls="--", label="as promised")
    for color, (name, found) in zip((RED, BLUE), results["presets"].items(), strict=False):
        for one in found["runs"]:
            left.plot(rates, 100 * np.array(one["false_accepts"]), color=color, lw=0.8, alpha=0.5)
        mean = {
            kind: 100 * np.array(found["mean"][kind]) for kind in ("false_accepts", "known_accepted", "known_right")
        }
        left.plot(rates, mean["false_accepts"], color=color, marker="o", ms=4, label=f"{name}, mean")
        right.plot(rates, mean["known_accepted"], color=color, marker="o", ms=4, label=f"{name}: accepted")
        right.plot(rates, mean["known_right"], color=color, marker="o", ms=4, ls=":", label=f"{name}: and right")
    left.set(xlim=(0, 92), ylim=(0, 92), ylabel="images of unknown classes accepted, %")
    right.set(xlim=(0, 92), ylim=(0, 100), ylabel="images of known classes, %")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9)
    return figure


EXPERIMENT = benchmark(globals(), plan=parts_over("unknown", compute, presets="preset", seeds="seed"))

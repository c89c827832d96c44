"""Table 1: all increments of the log-odds against the positive ones only, on images of 128 pixels.

The paper's pictures are of 128 x 128 pixels; they are run so, squeezed, and with the aspect ratio kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.files.images import read_gray, resize
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
    "pictures": ["128 x 128", "longest side 128"],
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
    """One part per kind of picture and split."""
    own = {"n_train": settings["n_train"], "n_test": settings["n_test"]}
    own["params"] = full_params("nbnn-log-odds", settings["params"])
    return [
        Part("log-odds", own | {"pictures": pictures, "seed": seed}, compute)
        for pictures in settings["pictures"]
        for seed in settings["seeds"]
    ]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """NBNN, all increments, and the positive ones, from the same searches."""
    train, test = lab.split_of(settings)
    side = settings["params"]["descriptor_params"]["longest_side"]
    is_squeezed = settings["pictures"] == f"{side} x {side}"

    def read(path: str) -> Any:
        return squeezed(path, side) if is_squeezed else path

    classifier = lab.fit("nbnn-log-odds", settings["params"], train, read=read)
    n_classes = len(classifier.classes_)

    def work(path: str) -> tuple[list[NDArray[np.float64]], list[float]]:
        distances = classifier.class_distances(features_of(read(path), classifier.descriptor_, lab.store))
        both = [classifier.increments(distances, positive_only=positive) for positive in (False, True)]
        totals = [nbnn_updates(distances).totals(n_classes), *(updates.totals(n_classes) for updates in both)]
        return totals, [updates.n_increments for updates in both]

    asked = lab.ask(work, test.paths, None if is_squeezed else classifier.descriptor_)
    totals, increments = zip(*asked, strict=True)
    return {
        "truth": truth_of(classifier, test),
        **dict(zip(_FORMS, np.array(totals, dtype=np.float32).swapaxes(0, 1), strict=True)),
        "increments": np.array(increments).mean(axis=0),
    }


def squeezed(path: str, side: int) -> NDArray[np.uint8]:
    """A picture of ``side`` x ``side`` pixels, whatever its shape was."""
    return resize(read_gray(path), (side, side))


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By kind of picture: accuracies of each split and the mean number of increments per descriptor."""
    kinds = dict.fromkeys(part.settings["pictures"] for part, _ in outcomes)
    return {kind: _summary([found for part, found in outcomes if part.settings["pictures"] == kind]) for kind in kinds}


def _summary(splits: list[Outcome]) -> Results:
    results: dict[str, Any] = {
        "accuracy": {name: [accuracy(-found[name], found["truth"]) for found in splits] for name in _FORMS}
    }
    increments = np.mean([found["increments"] for found in splits], axis=0)
    results["increments"] = {"all": round(float(increments[0]), 1), "positive": round(float(increments[1]), 1)}
    agree = [np.mean(np.argmin(found["nbnn"], axis=1) == np.argmin(found["all"], axis=1)) for found in splits]
    results["all_increments_answer_as_nbnn"] = round(float(np.mean(agree)), 4)
    difference = np.subtract(results["accuracy"]["positive"], results["accuracy"]["all"])
    results["positive_less_all"] = round(float(difference.mean()), 2)
    return results


def tabulate(results: Results) -> str:
    """Two rows per kind of picture, as in the paper."""
    rows = []
    for kind in SETTINGS["pictures"]:
        for name, title in (("all", "full NBNN"), ("positive", "positive increments only")):
            if kind in results:
                increments, share = PAPER[name]
                ours = mean_sd(results[kind]["accuracy"][name])
                rows.append([kind, title, str(results[kind]["increments"][name]), increments, ours, share])
    header = [
        "pictures",
        "method",
        "increments per descriptor",
        "the paper's",
        "accuracy, ours, %",
        "the paper's",
    ]
    return markdown_table(header, rows)


TITLE = "Full NBNN against positive increments only, images of 128 pixels"
EXPERIMENT = Experiment("table1", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, PAPER)

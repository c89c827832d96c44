"""The defaults of nbnn-affine, chosen on training images of classes that no seed of benchmarks/unequal.py draws.

The distances of every image to every other are a part of their own, so that a further setting costs next to nothing.

    python benchmarks/unequal_choice.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from common import run, table
from unequal import MEASURES, MODEL, SIZES, SMALL, classes_of, large_enough
from unequal import SETTINGS as TESTED

from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.descriptors import make_descriptor
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.lab import of_classes
from lnbnn.methods.affine_correction import apply_affine, fit_affine
from lnbnn.reading.extraction import features_of
from lnbnn.reading.location import append_location

SETTINGS: Settings = {
    **SIZES,
    "n_held_out": 5,
    "n_draws": 2,
    "seed": 100,
    "tested_seeds": TESTED["seeds"],
    "query_budget": MODEL["query_budget"],
    "descriptor_params": MODEL["descriptor_params"],
    "tolerance": 0.5,  # points of accuracy within which settings count as equal: then the most even answers decide
    "regularizations": [0.001, 0.003, 0.01, 0.03, 0.1],
    "balances": [0.0, 0.25, 0.5, 0.75, 1.0],
}
QUICK: Settings = {
    **SMALL,
    "n_held_out": 2,
    "n_draws": 1,
    "tested_seeds": [0],
    "regularizations": [0.01],
    "balances": [0.5],
}
CHOSEN = ("left_out", "balance", "regularization")


def plan(settings: Settings) -> list[Part]:
    """One part per draw of classes, made from one of its distances."""
    own = {key: settings[key] for key in (*SIZES, "n_held_out", "seed", "tested_seeds", "query_budget")}
    own["descriptor"] = "dense-sift"
    own["descriptor_params"] = make_descriptor("dense-sift", settings["descriptor_params"]).settings()
    parts = []
    for number in range(settings["n_draws"]):
        distances = Part("unequal distances", own | {"draw": number}, compute_distances)
        tried = {key: settings[key] for key in ("regularizations", "balances")}
        parts.append(Part("unequal choice", distances.settings | tried, choice_of(distances)))
    return parts


def draw_of(lab: Lab, settings: Settings) -> LabelledImages:
    """The training images of a draw: of classes that no test uses."""
    tested = {label for seed in settings["tested_seeds"] for label in classes_of(lab.data, settings | {"seed": seed})}
    others = sorted(set(large_enough(lab.data, settings)) - tested)
    order = np.random.default_rng(settings["seed"]).permutation(others).tolist()
    n_classes = settings["n_classes"]
    labels = order[n_classes * settings["draw"] : n_classes * (settings["draw"] + 1)]
    how = {"n_train": settings["n_train_large"], "n_test": settings["n_test"], "seed": settings["seed"]}
    return split_images(of_classes(lab.data, labels), **how)[0]


def compute_distances(lab: Lab, settings: Settings) -> Outcome:
    """The squared distance of each query descriptor to its nearest neighbor in each image, by exact search."""
    train = draw_of(lab, settings)
    descriptor = make_descriptor(settings["descriptor"], settings["descriptor_params"])
    found = [append_location(features_of(path, descriptor, lab.store), 1.6) for path in train.paths]
    vectors = [rows.astype(np.float32) for rows in found]
    sizes = [min(len(v), settings["query_budget"]) for v in vectors]
    chosen = [np.random.default_rng(0).choice(len(v), n, replace=False) for v, n in zip(vectors, sizes, strict=True)]
    queries = np.vstack([v[rows] for v, rows in zip(vectors, chosen, strict=True)])
    nearest = np.empty((len(queries), len(vectors)), dtype=np.float32)
    for image, reference in enumerate(vectors):
        nearest[:, image] = ((reference**2).sum(axis=1) - 2.0 * queries @ reference.T).min(axis=1)
        lab.progress("distances", image + 1, len(vectors))
    nearest += (queries**2).sum(axis=1)[:, None]
    return {"nearest": nearest, "ends": np.cumsum(sizes), "labels": np.unique(train.labels, return_inverse=True)[1]}


@dataclass(frozen=True)
class Draw:
    """Images of a draw: their classes from 0, where the query descriptors of each end, and their distances."""

    labels: np.ndarray
    ends: np.ndarray
    nearest: np.ndarray

    def to_classes(self, image: int, members: Iterable[np.ndarray]) -> list[float]:
        """The mean distance of an image to classes, each given by its images; the image itself counts where it is."""
        rows = self.nearest[self.ends[image - 1] if image else 0 : self.ends[image]]
        return [float(rows[:, images].min(axis=1).mean()) for images in members]


@dataclass(frozen=True)
class Trial:
    """An unequal training set, its distances under each way of leaving out, and images held out of it."""

    is_small: np.ndarray
    labels: np.ndarray
    distances: dict[str, np.ndarray]
    held_out: np.ndarray
    truth: np.ndarray


def choice_of(distances: Part) -> Any:
    """What each setting of nbnn-affine gives on the held-out training images of every trial."""

    def compute(lab: Lab, settings: Settings) -> Outcome:
        kept = lab.get(distances)
        trials = list(trials_of(Draw(kept["labels"], kept["ends"], kept["nearest"]), settings))
        tried = [[None, None, None]]
        tried += [[way, b, r] for way in LEFT_OUT for b in settings["balances"] for r in settings["regularizations"]]
        rows = []
        for setting in tried:
            rows.append([measure(trial, answers_of(trial, *setting)) for trial in trials])
            lab.progress("settings", len(rows), len(tried))
        return {"tried": tried, "measures": rows}

    return compute


def trials_of(draw: Draw, settings: Settings) -> Iterator[Trial]:
    """Folds, each class once small and once large: some images of each class held out, the others to train on."""
    n_classes, n_held, n_small = settings["n_classes"], settings["n_held_out"], settings["n_train_small"]
    rng = np.random.default_rng(settings["seed"])
    images = [rng.permutation(np.flatnonzero(draw.labels == label)) for label in range(n_classes)]
    half = np.isin(np.arange(n_classes), rng.permutation(n_classes)[: n_classes // 2])
    for fold in range(settings["n_train_large"] // n_held):
        turned = [np.roll(members, -n_held * fold) for members in images]
        held_out = np.concatenate([members[:n_held] for members in turned])
        for is_small in (half, ~half):
            train = [
                members[n_held : n_held + n_small] if small else members[n_held:]
                for members, small in zip(turned, is_small, strict=True)
            ]
            yield Trial(
                is_small,
                np.repeat(np.arange(n_classes), [len(members) for members in train]),
                {name: np.array(list(left_out(draw, train))) for name, left_out in LEFT_OUT.items()},
                np.array([draw.to_classes(image, train) for image in held_out]),
                draw.labels[held_out],
            )


def leave_own_out(draw: Draw, train: list[np.ndarray]) -> Iterator[list[float]]:
    """Each training image left out of its own class, all others whole."""
    for image in np.concatenate(train):
        yield draw.to_classes(image, [members[members != image] for members in train])


def leave_one_of_each_out(draw: Draw, train: list[np.ndarray]) -> Iterator[list[float]]:
    """Every class one image short: its own lacks the image itself, each other class one of its images in turn."""
    for own in train:
        for place, image in enumerate(own):
            yield draw.to_classes(image, [np.delete(members, place % len(members)) for members in train])


LEFT_OUT = {"own": leave_own_out, "one of each class": leave_one_of_each_out}


def answers_of(trial: Trial, left_out: str | None, balance: Any, regularization: Any) -> np.ndarray:
    """The answers about the held-out images of a trial: of one setting, or without a correction."""
    if left_out is None:
        return trial.held_out.argmin(axis=1)
    learnt = fit_affine(trial.distances[left_out], trial.labels, regularization=regularization, balance=balance)
    return apply_affine(trial.held_out, *learnt).argmin(axis=1)


def measure(trial: Trial, answers: np.ndarray) -> list[float]:
    """Percentages: right answers of all, small and large classes, and answers that went to the large."""
    right = np.array([100.0 * np.mean(answers[trial.truth == label] == label) for label in range(len(trial.is_small))])
    parts = np.mean(right), np.mean(right[trial.is_small]), np.mean(right[~trial.is_small])
    return [*map(float, parts), 100.0 * float(np.mean(~trial.is_small[answers]))]


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """The mean of each setting over all trials; of the equally accurate ones the most even."""
    rows = []
    for place, setting in enumerate(outcomes[0][1]["tried"]):
        found = [of_trial for _, outcome in outcomes for of_trial in outcome["measures"][place]]
        means = [round(mean(values), 2) for values in zip(*found, strict=True)]
        rows.append(dict(zip(CHOSEN, setting, strict=True)) | dict(zip(MEASURES, means, strict=True)))
    best = max(row["accuracy"] for row in rows)
    equal = [row for row in rows[1:] if row["accuracy"] >= best - settings["tolerance"]] or rows
    chosen = min(equal, key=lambda row: (abs(row["answers_large"] - 50.0), -row["accuracy"]))
    n_trials = sum(len(outcome["measures"][0]) for _, outcome in outcomes)
    return {"chosen": chosen, "settings": rows, "n_trials": n_trials}


def tabulate(results: dict[str, Any]) -> str:
    """What each way to learn the correction gave, at the regularization that was chosen."""
    names = {None: "no correction (`nbnn`)", "own": "the image", "one of each class": "one of each class"}
    rows = []
    for row in results["settings"]:
        if row["regularization"] in (None, results["chosen"]["regularization"]):
            balance = "" if row["balance"] is None else f"{row['balance']:g}"
            rows.append([names[row["left_out"]], balance, *(f"{row[name]:.1f}" for name in MEASURES)])
    return table("left out in learning | `balance` | all | small classes | large classes | answers to large", rows)


TITLE = "The defaults of nbnn-affine, on held-out training images"
EXPERIMENT = Experiment("unequal-choice", TITLE, SETTINGS, plan, summarize, tabulate, QUICK)

if __name__ == "__main__":
    run(EXPERIMENT)

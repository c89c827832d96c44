"""The defaults of nbnn-affine, chosen on training images of classes that no seed of benchmarks/unequal.py draws.

The distances of every image to every other are a part of their own, so that a further setting costs next to nothing.
"""

from collections.abc import Callable, Iterator
from statistics import mean
from typing import Any

import numpy as np
from common import benchmark, parts_over, table
from unequal import MEASURES, MODEL, SIZES, SMALL, classes_of
from unequal import SETTINGS as TESTED

from lnbnn.descriptors import make_descriptor
from lnbnn.features import append_location
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.methods.affine_correction import apply_affine, fit_affine
from lnbnn.reading.extraction import features_of

DRAWN: Settings = {**SIZES, "seed": 100, "tested_seeds": TESTED["seeds"], "draws": [0, 1], "descriptor": "dense-sift"}
DRAWN |= {name: MODEL[name] for name in ("query_budget", "descriptor_params")}
SETTINGS: Settings = DRAWN | {"n_held_out": 5, "regularizations": [0.001, 0.003, 0.01, 0.03, 0.1]}
SETTINGS |= {"balances": [0.0, 0.25, 0.5, 0.75, 1.0]}
SETTINGS["tolerance"] = 0.5  # points of accuracy within which settings count as equal: the most even answers decide
QUICK: Settings = {**SMALL, "n_held_out": 2, "draws": [0], "tested_seeds": [0], "regularizations": [0.01]}
CHOSEN = ("left_out", "balance", "regularization")
# what is left out while an image of the training set is searched for
WAYS = {None: "no correction (`nbnn`)", "own": "the image", "one of each class": "one of each class"}


def distances(lab: Lab, settings: Settings) -> Outcome:
    """The squared distance of each query descriptor of a draw to its nearest neighbor in each image, by exact search.

    A draw is the training images of classes that no test uses.
    """
    tested = {label for seed in settings["tested_seeds"] for label in classes_of(lab.data, settings | {"seed": seed})}
    others = sorted(set(classes_of(lab.data, settings | {"n_classes": None})) - tested)
    order, n = np.random.default_rng(settings["seed"]).permutation(others).tolist(), settings["n_classes"]
    drawn = order[n * settings["draw"] : n * (settings["draw"] + 1)]
    train, _ = lab.split_of(settings | {"n_train": settings["n_train_large"]}, drawn)
    descriptor = make_descriptor(settings["descriptor"], settings["descriptor_params"])
    features = [features_of(path, descriptor, lab.store) for path in train.paths]
    vectors = [append_location(one, 1.6).astype(np.float32) for one in features]
    sizes = [min(len(v), settings["query_budget"]) for v in vectors]
    chosen = [np.random.default_rng(0).choice(len(v), n, replace=False) for v, n in zip(vectors, sizes, strict=True)]
    queries = np.vstack([v[rows] for v, rows in zip(vectors, chosen, strict=True)])
    nearest = np.empty((len(queries), len(vectors)), dtype=np.float32)
    for image, reference in enumerate(vectors):
        nearest[:, image] = ((reference**2).sum(axis=1) - 2.0 * queries @ reference.T).min(axis=1)
        lab.progress("distances", image + 1, len(vectors))
    nearest += (queries**2).sum(axis=1)[:, None]
    return {"nearest": nearest, "ends": np.cumsum(sizes), "labels": np.unique(train.labels, return_inverse=True)[1]}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """What each setting of nbnn-affine gives on the held-out training images of every trial of a draw."""
    own = {key: settings[key] for key in DRAWN if key != "draws"} | {"draw": settings["draw"]}
    kept = lab.get(Part("unequal distances", own, distances))
    starts = np.append(0, kept["ends"])

    def to_classes(image: int, members: list[np.ndarray]) -> list[float]:
        """The mean distance of an image to classes, each given by its images; the image itself counts where it is."""
        rows = kept["nearest"][starts[image] : starts[image + 1]]
        return [float(rows[:, images].min(axis=1).mean()) for images in members]

    tried: list[list[Any]] = [[None, None, None]]
    tried += [[w, b, r] for w in WAYS if w for b in settings["balances"] for r in settings["regularizations"]]
    measures: list[list[list[float]]] = [[] for _ in tried]
    for is_small, train, held_out in trials_of(kept["labels"], settings):
        labels, truth = np.repeat(np.arange(len(train)), [len(images) for images in train]), kept["labels"][held_out]
        asked = np.array([to_classes(image, train) for image in held_out])
        known = {way: np.array(list(left_out(way, train, to_classes))) for way in WAYS if way}
        for (way, balance, regularization), found in zip(tried, measures, strict=True):
            corrected = asked
            if way:
                learned = fit_affine(known[way], labels, regularization=regularization, balance=balance)
                corrected = apply_affine(asked, *learned)
            answers = corrected.argmin(axis=1)
            right = np.array([100.0 * np.mean(answers[truth == label] == label) for label in range(len(train))])
            shares = np.mean(right), np.mean(right[is_small]), np.mean(right[~is_small])
            found.append([*map(float, shares), 100.0 * float(np.mean(~is_small[answers]))])
    return {"tried": tried, "measures": measures}


def trials_of(labels: np.ndarray, settings: Settings) -> Iterator[tuple[np.ndarray, list[np.ndarray], np.ndarray]]:
    """Folds, each class once small and once large: which are small, their training images, and images held out."""
    n_classes, n_held, n_small = settings["n_classes"], settings["n_held_out"], settings["n_train_small"]
    rng = np.random.default_rng(settings["seed"])
    images = [rng.permutation(np.flatnonzero(labels == label)) for label in range(n_classes)]
    half = np.isin(np.arange(n_classes), rng.permutation(n_classes)[: n_classes // 2])
    for fold in range(settings["n_train_large"] // n_held):
        turned = [np.roll(members, -n_held * fold) for members in images]
        for is_small in (half, ~half):
            ends = np.where(is_small, n_held + n_small, len(labels))
            train = [members[n_held:end] for members, end in zip(turned, ends, strict=True)]
            yield is_small, train, np.concatenate([members[:n_held] for members in turned])


def left_out(way: str, train: list[np.ndarray], to_classes: Callable[..., list[float]]) -> Iterator[list[float]]:
    """The distances of training images: its own class lacks the image itself, each other one of its images in turn."""
    for own in train:
        for place, image in enumerate(own):
            is_short = [members is own or way == "one of each class" for members in train]
            pairs = zip(train, is_short, strict=True)
            yield to_classes(image, [np.delete(m, place % len(m)) if short else m for m, short in pairs])


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """The mean of each setting over all trials; of the equally accurate ones the most even."""
    rows = []
    for place, setting in enumerate(outcomes[0][1]["tried"]):
        found = [of_trial for _, outcome in outcomes for of_trial in outcome["measures"][place]]
        means = [round(mean(values), 2) for values in zip(*found, strict=True)]
        rows.append(dict(zip((*CHOSEN, *MEASURES), (*setting, *means), strict=True)))
    best = max(row["accuracy"] for row in rows)
    equal = [row for row in rows[1:] if row["accuracy"] >= best - settings["tolerance"]] or rows[1:]
    chosen = min(equal, key=lambda row: (abs(row["answers_large"] - 50.0), -row["accuracy"]))
    return {"chosen": chosen, "settings": rows, "n_trials": len(found)}


def tabulate(results: Results) -> str:
    rows = []
    for row in results["settings"]:
        if row["regularization"] in (None, results["chosen"]["regularization"]):
            balance = "" if row["balance"] is None else f"{row['balance']:g}"
            rows.append([WAYS[row["left_out"]], balance, *(f"{row[name]:.1f}" for name in MEASURES)])
    return table("left out in learning | `balance` | all | small classes | large classes | answers to large", rows)


EXPERIMENT = benchmark(globals(), plan=parts_over("unequal choice", compute, draws="draw"))

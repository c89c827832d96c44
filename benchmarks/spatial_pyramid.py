"""The settings of the spatial pyramids and their grid, by cross-validation on training images of Caltech 101.

The 15 training images per class of split 0 are cut into five parts; machines are trained on four and judged on the
fifth. No test image is read.

    python benchmarks/spatial_pyramid.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import run, table
from sklearn.model_selection import StratifiedKFold

from lnbnn.classifiers.kernel_svm import fit_one_vs_all
from lnbnn.classifiers.spatial_pyramid import SoftSpatialPyramid
from lnbnn.descriptors import make_descriptor
from lnbnn.features import ImageFeatures
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings
from lnbnn.methods.pyramid.codebook import Codebook, make_codebook
from lnbnn.methods.pyramid.coding import Codes, soft_weights
from lnbnn.methods.pyramid.kernels import intersection_kernel
from lnbnn.methods.pyramid.pooling import level_weights, normalize, pool
from lnbnn.reading.extraction import iter_features, map_in_order

CHOICES: list[
    list[Any]
] = [  # words that share a descriptor (one: hard assignment), beta, pooling, weighted levels, norm
    [1, 1.0, "average", True, "none"],
    [1, 1.0, "average", False, "l1"],
    [10, 10.0, "max", False, "l2"],
    [10, 20.0, "max", False, "l2"],
    [10, 40.0, "max", False, "l2"],
    [10, 20.0, "max", False, "l1"],
    [10, 20.0, "max", False, "none"],
    [10, 20.0, "max", True, "l2"],
    [10, 20.0, "average", True, "none"],
]
USUAL = [CHOICES[0], CHOICES[3]]
SETTINGS: Settings = {
    "n_train": 15,
    "n_test": 15,
    "seeds": [0],
    "n_folds": 5,
    "n_words": SoftSpatialPyramid().n_words,
    "n_samples": SoftSpatialPyramid().n_samples,
    "penalties": [1.0, 10.0, 100.0],  # values of C
    "grids": {  # settings of dense SIFT, and what is tried with them
        "defaults": [{}, CHOICES],
        "every 6 px": [{"step_px": 6}, USUAL],
        "bins 4 6 9 14 21": [{"bin_sizes": [4, 6, 9, 14, 21]}, USUAL],
        "bins 6 9 14 21 31": [{"bin_sizes": [6, 9, 14, 21, 31]}, USUAL],
    },
}
QUICK: Settings = {"n_train": 5, "n_test": 1, "n_words": 32, "n_samples": 4000, "grids": {"defaults": [{}, USUAL]}}


def plan(settings: Settings) -> list[Part]:
    """One part per grid."""
    own = {key: settings[key] for key in ("n_train", "n_test", "n_folds", "n_words", "n_samples", "penalties")}
    parts = []
    for seed in settings["seeds"]:
        for name, (params, choices) in settings["grids"].items():
            used = {"descriptor": "dense-sift", "descriptor_params": make_descriptor("dense-sift", params).settings()}
            parts.append(Part("pyramid choice", own | used | {"seed": seed, "grid": name, "choices": choices}, compute))
    return parts


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Every choice with one grid."""
    train, _ = lab.split_of(settings)
    labels = np.unique(train.labels, return_inverse=True)[1]
    descriptor = make_descriptor(settings["descriptor"], settings["descriptor_params"])
    features = list(iter_features(train.paths, descriptor))
    how = {"n_samples": settings["n_samples"], "seed": settings["seed"]}
    codebook = make_codebook(features, settings["n_words"], **how)
    rows = []
    for choice in settings["choices"]:
        kernel = kernel_of(features, codebook, choice)
        shares = {str(C): round(100 * cross_validate(kernel, labels, C, settings), 2) for C in settings["penalties"]}
        n_nearest, beta, pooling, weighted, norm = choice
        row = {"n_nearest_words": n_nearest, "beta": beta if n_nearest > 1 else None, "pooling": pooling}
        rows.append(row | {"level_weights": weighted, "norm": norm, "accuracy_by_C": shares})
        lab.progress("cross-validating", len(rows), len(settings["choices"]))
    return {"rows": rows}


def kernel_of(features: list[ImageFeatures], codebook: Codebook, choice: list[Any]) -> np.ndarray:
    """The kernel of all training images."""
    n_nearest, beta, pooling, weighted, norm = choice

    def pyramid(image: ImageFeatures) -> np.ndarray:
        squared, words = codebook.assign(image.descriptors, n_nearest)
        codes = Codes(words, soft_weights(squared, beta), len(codebook))
        weights = level_weights(3) if weighted else None
        return normalize(pool(codes, image.xy, pooling=pooling, n_levels=3, weights=weights), norm)

    return intersection_kernel(np.stack(list(map_in_order(pyramid, features, None))), n_jobs=None)


def cross_validate(kernel: np.ndarray, labels: np.ndarray, C: float, settings: Settings) -> float:
    """Share of right answers on the parts left out of training."""
    folds = StratifiedKFold(settings["n_folds"], shuffle=True, random_state=settings["seed"])
    n_right = 0
    for kept, left in folds.split(labels, labels):
        machines = fit_one_vs_all(kernel[np.ix_(kept, kept)], labels[kept], labels.max() + 1, C=C, n_jobs=None)
        scores = kernel[np.ix_(left, kept)] @ machines.dual.T + machines.intercepts
        n_right += int((scores.argmax(axis=1) == labels[left]).sum())
    return n_right / len(labels)


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """The rows of each grid."""
    return {part.settings["grid"]: found["rows"] for part, found in outcomes}


def tabulate(results: dict[str, Any]) -> str:
    """Cross-validated accuracy of each coding and pooling, then of the defaults on other grids."""
    first, *others = results.items()
    rows = [[_words(row), f"{row['accuracy_by_C']['10.0']:.1f}"] for row in first[1]]
    for grid, tried in others:
        shares = ", ".join(f"{row['accuracy_by_C']['10.0']:.1f}" for row in tried)
        rows.append([f"the two defaults, {grid}", shares])
    return table("cross-validated accuracy, 12 training images a class, C = 10 | %", rows)


def _words(row: dict[str, Any]) -> str:
    """The settings of a spatial pyramid in words."""
    is_soft = row["n_nearest_words"] > 1
    words = ["soft" if is_soft else "hard", row["pooling"], f"`{row['norm']}`"]
    words += [f"beta {row['beta']:g}"] if is_soft else []
    words += ["levels 1/4, 1/4, 1/2"] if row["level_weights"] else []
    text = ", ".join(words)
    defaults = {
        "hard, average, `none`, levels 1/4, 1/4, 1/2": " (the default of `spm-hard`)",
        "soft, max, `l2`, beta 20": " (the default of `spm-soft`)",
    }
    return text + defaults.get(text, "")


TITLE = "Settings of the spatial pyramids, cross-validated on training images"
EXPERIMENT = Experiment("spatial-pyramid", TITLE, SETTINGS, plan, summarize, tabulate, QUICK)

if __name__ == "__main__":
    run(EXPERIMENT)

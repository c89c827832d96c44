"""The settings of the spatial pyramids and their grid, by cross-validation on training images of Caltech 101.

The 15 training images per class of split 0 are cut into five parts; SVMs are trained on four and judged on the
fifth. No test image is read.
"""

from functools import partial
from typing import Any

import numpy as np
from common import benchmark, parts_over, table
from sklearn.model_selection import StratifiedKFold

from lnbnn.classifiers.trained import SoftSpatialPyramid
from lnbnn.descriptors import make_descriptor
from lnbnn.features import ImageFeatures
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.methods.kernel_svm import fit_one_vs_all
from lnbnn.methods.pyramid.codebook import Codebook, make_codebook
from lnbnn.methods.pyramid.kernels import intersection_kernel
from lnbnn.methods.pyramid.pooling import level_weights, normalize, pool
from lnbnn.reading.extraction import iter_features, map_in_order

# words that share a descriptor (one: hard assignment), beta, pooling, weighted levels, norm
CHOICES: list[list[Any]] = [
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
CHOSEN = ("n_nearest_words", "beta", "pooling", "level_weights", "norm")
GRIDS: dict[str, Settings] = {
    "defaults": {"choices": CHOICES},
    "every 6 px": {"descriptor_params": {"step_px": 6}, "choices": USUAL},
    "bins 4 6 9 14 21": {"descriptor_params": {"bin_sizes": [4, 6, 9, 14, 21]}, "choices": USUAL},
    "bins 6 9 14 21 31": {"descriptor_params": {"bin_sizes": [6, 9, 14, 21, 31]}, "choices": USUAL},
}
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seeds": [0], "n_folds": 5, "penalties": [1.0, 10.0, 100.0]}
SETTINGS |= {name: getattr(SoftSpatialPyramid(), name) for name in ("n_words", "n_samples")}
SETTINGS |= {"descriptor": "dense-sift", "grids": GRIDS}
QUICK: Settings = {"n_train": 5, "n_test": 1, "n_words": 32, "grids": {"defaults": {"choices": USUAL}}}


def compute(lab: Lab, settings: Settings) -> Outcome:
    train, _ = lab.split_of(settings)
    labels = np.unique(train.labels, return_inverse=True)[1]
    descriptor = make_descriptor(settings["descriptor"], settings["descriptor_params"])
    features = list(iter_features(train.paths, descriptor))
    how = {"n_samples": settings["n_samples"], "seed": settings["seed"]}
    codebook = make_codebook(features, settings["n_words"], **how)
    rows = []
    for choice in settings["choices"]:
        pyramids = map_in_order(partial(pyramid, codebook, choice), features, None)
        kernel = intersection_kernel(np.stack(list(pyramids)), n_jobs=None)
        shares = {str(C): round(100 * cross_validate(kernel, labels, C, settings), 2) for C in settings["penalties"]}
        row = dict(zip(CHOSEN, choice, strict=True)) | {"accuracy_by_C": shares}
        rows.append(row | ({"beta": None} if row["n_nearest_words"] == 1 else {}))
        lab.progress("cross-validating", len(rows), len(settings["choices"]))
    return {"rows": rows}


def pyramid(codebook: Codebook, choice: list[Any], image: ImageFeatures) -> np.ndarray:
    """The vector of one image."""
    n_nearest, beta, pooling, weighted, norm = choice
    codes = codebook.codes(image.descriptors, n_nearest, beta)
    weights = level_weights(3) if weighted else None
    return normalize(pool(codes, image.xy, pooling=pooling, n_levels=3, weights=weights), norm)


def cross_validate(kernel: np.ndarray, labels: np.ndarray, C: float, settings: Settings) -> float:
    """Share of right answers on the parts left out of training."""
    folds = StratifiedKFold(settings["n_folds"], shuffle=True, random_state=settings["seed"])
    n_right = 0
    for kept, left in folds.split(labels, labels):
        svm = fit_one_vs_all(kernel[np.ix_(kept, kept)], labels[kept], labels.max() + 1, C=C, n_jobs=None)
        scores = kernel[np.ix_(left, kept)] @ svm.dual.T + svm.intercepts
        n_right += int((scores.argmax(axis=1) == labels[left]).sum())
    return n_right / len(labels)


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    return {part.settings["grid"]: found["rows"] for part, found in outcomes}


def tabulate(results: Results) -> str:
    first, *others = results.items()
    rows = [[_words(row), f"{row['accuracy_by_C']['10.0']:.1f}"] for row in first[1]]
    for grid, tried in others:
        shares = ", ".join(f"{row['accuracy_by_C']['10.0']:.1f}" for row in tried)
        rows.append([f"the two defaults, {grid}", shares])
    return table("cross-validated accuracy, 12 training images per class, C = 10 | %", rows)


def _words(row: dict[str, Any]) -> str:
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


EXPERIMENT = benchmark(globals(), plan=parts_over("pyramid choice", compute, seeds="seed", grids="grid"))

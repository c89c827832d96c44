"""The settings of the spatial pyramids and their grid, by cross-validation on training images of Caltech 101.

The 15 training images a class of split 0 are cut into five parts; machines are trained on four and judged on the fifth.
No test image is read. Writes results/spatial-pyramid.json.

    python benchmarks/spatial_pyramid.py
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from common import options_parser
from sklearn.model_selection import StratifiedKFold

from lnbnn.classifiers.trained import SoftSpatialPyramid
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.splits import split_images
from lnbnn.descriptors import make_descriptor
from lnbnn.features import ImageFeatures
from lnbnn.lab.records import make_record, write_record
from lnbnn.methods.kernel_svm import fit_one_vs_all
from lnbnn.methods.pyramid.codebook import Codebook, make_codebook
from lnbnn.methods.pyramid.coding import Codes, soft_weights
from lnbnn.methods.pyramid.kernels import intersection_kernel
from lnbnn.methods.pyramid.pooling import level_weights, normalize, pool
from lnbnn.reading.extraction import iter_features, map_in_order

TARGET = Path(__file__).resolve().parent.parent / "results" / "spatial-pyramid.json"
CS = (1.0, 10.0, 100.0)
# (words that share a descriptor, beta, pooling, weighted levels, norm); one word is hard assignment
CHOICES = [
    (1, 1.0, "average", True, "none"),
    (1, 1.0, "average", False, "l1"),
    (10, 10.0, "max", False, "l2"),
    (10, 20.0, "max", False, "l2"),
    (10, 40.0, "max", False, "l2"),
    (10, 20.0, "max", False, "l1"),
    (10, 20.0, "max", False, "none"),
    (10, 20.0, "max", True, "l2"),
    (10, 20.0, "average", True, "none"),
]
USUAL = [CHOICES[0], CHOICES[3]]
GRIDS: dict[str, tuple[dict[str, Any], list[Any]]] = {  # settings of dense SIFT, and what is tried with them
    "defaults": ({}, CHOICES),
    "every 6 px": ({"step_px": 6}, USUAL),
    "bins 4 6 9 14 21": ({"bin_sizes": [4, 6, 9, 14, 21]}, USUAL),
    "bins 6 9 14 21 31": ({"bin_sizes": [6, 9, 14, 21, 31]}, USUAL),
}


def main() -> None:
    """Try every choice and write the record."""
    parser = options_parser(__doc__)
    options = parser.parse_args()
    start = time.perf_counter()
    train, _ = split_images(load_caltech101(options.data), n_train=15, n_test=15, seed=0)
    labels = np.unique(train.labels, return_inverse=True)[1]
    defaults = SoftSpatialPyramid()
    results = {}
    for name, (settings, choices) in GRIDS.items():
        features = list(iter_features(train.paths, make_descriptor("dense-sift", settings)))
        codebook = make_codebook(features, defaults.n_words, n_samples=defaults.n_samples, seed=0)
        results[name] = [try_one(features, codebook, labels, choice) for choice in choices]
        print(name, results[name], flush=True)
    record = make_record(
        TARGET.stem,
        "python benchmarks/spatial_pyramid.py",
        settings={"n_train": 15, "n_folds": 5, "n_words": defaults.n_words, "n_samples": defaults.n_samples},
        seeds=[0],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(TARGET, record)


def try_one(features: list[ImageFeatures], codebook: Codebook, labels: np.ndarray, choice: Any) -> dict[str, Any]:
    """Cross-validated accuracy of one choice at every C."""
    n_nearest, beta, pooling, weighted, norm = choice

    def pyramid(image: ImageFeatures) -> np.ndarray:
        squared, words = codebook.assign(image.descriptors, n_nearest)
        codes = Codes(words, soft_weights(squared, beta), len(codebook))
        weights = level_weights(3) if weighted else None
        return normalize(pool(codes, image.xy, pooling=pooling, n_levels=3, weights=weights), norm)

    kernel = intersection_kernel(np.stack(list(map_in_order(pyramid, features, None))), n_jobs=None)
    return {
        "n_nearest_words": n_nearest,
        "beta": beta if n_nearest > 1 else None,
        "pooling": pooling,
        "level_weights": weighted,
        "norm": norm,
        "accuracy_by_C": {str(C): round(100 * cross_validate(kernel, labels, C), 2) for C in CS},
    }


def cross_validate(kernel: np.ndarray, labels: np.ndarray, C: float) -> float:
    """Share of right answers on the parts left out of training."""
    n_right = 0
    for kept, left in StratifiedKFold(5, shuffle=True, random_state=0).split(labels, labels):
        machines = fit_one_vs_all(kernel[np.ix_(kept, kept)], labels[kept], labels.max() + 1, C=C, n_jobs=None)
        scores = kernel[np.ix_(left, kept)] @ machines.dual.T + machines.intercepts
        n_right += int((scores.argmax(axis=1) == labels[left]).sum())
    return n_right / len(labels)


if __name__ == "__main__":
    main()

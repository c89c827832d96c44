"""Pieces of work that more than one experiment asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.base import ImageClassifier
from lnbnn.datasets.folder import LabelledImages
from lnbnn.evaluation import mean_per_class
from lnbnn.experiments.base import Arrays, Part
from lnbnn.experiments.lab import Lab
from lnbnn.indexes import make_index
from lnbnn.registry import resolve
from lnbnn.settings import plain

__all__ = ["accuracy", "full_params", "kernel_part", "per_class", "scores_part", "truth_of"]


def kernel_part(method: str, split: dict[str, int], params: dict[str, Any]) -> Part:
    """A kernel on the responses of a method of the NBNN family, and that method itself, from the same searches.

    Its arrays: ``truth``, the test images' ``totals`` and the SVMs' ``scores``, ``C``, ``own_weight``.
    """

    def compute(lab: Lab) -> Arrays:
        train, test = lab.split(split["n_train"], split["n_test"], split["seed"])
        classifier = _fit(lab, method, params, train)
        totals, scores = classifier.totals_and_scores(test.paths, store=lab.store, progress=lab.progress)  # type: ignore[attr-defined]
        return {
            "truth": truth_of(classifier, test),
            "totals": totals.astype(np.float32),
            "scores": scores.astype(np.float32),
            "C": np.array(classifier.C_),  # type: ignore[attr-defined]
            "own_weight": np.array(classifier.own_weight_),  # type: ignore[attr-defined]
        }

    return Part(method, {**split, "params": full_params(method, params)}, compute)


def scores_part(method: str, split: dict[str, int], params: dict[str, Any]) -> Part:
    """Any method by itself. Its arrays: ``truth`` and the test images' ``scores``."""

    def compute(lab: Lab) -> Arrays:
        train, test = lab.split(split["n_train"], split["n_test"], split["seed"])
        classifier = _fit(lab, method, params, train)
        scores = classifier.decision_function(test.paths, store=lab.store, progress=lab.progress)
        return {"truth": truth_of(classifier, test), "scores": scores.astype(np.float32)}

    return Part(method, {**split, "params": full_params(method, params)}, compute)


def full_params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """All settings of a method, descriptor and index included: a part is done again when a default changes."""
    classifier: ImageClassifier = resolve(CLASSIFIERS, method, "method")(**params)
    found = classifier.plain_params()
    if "index" in found:
        found["index_params"] = plain(make_index(found["index"], found["index_params"]).settings())
    return found


def _fit(lab: Lab, method: str, params: dict[str, Any], train: LabelledImages) -> ImageClassifier:
    classifier: ImageClassifier = resolve(CLASSIFIERS, method, "method")(**params, n_jobs=lab.n_jobs)
    return classifier.fit(train.paths, train.labels, store=lab.store, progress=lab.progress)


def truth_of(classifier: ImageClassifier, images: LabelledImages) -> NDArray[np.int64]:
    """The true class of each image as its place in ``classes_``."""
    return np.searchsorted(classifier.fitted_classes(), np.asarray(images.labels))


def accuracy(scores: NDArray[Any], truth: NDArray[Any]) -> float:
    """Mean per-class accuracy in per cent of the highest scores."""
    return round(100 * mean_per_class(np.argmax(scores, axis=1), truth), 2)


def per_class(scores: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """The share of right answers of each class."""
    right = np.argmax(scores, axis=1) == truth
    return np.bincount(truth, weights=right) / np.maximum(np.bincount(truth), 1)

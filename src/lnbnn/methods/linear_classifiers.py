"""Linear classifiers on response vectors; C and the blend are chosen by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

__all__ = [
    "LINEAR_CLASSIFIERS",
    "LinearClassifier",
    "best_c_and_blend",
    "fit_linear",
    "held_out_scores",
    "train_linear_classifier",
]

_BLEND_GRID = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
_FOLDS = 3


_svm = partial(LinearSVC, dual=True, tol=1e-3, max_iter=2000, random_state=0)

LINEAR_CLASSIFIERS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "logistic": (partial(LogisticRegression, max_iter=300), (0.001, 0.003, 0.01, 0.03, 0.1)),
    "svm": (_svm, (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)),
}
"""The kinds of linear classifier by name, with the values of C to choose from: ``logistic``, a multinomial logistic
regression; ``svm``, one-vs-all linear SVMs, as published."""


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A trained linear classifier: a linear function of the responses, plus ``own_weight`` times the own scores.

    Parameters
    ----------
    mean, scale : ndarrays of shape (d,)
        Of the training images' responses; responses are standardized with them.
    coef : ndarray of shape (n_classes, d)
    intercept : ndarray of shape (n_classes,)
    C, own_weight : float
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    C: float
    own_weight: float

    def scores(self, own: NDArray[np.float64], responses: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of images, or of one, from their own scores and responses."""
        return (responses - self.mean) / self.scale @ self.coef.T + self.intercept + self.own_weight * own


def train_linear_classifier(
    own: NDArray[np.float64],
    responses: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    kind: str,
    seed: int,
    c: float | None = None,
    blend: float | None = None,
) -> LinearClassifier:
    """Train a linear classifier on the responses of labeled images; their order does not matter.

    Parameters
    ----------
    own : ndarray of shape (n_images, n_classes)
        The scores that the responses come with; higher is better.
    responses : ndarray of shape (n_images, d)
    labels : ndarray of shape (n_images,)
    kind : str
        A name in :data:`LINEAR_CLASSIFIERS`.
    c, blend : float, optional
        C, and the weight of the own scores; by default chosen by cross-validation.
    """
    order = np.lexsort((*responses.T, *own.T, labels))
    own, responses, labels = own[order], responses[order], labels[order]
    spread = responses.std(axis=0)
    mean, scale = responses.mean(axis=0), np.where(spread > 0, spread, 1.0)
    standard = (responses - mean) / scale
    held_out = held_out_scores(standard, labels, own.shape[1], kind=kind, seed=seed, c=c)
    best_c, own_weight = 0.01 if c is None else c, 0.0
    if held_out:
        _, best_c, own_weight = best_c_and_blend(held_out, own, labels, blend=blend)
    coef, intercept = fit_linear(standard, labels, own.shape[1], best_c, kind=kind)
    return LinearClassifier(mean, scale, coef, intercept, best_c, own_weight)


def held_out_scores(
    vectors: NDArray[np.float64],
    labels: NDArray[np.int64],
    n_classes: int,
    *,
    kind: str,
    seed: int,
    c: float | None = None,
) -> dict[float, NDArray[np.float64]]:
    """For each C, the scores of each image by a classifier trained without it; empty if there are too few images."""
    n_folds = min(_FOLDS, int(np.bincount(labels).min()))
    if n_folds < 2 or n_classes < 2:
        return {}
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(vectors, labels))
    found = {}
    for some_c in LINEAR_CLASSIFIERS[kind][1] if c is None else (c,):
        found[some_c] = np.zeros((len(labels), n_classes))
        for train, test in folds:
            coef, intercept = fit_linear(vectors[train], labels[train], n_classes, some_c, kind=kind)
            found[some_c][test] = vectors[test] @ coef.T + intercept
    return found


def best_c_and_blend(
    held_out: dict[float, NDArray[np.float64]],
    own: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    blend: float | None = None,
) -> tuple[int, float, float]:
    """The best pair of C and blend: the number of right answers, C, and the weight of the own scores.

    Of equally good pairs the first is taken: the smaller C, then the smaller weight. The blend is in units of the
    spread of the held-out scores; the weight is the blend times that spread.
    """
    found = []
    for c, scores in held_out.items():
        spread = float(scores.std())
        for some_blend in _BLEND_GRID if blend is None else (blend,):
            answers = np.argmax(scores + some_blend * spread * own, axis=1)
            found.append((int(np.sum(answers == labels)), c, some_blend * spread))
    return max(found, key=lambda entry: entry[0])


def fit_linear(
    vectors: NDArray[np.float64], labels: NDArray[np.int64], n_classes: int, c: float, *, kind: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients (n_classes, d) and intercepts; zeros for a single class."""
    if n_classes == 1:
        return np.zeros((1, vectors.shape[1])), np.zeros(1)
    with warnings.catch_warnings(), threadpool_limits(1):  # the same sums for any number of threads
        warnings.simplefilter("ignore", ConvergenceWarning)  # the result after the last iteration is good enough
        model = LINEAR_CLASSIFIERS[kind][0](C=c).fit(vectors, labels)
    coef, intercept = model.coef_, model.intercept_
    if n_classes == 2:
        return np.vstack([-coef, coef]), np.append(-intercept, intercept)
    return np.ascontiguousarray(coef), intercept  # the memory order of a loaded model: other orders round differently

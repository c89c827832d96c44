"""Linear machines on response vectors: trained on all classes, their settings chosen by cross-validation."""

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

__all__ = ["MACHINES", "Machines", "best_c_and_blend", "held_out_scores", "linear_machines", "train_machines"]

_BLEND_GRID = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
_FOLDS = 3


_svm = partial(LinearSVC, dual=True, tol=1e-3, max_iter=2000, random_state=0)

MACHINES: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "logistic": (partial(LogisticRegression, max_iter=300), (0.001, 0.003, 0.01, 0.03, 0.1)),
    "svm": (_svm, (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)),
}
"""How the machines of all classes are trained, by name, and the values of C to choose from: ``logistic``, one
multinomial logistic regression; ``svm``, a linear SVM a class against all others, as published."""


@dataclass(frozen=True, eq=False)
class Machines:
    """Trained machines: the score of a class is its machine's, plus a share of what the input says by itself.

    Parameters
    ----------
    mean, scale : ndarrays of shape (d,)
        Of the training images' responses, which are standardised by them.
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
        """Scores of images, or of one, from the input's own scores and the responses."""
        return (responses - self.mean) / self.scale @ self.coef.T + self.intercept + self.own_weight * own


def train_machines(
    own: NDArray[np.float64],
    responses: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    machine: str,
    seed: int,
    c: float | None = None,
    blend: float | None = None,
) -> Machines:
    """Machines on the responses of labeled images; the order of the images does not matter.

    Parameters
    ----------
    own : ndarray of shape (n_images, n_classes)
        The input's own scores, higher is better.
    responses : ndarray of shape (n_images, d)
    labels : ndarray of shape (n_images,)
    machine : str
        A name in :data:`MACHINES`.
    c, blend : float, optional
        C, and the share of the input's own scores; by default chosen by cross-validation.
    """
    order = np.lexsort((*responses.T, *own.T, labels))
    own, responses, labels = own[order], responses[order], labels[order]
    spread = responses.std(axis=0)
    mean, scale = responses.mean(axis=0), np.where(spread > 0, spread, 1.0)
    standard = (responses - mean) / scale
    held_out = held_out_scores(standard, labels, own.shape[1], machine=machine, seed=seed, c=c)
    best_c, own_weight = 0.01 if c is None else c, 0.0
    if held_out:
        _, best_c, own_weight = best_c_and_blend(held_out, own, labels, blend=blend)
    coef, intercept = linear_machines(standard, labels, own.shape[1], best_c, machine=machine)
    return Machines(mean, scale, coef, intercept, best_c, own_weight)


def held_out_scores(
    vectors: NDArray[np.float64],
    labels: NDArray[np.int64],
    n_classes: int,
    *,
    machine: str,
    seed: int,
    c: float | None = None,
) -> dict[float, NDArray[np.float64]]:
    """For each C to choose from, the scores of the machines that were trained without the image; none for one fold."""
    n_folds = min(_FOLDS, int(np.bincount(labels).min()))
    if n_folds < 2 or n_classes < 2:
        return {}
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(vectors, labels))
    found = {}
    for some_c in MACHINES[machine][1] if c is None else (c,):
        found[some_c] = np.zeros((len(labels), n_classes))
        for train, test in folds:
            coef, intercept = linear_machines(vectors[train], labels[train], n_classes, some_c, machine=machine)
            found[some_c][test] = vectors[test] @ coef.T + intercept
    return found


def best_c_and_blend(
    held_out: dict[float, NDArray[np.float64]],
    own: NDArray[np.float64],
    labels: NDArray[np.int64],
    *,
    blend: float | None = None,
) -> tuple[int, float, float]:
    """How many answers are right with the best pair, its C, and its weight of the input's own scores.

    Of equally good pairs the first is taken: the smaller C, then the smaller weight. The blend is in units of the
    spread of the machines' held-out scores; the weight is the blend times that spread.
    """
    found = []
    for c, scores in held_out.items():
        spread = float(scores.std())
        for some_blend in _BLEND_GRID if blend is None else (blend,):
            answers = np.argmax(scores + some_blend * spread * own, axis=1)
            found.append((int(np.sum(answers == labels)), c, some_blend * spread))
    return max(found, key=lambda entry: entry[0])


def linear_machines(
    vectors: NDArray[np.float64], labels: NDArray[np.int64], n_classes: int, c: float, *, machine: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients (n_classes, d) and intercepts; zeros for a single class."""
    if n_classes == 1:
        return np.zeros((1, vectors.shape[1])), np.zeros(1)
    with warnings.catch_warnings(), threadpool_limits(1):  # the same sums for any number of threads
        warnings.simplefilter("ignore", ConvergenceWarning)  # what is reached in the rounds allowed is used
        model = MACHINES[machine][0](C=c).fit(vectors, labels)
    coef, intercept = model.coef_, model.intercept_
    if n_classes == 2:
        return np.vstack([-coef, coef]), np.append(-intercept, intercept)
    return np.ascontiguousarray(coef), intercept  # as it comes back from a file: other orders round otherwise

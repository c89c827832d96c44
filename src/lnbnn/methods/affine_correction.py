"""Per-class affine correction of image-to-class distances, learned by a linear program (Behmo et al. 2010).

Pure functions of (distances, labels): no index, no files, no state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from lnbnn.errors import InvalidInputError, LnbnnError

__all__ = ["apply_affine", "cross_fit_affine", "fit_affine"]

_PAIRS_PER_ROUND = 10  # most violated wrong classes of an image that one round of constraint generation adds
_GAP = 1e-9  # relative gap between the restricted and the whole problem at which they count as equal


def apply_affine(
    distances: NDArray[np.floating], alpha: NDArray[np.float64], beta: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The corrected distances, ``alpha[c] * d[:, c] + beta[c]``; the lowest of a row is the answer.

    Examples
    --------
    >>> import numpy as np
    >>> apply_affine(np.array([[4.0, 6.0]]), np.array([1.0, 0.5]), np.array([0.0, 2.0]))
    array([[4., 5.]])
    """
    return alpha * np.asarray(distances, dtype=np.float64) + beta


def fit_affine(
    distances: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    regularization: float = 0.01,
    balance: float = 0.5,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The alpha and beta of every class that minimize the multi-class hinge loss of labeled images.

    Parameters
    ----------
    distances : ndarray of shape (n_images, n_classes)
        Mean squared distance of an image's descriptors to each class, the image itself left out of its class (and, so
        that all classes are alike in this, an image left out of every other).
    labels : ndarray of shape (n_images,)
        The class of each image, from 0.
    regularization : float, default=0.01
        lambda, above 0: how strongly alpha is held near 1 and beta near 0.
    balance : float, default=0.5
        How classes of different size count, 0 to 1: an image has the weight n ** -balance, n being the number of images
        of its class. 0: every image counts the same; 1: every class does.

    Returns
    -------
    alpha : ndarray of shape (n_classes,), at least 0
    beta : ndarray of shape (n_classes,), in units of the distances

    Notes
    -----
    With d'(j, c) = alpha_c d(j, c) + beta_c, y the class of image j and w its weight, weights summing to 1::

        minimize  sum_j w_j mean_{c != y} max(0, s + d'(j, y) - d'(j, c)) / s
                  + lambda / n_classes * sum_c (|alpha_c - 1| * sd + |alpha_c * m + beta_c - m|) / s

    The margin s is the mean gap |d(j, c) - d(j, y)|, so that the distances are of order 1 in units of the margin. The
    penalty looks at slope and shift of the correction around the mean distance m (standard deviation sd): there the
    two do not stand in for each other. Each max is a slack variable, and the whole is a linear program.

    Of the n_images * (n_classes - 1) constraints only those that are violated matter. The program is solved for a
    few, the most violated of the others are added, and so on until the loss over all pairs equals the loss over those
    chosen: the optimum is that of the whole program.

    An image that is alone in its class has no distance to it once left out: it is skipped, and its class keeps
    alpha = 1 and beta = 0. The order of the images does not matter.
    """
    distances, labels = _check(distances, labels, regularization)
    n_classes = distances.shape[1]
    counts = np.bincount(labels, minlength=n_classes)
    used = counts[labels] > 1
    if n_classes < 2 or not used.any():
        return np.ones(n_classes), np.zeros(n_classes)
    distances, labels = distances[used], labels[used]
    order = np.lexsort([*distances.T, labels])  # equal optima: the choice must not depend on the order given
    distances, labels = distances[order], labels[order]
    weights = _weights(counts, labels, balance) / (n_classes - 1)
    own = np.take_along_axis(distances, labels[:, None], axis=1)
    margin = np.abs(distances - own).sum() / (len(labels) * (n_classes - 1))
    if margin == 0.0:
        return np.ones(n_classes), np.zeros(n_classes)
    centered = (distances - distances.mean()) / margin
    slope, shift = _generate(centered, labels, weights, regularization / n_classes, counts > 1)
    alpha = 1.0 + slope
    beta = margin * shift - slope * distances.mean()
    return alpha, beta


def cross_fit_affine(
    distances: NDArray[np.floating],
    labels: NDArray[np.integer],
    *,
    n_folds: int = 5,
    regularization: float = 0.01,
    balance: float = 0.5,
) -> NDArray[np.float64]:
    """The distances of each image corrected by an alpha and beta learned without it, in ``n_folds`` parts.

    Every class is dealt over the parts, in an order that does not depend on that of the images.
    """
    distances, labels = _check(distances, labels, regularization)
    order = np.lexsort([*distances.T, labels])
    folds = np.empty(len(labels), dtype=np.intp)
    folds[order] = np.arange(len(labels)) % n_folds
    result = np.empty_like(distances)
    for fold in range(n_folds):
        inside = folds != fold
        learned = fit_affine(distances[inside], labels[inside], regularization=regularization, balance=balance)
        result[~inside] = apply_affine(distances[~inside], *learned)
    return result


def _generate(
    z: NDArray[np.float64],
    labels: NDArray[np.integer],
    weights: NDArray[np.float64],
    penalty: float,
    is_free: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Slope (alpha - 1) and shift of each class: constraint generation over the pairs (image, wrong class)."""
    n_images, n_classes = z.shape
    rows = np.arange(n_images)
    slope, shift = np.zeros(n_classes), np.zeros(n_classes)
    chosen = np.zeros(z.shape, dtype=bool)
    n_added = min(_PAIRS_PER_ROUND, n_classes)
    while True:
        corrected = z + slope * z + shift
        hinge = 1.0 + corrected[rows, labels][:, None] - corrected
        hinge[rows, labels] = 0.0
        np.maximum(hinge, 0.0, out=hinge)
        waiting = np.where(chosen, 0.0, hinge)
        if weights @ waiting.sum(axis=1) <= _GAP * max(1.0, weights @ hinge.sum(axis=1)):
            return slope, shift
        least = -np.partition(-waiting, n_added - 1, axis=1)[:, [n_added - 1]]
        chosen |= (waiting > 0.0) & (waiting >= least)
        slope, shift = _solve(z, labels, weights, penalty, is_free, *np.nonzero(chosen))


def _solve(
    z: NDArray[np.float64],
    labels: NDArray[np.integer],
    weights: NDArray[np.float64],
    penalty: float,
    is_free: NDArray[np.bool_],
    images: NDArray[np.intp],
    wrong: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The linear program over the pairs chosen, by its dual: one bounded variable per pair, four rows per class.

    With x >= 0 the slope+, slope-, shift+, shift- of the classes, G the pairs and h the gaps, the program is
    ``min c x + w slack`` under ``G x - slack <= h`` and ``slope- <= 1``. Its dual, ``min h y + t`` under
    ``-G' y - t <= c`` and ``0 <= y <= w``, has far fewer rows, and x is the price of each.
    """
    n_pairs, n_classes = len(images), z.shape[1]
    own = labels[images]
    ones = np.ones(n_pairs)
    z_own, z_wrong = z[images, own], z[images, wrong]
    entries = [(own, z_own), (wrong, -z_wrong), (2 * n_classes + own, ones), (2 * n_classes + wrong, -ones)]
    rows = np.concatenate([part for at, _ in entries for part in (at, at + n_classes)])
    values = np.concatenate([part for _, value in entries for part in (value, -value)])
    pairs = sparse.csr_array((-values, (rows, np.tile(np.arange(n_pairs), 8))), shape=(4 * n_classes, n_pairs))
    bound = sparse.csr_array(
        (-np.ones(n_classes), (n_classes + np.arange(n_classes), np.arange(n_classes))), (4 * n_classes, n_classes)
    )
    kept = np.flatnonzero(np.tile(is_free, 4))
    cost = np.repeat([penalty * z.std(), penalty], 2 * n_classes)
    limits = np.concatenate([weights[images], np.full(n_classes, np.inf)])
    found = linprog(
        np.concatenate([z_wrong - z_own - 1.0, np.ones(n_classes)]),
        A_ub=sparse.hstack([pairs, bound], format="csr")[kept],
        b_ub=cost[kept],
        bounds=np.column_stack([np.zeros(len(limits)), limits]),
        method="highs",
    )
    if found.status != 0:
        raise LnbnnError(f"the linear program of the class corrections was not solved: {found.message}")
    parts = np.zeros(4 * n_classes)
    parts[kept] = -found.ineqlin.marginals
    parts = parts.reshape(4, n_classes)
    return parts[0] - parts[1], parts[2] - parts[3]


def _weights(counts: NDArray[np.integer], labels: NDArray[np.integer], balance: float) -> NDArray[np.float64]:
    if not 0.0 <= balance <= 1.0:
        raise InvalidInputError(f"balance must be a number from 0 to 1; got {balance!r}.")
    weights = counts[labels].astype(np.float64) ** -balance
    return weights / weights.sum()


def _check(
    distances: NDArray[np.floating], labels: NDArray[np.integer], regularization: float
) -> tuple[NDArray[np.float64], NDArray[np.integer]]:
    values: NDArray[np.float64] = np.asarray(distances, dtype=np.float64)
    labels = np.asarray(labels)
    if values.ndim != 2 or labels.shape != values.shape[:1] or not np.isfinite(values).all():
        raise InvalidInputError(
            "distances must be finite, of shape (n_images, n_classes), with one label per image; "
            f"got shapes {values.shape} and {labels.shape}."
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < values.shape[1]):
        raise InvalidInputError(
            f"labels must be from 0 to {values.shape[1] - 1}; got {labels.min()} to {labels.max()}."
        )
    if not 0.0 < regularization < np.inf:
        raise InvalidInputError(f"regularization must be a number above 0; got {regularization!r}.")
    return values, labels

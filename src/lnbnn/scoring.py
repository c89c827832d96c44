"""The paper's algorithms as pure functions of (distances, labels): no files, no index, no state.

Every method first computes how much each descriptor of the query image changes the total of each class: the *updates*.
Totals, answers, evidence pictures and tables all come from the updates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError

__all__ = [
    "Updates",
    "first_of_each_class",
    "joined",
    "lead_z",
    "local_nbnn_updates",
    "log_odds_updates",
    "nbnn_updates",
]


@dataclass(frozen=True, eq=False)
class Updates:
    """How much each descriptor changes the total of each class that it updates.

    Parameters
    ----------
    values : ndarray of shape (n_descriptors, m), float64
        What is added to a class's total; lower is better, 0 is neutral.
    labels : ndarray of shape (n_descriptors, m), integer
        The class each value belongs to, from 0; -1 where there is none (its value is 0).
    """

    values: NDArray[np.float64]
    labels: NDArray[np.integer]

    def totals(self, n_classes: int) -> NDArray[np.float64]:
        """Sum over the descriptors: one total per class, the lowest is the answer."""
        known = self.labels >= 0
        totals = np.bincount(self.labels[known], weights=self.values[known], minlength=n_classes)
        return totals.astype(np.float64)

    @property
    def n_increments(self) -> float:
        """How many classes a descriptor updates, on average."""
        return float((self.labels >= 0).sum(axis=1).mean()) if len(self.labels) else 0.0

    def of_class(self, label: int) -> NDArray[np.float64]:
        """The update of one class by each descriptor, shape (n_descriptors,)."""
        return np.where(self.labels == label, self.values, 0.0).sum(axis=1)


def joined(parts: Sequence[Updates]) -> Updates:
    """The updates of several groups of descriptors, concatenated."""
    return Updates(np.concatenate([part.values for part in parts]), np.concatenate([part.labels for part in parts]))


def lead_z(updates: Updates, n_classes: int, n_descriptors: int) -> float:
    """The z-score of the lead of the class with the lowest total over the second.

    The updates are those of an even choice among ``n_descriptors`` descriptors. For each descriptor ``u = update of the
    second class - update of the first``; the sum over all of them is estimated by ``n_descriptors`` times the mean over
    the chosen n, with the standard error of drawing without replacement,
    ``n_descriptors * sd(u) / sqrt(n) * sqrt(1 - n / n_descriptors)``.

    Returns
    -------
    float
        Estimate over standard error; inf if all descriptors are used, or if there is no second class.

    Examples
    --------
    >>> import numpy as np
    >>> seen = Updates(np.array([[-3.0], [-1.0], [-1.0], [-3.0]]), np.array([[0], [0], [1], [0]]))
    >>> round(lead_z(seen, n_classes=2, n_descriptors=8), 3)  # u = 3, 1, -1, 3: mean 1.5, sd 1.915
    2.216
    """
    n_seen = len(updates.values)
    if n_classes < 2 or n_seen >= n_descriptors:
        return math.inf
    first, second = np.argsort(updates.totals(n_classes), kind="stable")[:2].tolist()
    says = updates.of_class(second) - updates.of_class(first)
    error = float(np.std(says, ddof=1)) * math.sqrt((1 - n_seen / n_descriptors) / n_seen) if n_seen > 1 else math.inf
    return float(says.mean()) / error if error > 0 else math.inf


def local_nbnn_updates(distances: NDArray[np.floating], labels: NDArray[np.integer], n_neighbors: int) -> Updates:
    """Local NBNN (Algorithm 2): the classes among the k nearest get dist_C - dist_B.

    Parameters
    ----------
    distances : ndarray of shape (n_descriptors, at least k + 1)
        Squared distances to the nearest neighbors in the merged index, ascending; inf where fewer were found. dist_B
        is the distance of the (k + 1)-th; where that was not found, of the farthest one that was.
    labels : ndarray of the same shape
        The class of each neighbor, from 0; -1 where none was found.
    n_neighbors : int
        k.

    Examples
    --------
    >>> import numpy as np
    >>> updates = local_nbnn_updates(np.array([[1.0, 4.0, 6.0, 9.0]]), np.array([[2, 0, 2, 1]]), n_neighbors=3)
    >>> updates.totals(n_classes=3)
    array([-5.,  0., -8.])
    """
    squared: NDArray[np.float64] = np.asarray(distances, dtype=np.float64)
    labels = np.asarray(labels)
    if squared.ndim != 2 or squared.shape != labels.shape:
        raise InvalidInputError(
            f"distances and labels must be 2-D and of one shape; got {squared.shape} and {labels.shape}."
        )
    if not 1 <= n_neighbors < squared.shape[1]:
        raise InvalidInputError(
            f"n_neighbors must be from 1 to {squared.shape[1] - 1}, one less than the neighbors given; "
            f"got {n_neighbors}."
        )
    nearest, nearest_labels = squared[:, :n_neighbors], labels[:, :n_neighbors]
    within = squared[:, : n_neighbors + 1]
    dist_background = np.where(np.isfinite(within), within, -np.inf).max(axis=1, initial=-np.inf)
    counts = first_of_each_class(nearest_labels) & np.isfinite(nearest)
    values = np.zeros(nearest.shape)
    places = np.nonzero(counts)
    values[places] = nearest[places] - dist_background[places[0]]
    return Updates(values, np.where(counts, nearest_labels, -1))


def nbnn_updates(distances: NDArray[np.floating]) -> Updates:
    """NBNN (Algorithm 1): every class gets the squared distance to its own nearest neighbor.

    Parameters
    ----------
    distances : ndarray of shape (n_descriptors, n_classes)
        Squared distance of each descriptor to its nearest neighbor in each class. Where none was found (inf), the
        class counts as far as the farthest class that was.

    Examples
    --------
    >>> import numpy as np
    >>> nbnn_updates(np.array([[1.0, 4.0], [9.0, 2.0]])).totals(n_classes=2)
    array([10.,  6.])
    """
    values = np.asarray(distances, dtype=np.float64)
    if values.ndim != 2:
        raise InvalidInputError(f"distances must have shape (n_descriptors, n_classes); got {values.shape}.")
    if not np.isfinite(values).all():
        farthest = np.where(np.isfinite(values), values, 0.0).max(axis=1, keepdims=True, initial=0.0)
        values = np.where(np.isfinite(values), values, farthest)
    return Updates(values, np.broadcast_to(np.arange(values.shape[1]), values.shape))


def log_odds_updates(distances: NDArray[np.floating], *, positive_only: bool = False) -> Updates:
    """NBNN as increments of the posterior log-odds (Equation 15), all of them or only the positive ones.

    With equal priors and ``P(C|d)`` proportional to ``exp(-||d - NN_C(d)||^2)``, the increment of class C among n is
    ``log(P(C|d) / (1 - P(C|d))) + log(n - 1)``: positive where the descriptor makes C more probable than before.

    Parameters
    ----------
    distances : ndarray of shape (n_descriptors, n_classes)
        Squared distance of each descriptor to its nearest neighbor in each class, between unit vectors (8-bit
        descriptors: divided by 127 squared).
    positive_only : bool, default=False
        Leave out the increments that are not positive.

    Returns
    -------
    Updates
        The negated increments, so that the lowest total is the answer; the label is -1 where one is left out.

    Notes
    -----
    Each descriptor orders the classes as NBNN does. The sums do too for two classes, and in the limit of small
    distances, where an increment becomes ``n / (n - 1) * (mean distance - distance)``; for more classes they can differ
    from NBNN's where totals are close.

    Examples
    --------
    >>> import numpy as np
    >>> increments = -log_odds_updates(np.array([[1.0, 4.0]])).values
    >>> increments.round(3)
    array([[ 3., -3.]])
    """
    every = nbnn_updates(distances)
    n_classes = every.values.shape[1]
    if n_classes < 2:
        return Updates(np.zeros_like(every.values), every.labels)
    log_p = -every.values - _log_sum(-every.values, axis=1)[:, None]
    rows, likeliest = np.arange(len(log_p)), np.argmax(log_p, axis=1)
    others = log_p.copy()
    others[rows, likeliest] = -np.inf
    log_rest = np.log1p(-np.exp(others))  # log(1 - p): exact enough for all but the likeliest class, whose p may be 1
    log_rest[rows, likeliest] = _log_sum(others, axis=1)
    increments = log_p - log_rest + np.log(n_classes - 1)
    if not positive_only:
        return Updates(0.0 - increments, every.labels)
    kept = increments > 0
    return Updates(np.where(kept, 0.0 - increments, 0.0), np.where(kept, every.labels, -1))


def _log_sum(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """log(sum(exp(values))) without overflow."""
    largest = values.max(axis=axis, keepdims=True)
    return np.log(np.exp(values - largest).sum(axis=axis)) + largest.squeeze(axis)


def first_of_each_class(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """True where a label occurs for the first time in its row; never for -1.

    Examples
    --------
    >>> import numpy as np
    >>> first_of_each_class(np.array([[2, 0, 2, -1]]))
    array([[ True,  True, False, False]])
    """
    order = np.argsort(labels, axis=1, kind="stable")
    ordered = np.take_along_axis(labels, order, axis=1)
    is_first = np.ones(labels.shape, dtype=bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    result = np.empty_like(is_first)
    np.put_along_axis(result, order, is_first, axis=1)
    return result & (labels >= 0)

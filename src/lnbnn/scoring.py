"""The paper's algorithms as pure functions of (distances, labels): no files, no index, no state.

Every method first says how much each descriptor of the query image moves the total of each class: the *updates*.
Totals, answers, evidence pictures and tables are all read from the updates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError

__all__ = ["Updates", "first_of_each_class", "local_nbnn_updates", "nbnn_updates"]


@dataclass(frozen=True, eq=False)
class Updates:
    """How much each descriptor moves the total of each class it speaks for.

    Parameters
    ----------
    values : ndarray of shape (n_descriptors, m), float64
        What is added to a class's total; lower is better, 0 says nothing.
    labels : ndarray of shape (n_descriptors, m), integer
        The class each value belongs to, from 0; -1 where there is none (its value is 0).
    """

    values: NDArray[np.float64]
    labels: NDArray[np.integer]

    def totals(self, n_classes: int) -> NDArray[np.float64]:
        """Sum over the descriptors: one total a class, the lowest is the answer."""
        known = self.labels >= 0
        totals = np.bincount(self.labels[known], weights=self.values[known], minlength=n_classes)
        return totals.astype(np.float64)

    def of_class(self, label: int) -> NDArray[np.float64]:
        """What each descriptor says of one class, shape (n_descriptors,)."""
        return np.where(self.labels == label, self.values, 0.0).sum(axis=1)


def local_nbnn_updates(distances: NDArray[np.floating], labels: NDArray[np.integer], n_neighbors: int) -> Updates:
    """Local NBNN (Algorithm 2): the classes among the k nearest get dist_C - dist_B.

    Parameters
    ----------
    distances : ndarray of shape (n_descriptors, at least k + 1)
        Squared distances to the nearest neighbours in the merged index, ascending. Where fewer were found, inf.
    labels : ndarray of the same shape
        The class of each neighbour, from 0; -1 where none was found.
    n_neighbors : int
        k. The (k+1)-th neighbour gives ``dist_background``; where it was not found, the farthest one that was.

    Examples
    --------
    >>> import numpy as np
    >>> updates = local_nbnn_updates(np.array([[1.0, 4.0, 6.0, 9.0]]), np.array([[2, 0, 2, 1]]), n_neighbors=3)
    >>> updates.totals(n_classes=3)
    array([-5.,  0., -8.])
    """
    distances = np.asarray(distances, dtype=np.float64)
    labels = np.asarray(labels)
    if distances.ndim != 2 or distances.shape != labels.shape:
        raise InvalidInputError(
            f"distances and labels must be 2-D and of one shape; got {distances.shape} and {labels.shape}."
        )
    if not 1 <= n_neighbors < distances.shape[1]:
        raise InvalidInputError(
            f"n_neighbors must be from 1 to {distances.shape[1] - 1}, one less than the neighbors given; "
            f"got {n_neighbors}."
        )
    found = np.where(np.isfinite(distances[:, : n_neighbors + 1]), distances[:, : n_neighbors + 1], -np.inf)
    dist_background = found.max(axis=1, keepdims=True, initial=-np.inf)
    nearest_labels = labels[:, :n_neighbors]
    counts = first_of_each_class(nearest_labels) & np.isfinite(distances[:, :n_neighbors])
    values = np.zeros(nearest_labels.shape)
    np.subtract(distances[:, :n_neighbors], dist_background, out=values, where=counts)
    return Updates(values, np.where(counts, nearest_labels, -1))


def nbnn_updates(distances: NDArray[np.floating]) -> Updates:
    """NBNN (Algorithm 1): every class gets the squared distance to its own nearest neighbour.

    Parameters
    ----------
    distances : ndarray of shape (n_descriptors, n_classes)
        Squared distance of each descriptor to its nearest neighbour in each class. Where none was found (inf), the
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


def first_of_each_class(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """True where a label stands for the first time in its row; never for -1.

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

"""Regularized least squares from vectors to classes, in closed form, with exact scores of rows that are left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

__all__ = ["Regression", "one_thread"]


class Regression:
    """Least squares from vectors to classes, with an L2 penalty on the coefficients and none on the intercept.

    Each class has a regression of its own, to 1 for its vectors and 0 for the others. An image counts once in the
    regression of each other class, and as often as there are other classes in that of its own: so both sides of each
    weigh the same where classes have as many images.

    Parameters
    ----------
    vectors : ndarray of shape (n, d)
    places : ndarray of shape (n,)
        The class of each, from 0; every class has a vector.
    products : ndarray, optional
        :meth:`products_of` the same vectors, where it is known already.

    Notes
    -----
    With X the vectors minus their mean and a the constant, the hat matrix of the regression in which every image counts
    once is ``H = X (X'X + aI)^-1 X' + 1/n``. Where the rows S of a class count w times, the solution is that of
    targets t in place of 1, with ``t_S = w (I + (w - 1) H_SS)^-1 1`` (Woodbury), and the hat matrix becomes
    ``Q = H - (w - 1) H_.S (I + (w - 1) H_SS)^-1 H_S.``. Without row i, which counts v times, the score of i is
    ``(f_i - v Q_ii y_i) / (1 - v Q_ii)``, with f the scores with all rows and y the classes. All is exact. The
    inverse is that of d rows or, the same, of n, whichever are fewer.
    """

    def __init__(
        self, vectors: NDArray[np.floating], places: NDArray[np.integer], products: NDArray[np.float64] | None = None
    ) -> None:
        self.rows = np.asarray(vectors, np.float64)
        self.places = places
        self.mean = self.rows.mean(axis=0)
        n_classes = int(places.max()) + 1
        self.classes = [np.flatnonzero(places == place) for place in range(n_classes)]
        self.weight = _weight_of(n_classes)
        self._is_dual = len(self.rows) <= self.rows.shape[1]
        products = self.products_of(self.rows) if products is None else products
        n = len(self.rows)
        if self._is_dual:
            means = products.mean(axis=1)
            self._matrix = products - means[:, None] - means + means.mean()
        else:
            self._matrix = products - n * np.outer(self.mean, self.mean)
        self._inverse: tuple[float, NDArray[np.float64]] | None = None

    @staticmethod
    def products_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inner products of the vectors, or of their dimensions where these are fewer: what takes the time."""
        return rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows

    def solve(self, alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coefficients of shape (n_classes, d), and intercepts."""
        targets = self._targets(self._blocks(alpha))
        means = targets.mean(axis=0)
        if self._is_dual:
            coef = (self._inverted(alpha) @ (targets - means)).T @ self.rows
        else:
            coef = (self._inverted(alpha) @ (self.rows.T @ (targets - means))).T
        return coef, means - coef @ self.mean

    def _targets(self, blocks: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """What each vector is to score for its class, (n, n_classes), from the class's block of the hat matrix."""
        targets = np.zeros((len(self.rows), len(self.classes)))
        for place, (rows, block) in enumerate(zip(self.classes, blocks, strict=True)):
            targets[rows, place] = self.weight * np.linalg.solve(_widened(block, self.weight), np.ones(len(rows)))
        return targets

    def _inverted(self, alpha: float) -> NDArray[np.float64]:
        from scipy.linalg.lapack import dpotrf, dpotri  # SciPy takes longer to load than an answer takes

        if self._inverse is None or self._inverse[0] != alpha:
            lower, _ = dpotrf(self._matrix + alpha * np.eye(len(self._matrix)), lower=1, overwrite_a=1)
            half, _ = dpotri(lower, lower=1, overwrite_c=1)
            self._inverse = alpha, np.tril(half) + np.tril(half, -1).T
        return self._inverse[1]

    def _hat(
        self, alpha: float, rows: NDArray[np.intp], columns: NDArray[np.intp] | slice = slice(None)
    ) -> NDArray[np.float64]:
        """Rows of the hat matrix, or some columns of them."""
        inverse, n = self._inverted(alpha), len(self.rows)
        if self._is_dual:
            is_same = rows[:, None] == np.arange(n)[columns]
            return is_same - alpha * inverse[rows][:, columns] + 1.0 / n
        return ((self.rows[rows] - self.mean) @ inverse) @ (self.rows[columns] - self.mean).T + 1.0 / n

    def _blocks(self, alpha: float) -> list[NDArray[np.float64]]:
        """Those of the hat matrix that belong to a class."""
        return [self._hat(alpha, rows, rows) for rows in self.classes]

    def spectrum(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """P of shape (n, r) and v: the hat matrix of any constant a is ``P diag(1 / (v + a)) P' + 1/n``."""
        values, directions = np.linalg.eigh(self._matrix)
        values = np.maximum(values, 0.0)
        if self._is_dual:
            return directions * np.sqrt(values), values
        return (self.rows - self.mean) @ directions, values

    def each_left_out(
        self, alpha: float, spectrum: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    ) -> NDArray[np.float64]:
        """The scores of each row by a regression on all others; with the spectrum, many constants take little time."""
        everything = np.arange(len(self.rows))
        if spectrum is None:
            return self.some_left_out(alpha, everything)
        basis, values = spectrum
        hat = (basis / (values + alpha)) @ basis.T + 1.0 / len(self.rows)
        return self._left_out(hat, everything, [hat[np.ix_(rows, rows)] for rows in self.classes])

    def some_left_out(self, alpha: float, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """The scores of some rows, each by a regression on all others."""
        return self._left_out(self._hat(alpha, rows), rows, self._blocks(alpha))

    def _left_out(
        self, hat: NDArray[np.float64], rows: NDArray[np.intp], blocks: list[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """From these rows of the hat matrix, and its blocks of the classes."""
        own = hat[np.arange(len(rows)), rows]
        result = np.empty((len(rows), len(self.classes)))
        for place, (inside, block) in enumerate(zip(self.classes, blocks, strict=True)):
            across = hat[:, inside]
            solved = np.linalg.solve(_widened(block, self.weight), across.T)
            is_inside = self.places[rows] == place
            counts = np.where(is_inside, self.weight, 1.0)
            share = counts * (own - (self.weight - 1.0) * np.einsum("ij,ji->i", across, solved))
            fitted = self.weight * solved.sum(axis=0)
            result[:, place] = (fitted - share * is_inside) / np.maximum(1.0 - share, 1e-12)
        return result

    def each_class_left_out(self, alpha: float) -> NDArray[np.float64]:
        """The scores of each row by a regression on the other classes, -inf for its own class."""
        everything = np.arange(len(self.rows))
        hat = self._hat(alpha, everything)
        weight = _weight_of(len(self.classes) - 1)
        result = np.full((len(self.rows), len(self.classes)), -np.inf)
        for out in self.classes:
            # without the rows S the hat matrix is H + H_.S (I - H_SS)^-1 H_S.
            grown = np.linalg.solve(np.eye(len(out)) - hat[np.ix_(out, out)], hat[out])
            for place, inside in enumerate(self.classes):
                if inside is not out:
                    block = hat[np.ix_(inside, inside)] + hat[np.ix_(inside, out)] @ grown[:, inside]
                    targets = weight * np.linalg.solve(_widened(block, weight), np.ones(len(inside)))
                    result[out, place] = grown[:, inside] @ targets
        return result


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread in linear algebra: the same bits, whatever the number of threads.

    SciPy's library is loaded first: one that comes later would not be limited.
    """
    import scipy.linalg.lapack  # noqa: F401

    with threadpool_limits(1):
        yield


def _weight_of(n_classes: int) -> float:
    """How often an image counts in the regression of its own class."""
    return float(max(1, n_classes - 1))


def _widened(block: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    return np.eye(len(block)) + (weight - 1.0) * block

"""Ridge regression on one vector per image: trained methods that images can be added to and taken from.

Everything is in closed form: the coefficients, the scores of each image as if it, or its class, had not been there,
and with them the choice of the one constant.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.files.arrays import load_array, save_array
from lnbnn.methods.base import Method, Progress, no_progress
from lnbnn.references import Reference, References, can_be_held_out

__all__ = ["ALPHAS", "PooledRegression", "Regression", "RidgeMethod", "in_steps"]

ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""The constants to choose from, for vectors of unit length."""

_STEP = 2.0**-20
_SHARPNESS = tuple(2.0 ** (step / 2) for step in range(2, 15))  # inverse temperatures, 2 to 128
_SQRT_3 = 3.0**0.5
_ARRAYS = {"vectors": (2, "float32"), "coef": (2, "float64"), "intercept": (1, "float64"), "alpha": (1, "float64")}


class Regression:
    """Least squares from vectors to one-hot classes, with an L2 penalty on the coefficients and none on the intercept.

    Parameters
    ----------
    vectors : ndarray of shape (n, d)
    places : ndarray of shape (n,)
        The class of each, from 0.
    products : ndarray, optional
        :meth:`products_of` the same vectors, where it is known already.

    Notes
    -----
    With X the vectors minus their mean, Y the one-hot classes minus theirs and a the constant, the coefficients are
    ``(X'X + aI)^-1 X'Y``, or, the same, ``X'(XX' + aI)^-1 Y``: the smaller of the two is solved. The scores of the
    vectors are ``H Y`` plus the mean of the classes, with the hat matrix ``H = X (X'X + aI)^-1 X' + 1/n``. Without the
    rows S, those of S have the residuals ``(I - H_SS)^-1 r_S``, with r those with all rows.
    """

    def __init__(
        self, vectors: NDArray[np.floating], places: NDArray[np.integer], products: NDArray[np.float64] | None = None
    ) -> None:
        self.rows = vectors.astype(np.float64)
        self.places = places
        self.mean = self.rows.mean(axis=0)
        self.one_hot = np.zeros((len(places), int(places.max()) + 1))
        self.one_hot[np.arange(len(places)), places] = 1.0
        self.shares = self.one_hot.mean(axis=0)
        self._targets = self.one_hot - self.shares
        self._is_dual = len(self.rows) <= self.rows.shape[1]
        products = self.products_of(self.rows) if products is None else products
        n = len(self.rows)
        if self._is_dual:
            means = products.mean(axis=1)
            self._matrix = products - means[:, None] - means + means.mean()
        else:
            self._matrix = products - n * np.outer(self.mean, self.mean)
        self._factor: tuple[float, Any] | None = None

    @staticmethod
    def products_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inner products of the vectors, or of their dimensions where these are fewer: what takes the time."""
        return rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows

    def solve(self, alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coefficients of shape (n_classes, d), and intercepts."""
        centered = self.rows - self.mean
        if self._is_dual:
            coef = self._solved(alpha, self._targets).T @ centered
        else:
            coef = self._solved(alpha, centered.T @ self._targets).T
        return coef, self.shares - coef @ self.mean

    def _solved(self, alpha: float, right: NDArray[np.float64]) -> NDArray[np.float64]:
        from scipy.linalg import cho_factor, cho_solve  # SciPy takes longer to load than an answer takes

        if self._factor is None or self._factor[0] != alpha:
            self._factor = alpha, cho_factor(self._matrix + alpha * np.eye(len(self._matrix)), lower=True)
        solved: NDArray[np.float64] = cho_solve(self._factor[1], right)
        return solved

    def spectrum(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """P of shape (n, r) and v: the hat matrix of any constant a is ``P diag(1 / (v + a)) P' + 1/n``."""
        values, directions = np.linalg.eigh(self._matrix)
        values = np.maximum(values, 0.0)
        if self._is_dual:
            return directions * np.sqrt(values), values
        return (self.rows - self.mean) @ directions, values

    def left_out(
        self, alpha: float, groups: list[NDArray[np.intp]], spectrum: tuple[NDArray[np.float64], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """The scores of the rows of each group by a regression on all other rows."""
        basis, values = spectrum
        weighted = basis / (values + alpha)
        fitted = weighted @ (basis.T @ self._targets)
        residuals = self._targets - fitted
        result = fitted + self.shares
        n = len(self.rows)
        for group in groups:
            hat = weighted[group] @ basis[group].T + 1.0 / n
            grown = np.linalg.solve(np.eye(len(group)) - hat, residuals[group])
            result[group] = self.one_hot[group] - grown
        return result

    def each_left_out(
        self, alpha: float, spectrum: tuple[NDArray[np.float64], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """The scores of each row by a regression on all others."""
        basis, values = spectrum
        weighted = basis / (values + alpha)
        hat = np.einsum("ij,ij->i", weighted, basis) + 1.0 / len(self.rows)
        residuals = self._targets - weighted @ (basis.T @ self._targets)
        return self.one_hot - residuals / np.maximum(1.0 - hat, 1e-12)[:, None]

    def some_left_out(self, alpha: float, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """As :meth:`each_left_out`, of a few rows only: no spectrum is needed."""
        centered = self.rows[rows] - self.mean
        coef, intercept = self.solve(alpha)
        if self._is_dual:
            across = self._matrix[rows]
            hat = np.einsum("ij,ij->i", across, self._solved(alpha, across.T).T)
            hat = (np.einsum("ij,ij->i", centered, centered) - hat) / alpha
        else:
            hat = np.einsum("ij,ij->i", centered, self._solved(alpha, centered.T).T)
        residuals = self.one_hot[rows] - (self.rows[rows] @ coef.T + intercept)
        return self.one_hot[rows] - residuals / np.maximum(1.0 - hat - 1.0 / len(self.rows), 1e-12)[:, None]


def _loss(scores: NDArray[np.float64], places: NDArray[np.integer]) -> float:
    """Negative log-likelihood of the classes by a softmax of the scores, at the best of some temperatures."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    right = np.take_along_axis(shifted, places[:, None], axis=1)[:, 0]
    losses = [np.mean(np.log(np.exp(sharpness * shifted).sum(axis=1)) - sharpness * right) for sharpness in _SHARPNESS]
    return float(min(losses))


def in_steps(vector: NDArray[np.float64]) -> NDArray[np.float32]:
    """A vector of at most unit length in steps of 2^-20.

    The steps make sums of products exact as long as there are not very many images: they are the same in any order,
    and the same whether images were added at once or one by one.
    """
    return (np.rint(vector / _STEP) * _STEP).astype(np.float32)


class RidgeMethod(Method):
    """Ridge regression on one vector per image; the setting is ``alpha``.

    A method says what the vector of an image is, and what each descriptor adds to the scores.
    """

    is_incremental = True
    has_patch_evidence = True

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._vectors: dict[int, NDArray[np.float32]] = {}
        self.coef = np.empty((0, 0))
        self.intercept = self.alpha = np.empty(0)
        self._kept: tuple[list[int], NDArray[np.float64]] = ([], np.empty((0, 0)))  # ids, and products_of the vectors
        self._regression: Regression | None = None
        self._order = np.empty(0, np.intp)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The vector of each reference."""
        return np.stack([self._vectors[image.id] for image in self.references])

    @abstractmethod
    def vector_of(self, features: ImageFeatures) -> NDArray[np.float32]:
        """The vector of an image, of unit length, :func:`in_steps`."""

    @abstractmethod
    def patch_scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        """What each descriptor adds to the score of each class, shape (n_descriptors, n_classes)."""

    # ---- learning -----------------------------------------------------------------------------------------------

    def add(self, image: Reference, features: ImageFeatures) -> None:
        self._vectors[image.id] = self.vector_of(features)

    def remove(self, image: Reference) -> None:
        del self._vectors[image.id]

    def absorb(self, other: Method, place: int, image: Reference) -> None:
        assert isinstance(other, RidgeMethod)
        self._vectors[image.id] = other._vectors[other.references[place].id]

    def resume(self, *, keeps_structure: bool = False) -> None:
        self._regression = None

    def finish(self, references: References, progress: Progress) -> None:
        sizes = sorted({vector.size for vector in self._vectors.values()})
        if len(sizes) > 1:
            raise InvalidInputError(f"descriptors must all have the same length; got {', '.join(map(str, sizes))}.")
        self.references = references
        progress("solving", 0, 1)
        with threadpool_limits(1):  # the same bits, whatever the number of threads
            regression = self._make_regression()
            if self.settings.alpha is not None:
                self.alpha = np.array([float(self.settings.alpha)])
            elif not self.alpha.size:
                self.alpha = np.array([self._best_alpha(regression)])
            self.coef, self.intercept = regression.solve(float(self.alpha[0]))
        progress("solving", 1, 1)

    def compact(self, *, full: bool, progress: Progress) -> None:
        """Choose the constant again."""
        self.alpha = np.empty(0)
        self.finish(self.references, progress)

    def _make_regression(self) -> Regression:
        """Of all references, in the order of their vectors: that of the images does not matter."""
        ids, rows, places = [image.id for image in self.references], self.vectors, self.references.places
        products = self._products(ids, rows.astype(np.float64))
        order = self._order = np.array(sorted(range(len(ids)), key=lambda row: (rows[row].tobytes(), places[row])))
        if len(products) == len(ids) <= rows.shape[1]:
            products = products[np.ix_(order, order)]
        self._regression = Regression(rows[order], places[order], products)
        return self._regression

    def _products(self, ids: list[int], rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """:meth:`Regression.products_of` the vectors of these images, from those before a change if they are known."""
        before, known = self._kept
        is_dual = len(ids) <= rows.shape[1]
        new = sorted({*ids} - {*before})
        if not before or not {*before} <= {*ids} or is_dual != (len(before) <= rows.shape[1]):
            known = Regression.products_of(rows)
        elif new:  # ids ascend: those of new images are the last
            added = rows[-len(new) :]
            if is_dual:
                across = rows[: -len(new)] @ added.T
                known = np.block([[known, across], [across.T, added @ added.T]])
            else:
                known = known + added.T @ added
        self._kept = (ids, known)
        return known

    def _in_order(self, found: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows of the regression as rows of the references."""
        result = np.empty_like(found)
        result[self._order] = found
        return result

    def _best_alpha(self, regression: Regression) -> float:
        """The constant at which the classes of the images, each left out, are most likely."""
        used = can_be_held_out(regression.places)
        if not used.any() or len(self.references.classes) < 2:
            return 0.3
        spectrum = regression.spectrum()
        places = regression.places[used]
        losses = [_loss(regression.each_left_out(alpha, spectrum)[used], places) for alpha in ALPHAS]
        return ALPHAS[int(np.argmin(losses))]

    # ---- scoring ------------------------------------------------------------------------------------------------

    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        # not BLAS: images are worked on side by side, where its own threads only wait
        return np.einsum("cd,d->c", self.coef, self.vector_of(features).astype(np.float64)) + self.intercept

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        progress("leaving each image out", 0, 1)
        alpha, known = float(self.alpha[0]), can_be_held_out(self.references.places)
        with threadpool_limits(1):
            regression = self._regression or self._make_regression()
            if rows is None:
                result = self._in_order(regression.each_left_out(alpha, regression.spectrum()))
            else:
                known = known[list(rows)]
                result = regression.some_left_out(alpha, np.argsort(self._order)[list(rows)])
        result[~known] = 0.0
        progress("leaving each image out", 1, 1)
        return result

    def unknown_scores(self, progress: Progress = no_progress) -> NDArray[np.float64] | None:
        places = self.references.places
        with threadpool_limits(1):
            regression = self._regression or self._make_regression()
            groups = [np.flatnonzero(regression.places == place) for place in range(len(self.references.classes))]
            progress("leaving each class out", 0, 1)
            result = self._in_order(regression.left_out(float(self.alpha[0]), groups, regression.spectrum()))
        result[np.arange(len(places)), places] = -np.inf
        progress("leaving each class out", 1, 1)
        return result

    # ---- keeping ------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        for name in _ARRAYS:
            save_array(folder / f"ridge_{name}.npy", getattr(self, name))

    def load(self, folder: Path, references: References) -> None:
        self.references = references
        found = {
            name: np.array(load_array(folder / f"ridge_{name}.npy", ndim=ndim, dtypes=(dtype,)))
            for name, (ndim, dtype) in _ARRAYS.items()
        }
        n_classes, vectors = len(references.classes), found.pop("vectors")
        shapes = [vectors.shape, *(array.shape for array in found.values())]
        n_dims = vectors.shape[1]
        if shapes != [(len(references), n_dims), (n_classes, n_dims), (n_classes,), (1,)]:
            raise ModelFormatError(f"{folder}: the regression's arrays do not fit the images; fit the model again.")
        if not all(np.isfinite(array).all() for array in (vectors, *found.values())) or not found["alpha"][0] > 0:
            raise ModelFormatError(f"{folder}: the regression's arrays hold no finite numbers; fit the model again.")
        self.coef, self.intercept, self.alpha = found.values()
        self._vectors = {image.id: vector for image, vector in zip(references, vectors, strict=True)}

    @property
    def nbytes(self) -> int:
        return self.coef.nbytes + self.intercept.nbytes + sum(vector.nbytes for vector in self._vectors.values())


class PooledRegression(RidgeMethod):
    """Ridge regression on what an image's descriptors have in common; the setting beyond ``alpha`` is ``spatial``.

    The vector is their mean, of unit length; with ``spatial`` also their maximum and the means of the picture's four
    quarters. Given the lengths, the score of a class is linear in the descriptors, so it is the sum of what each says
    (:meth:`patch_scores`): a maximum is what the first descriptor that reaches it says.
    """

    needs_normalizer = False

    def prepare(self, features: ImageFeatures, normalizer: object) -> ImageFeatures:
        """The features as they are."""
        return features

    def vector_of(self, features: ImageFeatures) -> NDArray[np.float32]:
        """The mean of the descriptors, and what else ``spatial`` asks for, of unit length."""
        rows = _rows(features)
        means = np.einsum("mr,rd->md", self._shares(features), rows)
        blocks = means / self._lengths(means)[:, None]
        if not self.settings.spatial:
            return in_steps(blocks[0])
        largest = rows.max(axis=0)
        return in_steps(np.concatenate([blocks[0], largest / _length(largest) / _SQRT_3, *blocks[1:]]))

    def patch_scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        self._check(features)
        rows, n_dims = _rows(features), features.n_dims
        coef = self.coef.reshape(len(self.coef), -1, n_dims)
        shares = self._shares(features)
        means = shares @ rows
        result = np.tile(self.intercept / len(rows), (len(rows), 1))
        of_means = np.delete(coef, 1, axis=1) if self.settings.spatial else coef
        for share, length, one in zip(shares, self._lengths(means), of_means.swapaxes(0, 1), strict=True):
            result += share[:, None] / length * (rows @ one.T)
        if self.settings.spatial:
            largest, first = rows.max(axis=0), rows.argmax(axis=0)
            np.add.at(result, first, (coef[:, 1] * largest / _length(largest) / _SQRT_3).T)
        return result

    def _shares(self, features: ImageFeatures) -> NDArray[np.float64]:
        """What each descriptor counts in each mean: of the picture, and of its quarters if they are asked for.

        A quarter without descriptors has those of the whole picture.
        """
        n = len(features)
        whole = np.full(n, 1.0 / n)
        if not self.settings.spatial:
            return whole[None]
        quarter = (features.xy >= 0.5) @ np.array([1, 2])
        inside = [(quarter == number).astype(np.float64) for number in range(4)]
        return np.stack([whole, *(one / one.sum() if one.any() else whole for one in inside)])

    def _lengths(self, means: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the means are divided by, so that picture, maximum and the quarters together are a third each."""
        lengths = np.array([_length(mean) for mean in means])
        return lengths if not self.settings.spatial else lengths * _SQRT_3 * np.array([1.0, 2.0, 2.0, 2.0, 2.0])

    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        self._check(features)
        return super().scores(features)

    def _check(self, features: ImageFeatures) -> None:
        n_dims = self.coef.shape[1] // (6 if self.settings.spatial else 1)
        if features.n_dims != n_dims:
            raise InvalidInputError(
                f"descriptors must have the length {n_dims}, as those the model was fitted on; got {features.n_dims}."
            )

    def describe(self) -> str:
        what = "mean, maximum and quarters" if self.settings.spatial else "mean"
        return f"ridge regression (alpha={self.alpha[0]:g}) on the {what} of the descriptors"


def _rows(features: ImageFeatures) -> NDArray[np.float64]:
    rows: NDArray[np.float64] = features.descriptors.astype(np.float64)
    return rows / UNIT_LENGTH if features.descriptors.dtype == np.uint8 else rows


def _length(vector: NDArray[np.float64]) -> float:
    """The length of a vector; 1 for one of zeros."""
    return float(np.linalg.norm(vector)) or 1.0

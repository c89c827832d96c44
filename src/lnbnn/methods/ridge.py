"""Ridge regression on one vector per image: trained methods to which images can be added, and from which they can be
removed.

Everything is in closed form: the coefficients, the leave-one-out and leave-one-class-out scores, and so the choice of
alpha.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The constants to choose from, for vectors of unit length."""

_PRODUCTS = "ridge_products.npy"
_MAX_KEPT = 4096  # rows of the products that are kept with a model; those of more are worked out when it changes
_ABOUT_AS_GOOD = 0.01  # share of the least loss
_STEP = 2.0**-20
_SHARPNESS = tuple(2.0 ** (step / 2) for step in range(2, 15))  # inverse temperatures, 2 to 128
_SQRT_3 = 3.0**0.5
_ARRAYS = {
    "vectors": (2, ("float32", "float16")),
    "coef": (2, ("float64",)),
    "intercept": (1, ("float64",)),
    "alpha": (1, ("float64",)),
}


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
def _one_thread() -> Iterator[None]:
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
        self._of_image: dict[int, NDArray[np.floating]] = {}
        self._unread: tuple[list[int], NDArray[np.generic]] | None = None  # ids, and their vectors on disk
        self.coef = np.empty((0, 0))
        self.intercept = self.alpha = np.empty(0)
        self._kept: tuple[list[int], NDArray[np.float64]] = ([], np.empty((0, 0)))  # ids, and products_of the vectors
        self._regression: Regression | None = None
        self._order = np.empty(0, np.intp)

    @property
    def _vectors(self) -> dict[int, NDArray[np.floating]]:
        """The vector of each image by its id; an answer needs none of them."""
        if self._unread is not None:
            ids, vectors = self._unread[0], np.array(self._unread[1])
            if not np.isfinite(vectors).all():
                raise ModelFormatError("the regression's vectors are no finite numbers; fit the model again.")
            self._of_image, self._unread = dict(zip(ids, vectors, strict=True)), None
        return self._of_image

    @property
    def vectors(self) -> NDArray[np.floating]:
        """The vector of each reference."""
        return np.stack([self._vectors[image.id] for image in self.references])

    @abstractmethod
    def vector_of(self, features: ImageFeatures) -> NDArray[np.floating]:
        """The vector of an image, of unit length, :func:`in_steps` or in float16, whose steps are of that kind."""

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
        with _one_thread():
            regression = self._make_regression()
            if self.settings.alpha is not None:
                self.alpha = np.array([float(self.settings.alpha)])
            elif not self.alpha.size:
                self.alpha = np.array([self._best_alpha(regression)])
            self.coef, self.intercept = regression.solve(float(self.alpha[0]))
        if not (np.isfinite(self.coef).all() and np.isfinite(self.intercept).all()):
            raise ModelFormatError("the regression's arrays hold no finite numbers; fit the model again.")
        progress("solving", 1, 1)

    def compact(self, *, full: bool, progress: Progress) -> None:
        """Choose the constant again."""
        self.alpha = np.empty(0)
        self.finish(self.references, progress)

    def _make_regression(self) -> Regression:
        """Of all references, in the order of their vectors: that of the images does not matter."""
        places = self.references.places
        vectors = [self._vectors[image.id] for image in self.references]
        keys = [(vector.tobytes(), place) for vector, place in zip(vectors, places, strict=True)]
        order = self._order = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        rows = np.empty((len(keys), vectors[0].size))
        for row, place in enumerate(order):
            rows[row] = vectors[place]
        products = self._products(rows)
        if products.shape[0] == len(rows) <= rows.shape[1]:
            products = products[np.ix_(order, order)]
        self._regression = Regression(rows, places[order], products)
        return self._regression

    def _products(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """:meth:`Regression.products_of` the vectors of the references, from those before a change if they are known.

        The rows are ordered; the products of images are in the order of the references.
        """
        ids = [image.id for image in self.references]
        before, known = self._kept
        if ids == before:
            return known
        is_dual, was_dual = len(ids) <= rows.shape[1], len(before) <= rows.shape[1]
        back = np.argsort(self._order)
        stays = np.isin(before, ids)
        is_new = ~np.isin(ids, before)
        if is_dual != was_dual or is_new.all() or not (is_dual or stays.all()):
            known = Regression.products_of(rows)
            if is_dual:
                known = known[np.ix_(back, back)]
        elif is_dual:
            across = np.empty((len(ids), is_new.sum()))
            across[self._order] = rows @ rows[back[is_new]].T
            products = np.empty((len(ids), len(ids)))
            products[np.ix_(~is_new, ~is_new)] = known[np.ix_(stays, stays)]
            products[:, is_new], products[is_new] = across, across.T
            known = products
        elif is_new.any():
            added = rows[back[is_new]]
            known = known + added.T @ added
        self._kept = (ids, known)
        return known

    def _in_order(self, found: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows of the regression as rows of the references."""
        result = np.empty_like(found)
        result[self._order] = found
        return result

    def _best_alpha(self, regression: Regression) -> float:
        """The constant at which the classes of the images, each left out, are most likely; where several are about as
        good, the one at which the most are right, and the largest of these."""
        used = can_be_held_out(regression.places)
        if not used.any() or len(self.references.classes) < 2:
            return 0.3
        spectrum = regression.spectrum()
        places = regression.places[used]
        losses, right = [], []
        for alpha in ALPHAS:
            scores = regression.each_left_out(alpha, spectrum)[used]
            losses.append(_loss(scores, places))
            right.append(int(np.sum(scores.argmax(axis=1) == places)))
        good = [place for place, loss in enumerate(losses) if loss <= (1.0 + _ABOUT_AS_GOOD) * min(losses)]
        return ALPHAS[max(good, key=lambda place: (right[place], place))]

    # ---- scoring ------------------------------------------------------------------------------------------------

    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        # not BLAS: images are worked on side by side, where its own threads only wait
        return np.einsum("cd,d->c", self.coef, self.vector_of(features).astype(np.float64)) + self.intercept

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        progress("leaving each image out", 0, 1)
        alpha, known = float(self.alpha[0]), can_be_held_out(self.references.places)
        with _one_thread():
            regression = self._regression or self._make_regression()
            if rows is None:
                result = self._in_order(regression.each_left_out(alpha))
            else:
                known = known[list(rows)]
                result = regression.some_left_out(alpha, np.argsort(self._order)[list(rows)])
        result[~known] = 0.0
        progress("leaving each image out", 1, 1)
        return result

    def unknown_scores(self, progress: Progress = no_progress) -> NDArray[np.float64] | None:
        with _one_thread():
            regression = self._regression or self._make_regression()
            progress("leaving each class out", 0, 1)
            result = self._in_order(regression.each_class_left_out(float(self.alpha[0])))
        progress("leaving each class out", 1, 1)
        return result

    # ---- keeping ------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        for name in _ARRAYS:
            save_array(folder / f"ridge_{name}.npy", getattr(self, name))
        ids, products = self._kept
        if ids == [image.id for image in self.references] and len(products) <= _MAX_KEPT:
            save_array(folder / _PRODUCTS, products)

    def load(self, folder: Path, references: References) -> None:
        self.references = references
        found = {
            name: load_array(folder / f"ridge_{name}.npy", ndim=ndim, dtypes=dtypes)
            for name, (ndim, dtypes) in _ARRAYS.items()
        }
        n_classes, vectors = len(references.classes), found.pop("vectors")
        shapes = [vectors.shape, *(array.shape for array in found.values())]
        n_dims = vectors.shape[1]
        if shapes != [(len(references), n_dims), (n_classes, n_dims), (n_classes,), (1,)]:
            raise ModelFormatError(f"{folder}: the regression's arrays do not fit the images; fit the model again.")
        if not all(np.isfinite(array).all() for array in found.values()) or not found["alpha"][0] > 0:
            raise ModelFormatError(f"{folder}: the regression's arrays hold no finite numbers; fit the model again.")
        self.coef, self.intercept, self.alpha = (np.array(array, np.float64) for array in found.values())
        self._of_image, self._unread = {}, ([image.id for image in references], vectors)
        if (folder / _PRODUCTS).exists():
            products = load_array(folder / _PRODUCTS, ndim=2, dtypes=("float64",))
            if products.shape != (min(vectors.shape),) * 2:
                raise ModelFormatError(f"{folder / _PRODUCTS}: does not fit the images; fit the model again.")
            self._kept = ([image.id for image in references], np.asarray(products, np.float64))

    @property
    def nbytes(self) -> int:
        known = [self._unread[1]] if self._unread is not None else self._of_image.values()
        return self.coef.nbytes + self.intercept.nbytes + sum(vector.nbytes for vector in known)


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

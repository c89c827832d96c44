"""Ridge regression on one vector per image: trained methods to which images can be added, and from which they can be
removed.

Everything is in closed form: the coefficients, the leave-one-out and leave-one-class-out scores, and so the choice of
alpha.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.files.arrays import load_array, save_array
from lnbnn.methods.base import Method, Progress, no_progress
from lnbnn.methods.least_squares import Regression, one_thread
from lnbnn.references import Reference, References, can_be_held_out

__all__ = ["ALPHAS", "RidgeMethod", "best_alpha", "in_steps"]

ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The constants to choose from, for vectors of unit length."""

_PRODUCTS = "ridge_products.npy"
_MAX_KEPT = 4096  # rows of the products that are kept with a model; those of more are worked out when it changes
_ABOUT_AS_GOOD = 0.02  # share of the least loss
_STEP = 2.0**-20
_SHARPNESS = tuple(2.0 ** (step / 2) for step in range(2, 15))  # inverse temperatures, 2 to 128
_ARRAYS = {
    "vectors": (2, ("float32", "float16")),
    "coef": (2, ("float64",)),
    "intercept": (1, ("float64",)),
    "alpha": (1, ("float64",)),
}


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


def best_alpha(regression: Regression) -> float:
    """The constant at which the classes of the images, each left out, are most likely; where several are about as good,
    the one at which the most are right, and the largest of these."""
    used = can_be_held_out(regression.places)
    if not used.any() or len(regression.classes) < 2:
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
        """The vector of an image, of unit length (or several, each so), :func:`in_steps` or in float16, whose steps are
        of that kind."""

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
        with one_thread():
            regression = self._make_regression()
            if self.settings.alpha is not None:
                self.alpha = np.array([float(self.settings.alpha)])
            elif not self.alpha.size:
                self.alpha = np.array([best_alpha(regression)])
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

    # ---- scoring ------------------------------------------------------------------------------------------------

    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        # not BLAS: images are worked on side by side, where its own threads only wait
        return np.einsum("cd,d->c", self.coef, self.vector_of(features).astype(np.float64)) + self.intercept

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        progress("leaving each image out", 0, 1)
        alpha, known = float(self.alpha[0]), can_be_held_out(self.references.places)
        with one_thread():
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
        with one_thread():
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

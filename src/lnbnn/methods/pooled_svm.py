"""Linear SVMs on the mean of an image's descriptors: the plain trained method, alone or in a fusion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.normalization import Normalizer
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.files.arrays import load_array, save_array
from lnbnn.methods.base import Method, Progress, no_progress
from lnbnn.methods.linear_classifiers import fit_linear
from lnbnn.references import Reference, References, can_be_held_out

__all__ = ["PooledLinearSVM"]

_N_FOLDS = 5
_ARRAYS = {"vectors": (2, "float32"), "coef": (2, "float64"), "intercept": (1, "float64"), "center": (1, "float64")}


class PooledLinearSVM(Method):
    """One linear SVM per class on the mean of an image's descriptors; the setting is ``C``.

    The mean is taken before anything is scaled to unit length, turned to the principal components that the model
    learned where it has any, centered on the labeled images and then scaled to unit length itself.
    """

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._means: list[NDArray[np.generic]] = []
        self.vectors = self.coef = np.empty((0, 0))
        self.intercept = self.center = np.empty(0)

    def prepare(self, features: ImageFeatures, normalizer: Normalizer | None) -> ImageFeatures:
        """One descriptor, the mean of all, in the middle of the picture; none of an image that has none."""
        if not len(features):
            return features
        mean = features.descriptors.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32)
        if features.descriptors.dtype == np.uint8:
            mean /= np.float32(UNIT_LENGTH)
        elif normalizer is not None:
            mean = normalizer.project(mean)
        return ImageFeatures(mean, np.full((1, 2), 0.5), np.full(1, max(features.size)), features.size)

    def add(self, image: Reference, features: ImageFeatures) -> None:
        self._means.append(features.descriptors)

    def finish(self, references: References, progress: Progress) -> None:
        if len({mean.shape for mean in self._means}) > 1:
            sizes = sorted({mean.shape[1] for mean in self._means})
            raise InvalidInputError(f"descriptors must all have the same length; got {', '.join(map(str, sizes))}.")
        self.references = references
        self.vectors = np.concatenate(self._means).astype(np.float32)
        self._means = []
        progress("training", 0, 1)
        self.center, self.coef, self.intercept = self._trained(np.arange(len(self.vectors)))
        progress("training", 1, 1)

    def _trained(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Center, coefficients and intercepts learned from some of the labeled images."""
        places, n_classes = self.references.places, len(self.references.classes)
        rows = rows[np.lexsort((*self.vectors[rows].T, places[rows]))]  # the order of the images does not matter
        center = self.vectors[rows].mean(axis=0, dtype=np.float64)
        standard = _unit(self.vectors[rows] - center)
        return center, *fit_linear(standard, places[rows], n_classes, float(self.settings.C), kind="svm")

    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        if features.n_dims != self.center.size:
            raise InvalidInputError(
                f"descriptors must have the length {self.center.size}, as those the model was fitted on; "
                f"got {features.n_dims}."
            )
        return self.coef @ _unit(features.descriptors.astype(np.float64) - self.center)[0] + self.intercept

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        """Scores of each fifth of the labeled images by SVMs trained on the others."""
        places = self.references.places
        order = np.lexsort((*self.vectors.T, places))
        fold = np.empty(len(places), np.intp)  # images of a class go to the folds in turn
        fold[order] = np.arange(len(order)) - np.searchsorted(places[order], places[order])
        fold = np.where(can_be_held_out(places), fold % _N_FOLDS, -1)
        scores = np.zeros((len(places), len(self.references.classes)))
        for number in range(_N_FOLDS):
            held = fold == number
            if held.any():
                center, coef, intercept = self._trained(np.flatnonzero(~held))
                scores[held] = _unit(self.vectors[held] - center) @ coef.T + intercept
            progress("leaving each fifth out", number + 1, _N_FOLDS)
        return scores if rows is None else scores[list(rows)]

    def save(self, folder: Path) -> None:
        for name in _ARRAYS:
            save_array(_file(folder, name), getattr(self, name))

    def load(self, folder: Path, references: References) -> None:
        self.references = references
        for name, (ndim, dtype) in _ARRAYS.items():
            setattr(self, name, np.array(load_array(_file(folder, name), ndim=ndim, dtypes=(dtype,))))
        n_classes, n_dims = len(references.classes), self.center.size
        shapes = [self.vectors.shape, self.coef.shape, self.intercept.shape]
        if shapes != [(len(references), n_dims), (n_classes, n_dims), (n_classes,)]:
            raise ModelFormatError(f"{folder}: the SVM's arrays do not fit the images; fit the model again.")

    def describe(self) -> str:
        return f"linear SVMs (C={self.settings.C:g}) on the mean descriptor of an image, {self.center.size} numbers"

    @property
    def nbytes(self) -> int:
        return sum(int(getattr(self, name).nbytes) for name in _ARRAYS)


def _file(folder: Path, name: str) -> Path:
    return folder / f"pooled_{'centre' if name == 'center' else name}.npy"  # as the format spells it


def _unit(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rows of unit length; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros(rows.shape), where=lengths > 0)

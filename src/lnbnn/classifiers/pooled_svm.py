"""Linear SVMs on the mean of an image's descriptors: the plain trained method, alone or as a voice in a fusion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import ImageClassifier
from lnbnn.classifiers.machines import linear_machines
from lnbnn.classifiers.probabilities import can_be_held_out
from lnbnn.classifiers.spatial_pyramid import check_positive
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.files.arrays import load_array, save_array
from lnbnn.reading.extraction import Progress

__all__ = ["PooledSVM"]

_N_FOLDS = 5
_SHAPES = {"vectors": 2, "coef": 2, "intercept": 1, "centre": 1}  # arrays of the model and their dimensions


class PooledSVM(ImageClassifier):
    """One linear SVM a class on the mean of an image's descriptors.

    The mean is taken before anything is scaled to unit length, turned to the principal components that the model learnt
    where it has any, centred on the labelled images and then scaled to unit length itself.

    Parameters
    ----------
    C : float, default=1.0
        Regularisation of the SVMs.
    descriptor, descriptor_params, n_jobs, random_state
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`; nothing is drawn at random.

    Attributes
    ----------
    vectors_ : ndarray of shape (n_images, n_dims)
        The mean of each labelled image.
    centre_ : ndarray of shape (n_dims,)
    coef_ : ndarray of shape (n_classes, n_dims)
    intercept_ : ndarray of shape (n_classes,)
    """

    method = "pooled-svm"

    def __init__(
        self,
        *,
        C: float = 1.0,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.C = C
        self.descriptor = descriptor
        self.descriptor_params = descriptor_params
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        super().check_settings()
        check_positive("C", self.C)

    def normalize(self, features: ImageFeatures) -> ImageFeatures:
        """One descriptor, the mean of all, in the middle of the picture; none of an image that has none."""
        if not len(features):
            return features
        mean = features.descriptors.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32)
        if features.descriptors.dtype == np.uint8:
            mean /= np.float32(UNIT_LENGTH)
        elif self.normalizer_ is not None:
            mean = self.normalizer_.project(mean)
        return ImageFeatures(mean, np.full((1, 2), 0.5), np.full(1, max(features.size)), features.size)

    def _start_fit(self) -> None:
        self._means: list[NDArray[np.generic]] = []

    def _add_image(self, features: ImageFeatures, number: int, label: Any) -> None:
        self._means.append(features.descriptors)

    def _end_fit(self, progress: Progress) -> None:
        if len({mean.shape for mean in self._means}) > 1:
            sizes = sorted({mean.shape[1] for mean in self._means})
            raise InvalidInputError(f"descriptors must all have the same length; got {', '.join(map(str, sizes))}.")
        self.vectors_ = np.concatenate(self._means).astype(np.float32)
        del self._means
        progress("training", 0, 1)
        self.centre_, self.coef_, self.intercept_ = self._trained(np.arange(len(self.vectors_)))
        progress("training", 1, 1)

    def _trained(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Centre, coefficients and intercepts learnt from some of the labelled images."""
        labels = self._labels()
        rows = rows[np.lexsort((*self.vectors_[rows].T, labels[rows]))]  # the order of the images does not matter
        centre = self.vectors_[rows].mean(axis=0, dtype=np.float64)
        standard = _unit(self.vectors_[rows] - centre)
        return centre, *linear_machines(standard, labels[rows], len(self.classes_), float(self.C), machine="svm")

    def _labels(self) -> NDArray[np.int64]:
        return np.array([image.label for image in self.images_], dtype=np.int64)

    def _scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        if features.n_dims != self.centre_.size:
            raise InvalidInputError(
                f"descriptors must have the length {self.centre_.size}, as those the model was fitted on; "
                f"got {features.n_dims}."
            )
        return self.coef_ @ _unit(features.descriptors.astype(np.float64) - self.centre_)[0] + self.intercept_

    def _held_out_scores(self, progress: Progress) -> NDArray[np.float64]:
        """Scores of each fifth of the labelled images by machines that learnt from the others."""
        labels = self._labels()
        order = np.lexsort((*self.vectors_.T, labels))
        fold = np.empty(len(labels), np.intp)  # images of a class go to the folds in turn
        fold[order] = np.arange(len(order)) - np.searchsorted(labels[order], labels[order])
        fold = np.where(can_be_held_out(labels), fold % _N_FOLDS, -1)
        scores = np.zeros((len(labels), len(self.classes_)))
        for number in range(_N_FOLDS):
            held = fold == number
            if held.any():
                centre, coef, intercept = self._trained(np.flatnonzero(~held))
                scores[held] = _unit(self.vectors_[held] - centre) @ coef.T + intercept
            progress("leaving each fifth out", number + 1, _N_FOLDS)
        return scores

    def _save_parts(self, folder: Path) -> None:
        for name in _SHAPES:
            save_array(folder / f"pooled_{name}.npy", getattr(self, f"{name}_"))

    def _load_parts(self, folder: Path) -> None:
        for name, ndim in _SHAPES.items():
            dtype = "float32" if name == "vectors" else "float64"
            setattr(self, f"{name}_", np.array(load_array(folder / f"pooled_{name}.npy", ndim=ndim, dtypes=(dtype,))))
        n_classes, n_dims = len(self.classes_), self.centre_.size
        shapes = [self.vectors_.shape, self.coef_.shape, self.intercept_.shape]
        if shapes != [(len(self.images_), n_dims), (n_classes, n_dims), (n_classes,)]:
            raise ModelFormatError(f"{folder}: the SVM's arrays do not fit the images; fit the model again.")

    def describe(self) -> str:
        """One line that says how the answer is found."""
        return f"linear SVMs (C={self.C:g}) on the mean descriptor of an image, {self.centre_.size} numbers"

    @property
    def nbytes_(self) -> int:
        """Bytes of the arrays in memory."""
        return sum(int(getattr(self, f"{name}_").nbytes) for name in _SHAPES)


def _unit(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rows of unit length; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros(rows.shape), where=lengths > 0)

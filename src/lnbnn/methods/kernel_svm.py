"""One-vs-all support vector machines on a kernel computed beforehand, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from lnbnn.errors import ModelFormatError
from lnbnn.files.arrays import load_array, save_array
from lnbnn.reading.extraction import Progress, map_in_order, no_progress

__all__ = ["KernelSVM", "fit_one_vs_all"]


@dataclass(frozen=True, eq=False)
class KernelSVM:
    """One classifier per class: the score of class c for x is ``sum_i dual[c, i] K(x_i, x) + intercepts[c]``.

    Parameters
    ----------
    dual : ndarray of shape (n_classes, n_images), float64
        Dual coefficients with their signs; zero where a training image is no support vector.
    intercepts : ndarray of shape (n_classes,), float64
    """

    dual: NDArray[np.float64]
    intercepts: NDArray[np.float64]

    def scores(self, kernel_row: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of each class for an image, from its kernel with all training images."""
        return (self.dual * kernel_row).sum(axis=1) + self.intercepts

    @property
    def nbytes(self) -> int:
        return int(self.dual.nbytes + self.intercepts.nbytes)

    def save(self, folder: Path) -> None:
        """Write ``dual.npy`` and ``intercepts.npy``."""
        save_array(folder / "dual.npy", self.dual)
        save_array(folder / "intercepts.npy", self.intercepts)

    @classmethod
    def load(cls, folder: Path, n_classes: int, n_images: int) -> KernelSVM:
        """Read what :meth:`save` wrote."""
        dual = load_array(folder / "dual.npy", ndim=2, dtypes=("float64",))
        intercepts = load_array(folder / "intercepts.npy", ndim=1, dtypes=("float64",))
        if dual.shape != (n_classes, n_images) or intercepts.shape != (n_classes,):
            raise ModelFormatError(f"{folder}: the SVMs do not fit the classes and images; fit the model again.")
        return cls(np.asarray(dual, np.float64), np.asarray(intercepts, np.float64))


def fit_one_vs_all(
    kernel: NDArray[np.float64],
    labels: NDArray[np.int64],
    n_classes: int,
    *,
    C: float,
    n_jobs: int | None = 1,
    progress: Progress = no_progress,
) -> KernelSVM:
    """Train a classifier per class to tell its images from all others.

    Parameters
    ----------
    kernel : ndarray of shape (n_images, n_images)
    labels : ndarray of shape (n_images,)
        The class of each image, from 0 to ``n_classes - 1``; each class has an image.
    C : float
        Penalty for an image on the wrong side of the margin.
    n_jobs : int or None, default=1
        Threads; the result does not depend on it.

    Notes
    -----
    An SVM minimizes ``|w|^2 / 2 + C sum_i max(0, 1 - t_i (w.x_i + b))`` with ``t_i`` 1 for images of its class and
    -1 for the others (scikit-learn's ``SVC``, which is LIBSVM). With one class there is nothing to tell apart: its
    score is 0.
    """
    dual = np.zeros((n_classes, len(labels)))
    intercepts = np.zeros(n_classes)
    if n_classes == 1:
        return KernelSVM(dual, intercepts)

    def work(label: int) -> SVC:
        return SVC(C=C, kernel="precomputed").fit(kernel, np.where(labels == label, 1, -1))

    for label, svm in enumerate(map_in_order(work, range(n_classes), n_jobs)):
        dual[label, svm.support_] = svm.dual_coef_[0]
        intercepts[label] = svm.intercept_[0]
        progress("training", label + 1, n_classes)
    return KernelSVM(dual, intercepts)

"""Spatial pyramids of visual words and the histogram intersection kernel: hard, or local soft assignment."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.files.arrays import load_array, save_array
from lnbnn.methods.base import Method, Progress
from lnbnn.methods.kernel_svm import KernelSVM, fit_one_vs_all
from lnbnn.methods.pyramid.codebook import Codebook, make_codebook
from lnbnn.methods.pyramid.kernels import intersection_kernel
from lnbnn.methods.pyramid.pooling import level_weights, n_cells, normalize, pool
from lnbnn.reading.extraction import map_in_order
from lnbnn.references import Reference, References

__all__ = ["PyramidSVM"]


class PyramidSVM(Method):
    """Codebook, codes, pyramid, kernel, SVMs.

    The settings are ``n_words``, ``pooling``, ``n_levels``, ``norm``, ``n_samples``, ``C``; with ``n_nearest_words``
    (and ``beta``) the assignment is soft, without it hard. The training images are put in the order of their contents,
    so that the order they are given in changes nothing.
    """

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._training: list[tuple[bytes, Any, ImageFeatures]] = []
        self.codebook: Codebook
        self.pyramids: NDArray[np.float32]
        self.svm: KernelSVM

    def pyramid(self, features: ImageFeatures) -> NDArray[np.float32]:
        """The pyramid of an image that has descriptors, shape (n_cells * n_words,)."""
        settings = self.settings
        n_levels, n_nearest = int(settings.n_levels), int(getattr(settings, "n_nearest_words", 1))
        codes = self.codebook.codes(features.descriptors, n_nearest, float(getattr(settings, "beta", 1.0)))
        weights = level_weights(n_levels) if settings.pooling == "average" else None
        pooled = pool(codes, features.xy, pooling=settings.pooling, n_levels=n_levels, weights=weights)
        return normalize(pooled, settings.norm)

    def add(self, image: Reference, features: ImageFeatures) -> None:
        digest = hashlib.blake2b(features.descriptors.tobytes())
        digest.update(features.xy.tobytes())
        self._training.append((digest.digest(), image.label, features))

    def finish(self, references: References, progress: Progress) -> None:
        self.references = references
        settings = self.settings
        training = sorted(self._training, key=lambda entry: entry[:2])
        self._training = []
        images = [features for _, _, features in training]
        labels = np.searchsorted(references.classes, np.asarray([label for _, label, _ in training]))
        progress("making the codebook", 0, 1)
        self.codebook = make_codebook(
            images, int(settings.n_words), n_samples=int(settings.n_samples), seed=int(settings.random_state)
        )
        progress("making the codebook", 1, 1)
        self.pyramids = np.empty((len(images), n_cells(int(settings.n_levels)) * len(self.codebook)), np.float32)
        for number, pyramid in enumerate(map_in_order(self.pyramid, images, settings.n_jobs)):
            self.pyramids[number] = pyramid
            progress("coding images", number + 1, len(images))
        kernel = intersection_kernel(self.pyramids, n_jobs=settings.n_jobs)
        self.svm = fit_one_vs_all(
            kernel, labels, len(references.classes), C=float(settings.C), n_jobs=settings.n_jobs, progress=progress
        )

    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        return self.svm.scores(intersection_kernel(self.pyramid(features)[None], self.pyramids)[0])

    def save(self, folder: Path) -> None:
        save_array(folder / "words.npy", self.codebook.words.astype(self.codebook.dtype))
        save_array(folder / "pyramids.npy", self.pyramids)
        self.svm.save(folder)

    def load(self, folder: Path, references: References) -> None:
        self.references = references
        words = load_array(folder / "words.npy", ndim=2, dtypes=("uint8", "float32"))
        pyramids = load_array(folder / "pyramids.npy", ndim=2, dtypes=("float32",))
        if pyramids.shape != (len(references), n_cells(int(self.settings.n_levels)) * len(words)):
            raise ModelFormatError(f"{folder}: the pyramids do not fit the images and words; fit the model again.")
        self.codebook = Codebook(words.astype(np.float32), words.dtype)
        self.pyramids = np.asarray(pyramids, np.float32)
        self.svm = KernelSVM.load(folder, len(references.classes), len(references))

    def describe(self) -> str:
        n = n_cells(int(self.settings.n_levels))
        return (
            f"pyramids of {len(self.codebook)} words in {n} cells, {self.settings.pooling} pooling, "
            f"one intersection-kernel SVM per class over {len(self.pyramids)} images"
        )

    @property
    def nbytes(self) -> int:
        return int(self.codebook.words.nbytes + self.pyramids.nbytes + self.svm.nbytes)

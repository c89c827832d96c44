"""A codebook of visual words: the centers of sampled descriptors, and the words nearest to a descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.indexes.faiss_kmeans import check_memory, kmeans_centers, nearest_centers

__all__ = ["Codebook", "make_codebook", "sample_descriptors"]

_N_ITERATIONS = 20
_8BIT_UNIT = 127.0  # 8-bit descriptors stand for unit vectors times this
_SEEDS = (1 << 31) - 1  # FAISS takes seeds below


@dataclass(frozen=True, eq=False)
class Codebook:
    """Visual words.

    Parameters
    ----------
    words : ndarray of shape (n_words, d), float32
        One row a word, in the units of the descriptors.
    dtype : dtype
        Type of the descriptors it was made from, uint8 or float32.
    """

    words: NDArray[np.float32]
    dtype: np.dtype

    def __len__(self) -> int:
        return len(self.words)

    def assign(
        self, descriptors: NDArray[np.generic], n_nearest: int = 1
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The ``n_nearest`` words of each descriptor, nearest first; of equal ones the first in the codebook.

        Returns
        -------
        squared : ndarray of shape (n_descriptors, n_nearest)
            Squared distances between unit vectors: those of 8-bit descriptors are divided by 127 squared.
        words : ndarray of shape (n_descriptors, n_nearest)
        """
        n_dims = self.words.shape[1]
        if descriptors.dtype != self.dtype or descriptors.shape[1] != n_dims:
            raise InvalidInputError(
                f"queries must be {self.dtype} of shape (n, {n_dims}) as the codebook's descriptors were; "
                f"got {descriptors.dtype} of shape {descriptors.shape}."
            )
        squared, nearest = nearest_centers(descriptors.astype(np.float32), self.words, n_nearest)
        return squared / np.float32(self._unit**2), nearest

    @property
    def _unit(self) -> float:
        return _8BIT_UNIT if self.dtype == np.uint8 else 1.0


def sample_descriptors(features: Sequence[ImageFeatures], n_samples: int, seed: int) -> NDArray[np.generic]:
    """About ``n_samples`` descriptors, as many from each image as from any other; all of an image that has fewer.

    Returns
    -------
    ndarray of shape (n_sampled, d)
    """
    kinds = {(image.descriptors.dtype, image.n_dims) for image in features}
    if len(kinds) != 1:
        shown = ", ".join(sorted(f"{dtype} of length {n_dims}" for dtype, n_dims in kinds))
        raise InvalidInputError(f"all images must have descriptors of one type and length; got {shown or 'no image'}.")
    an_image = -(-n_samples // len(features))
    parts = []
    for number, image in enumerate(features):
        n_taken = min(len(image), an_image)
        rows = np.random.default_rng([seed, number]).choice(len(image), n_taken, replace=False)
        parts.append(image.descriptors[np.sort(rows)])
    return np.concatenate(parts)


def make_codebook(features: Sequence[ImageFeatures], n_words: int, *, n_samples: int, seed: int) -> Codebook:
    """A codebook of the descriptors of training images, by k-means on a sample of them.

    Fewer sampled descriptors than ``n_words`` give one word each. The words of 8-bit descriptors are whole numbers.
    """
    sample = sample_descriptors(features, n_samples, seed)
    check_memory("making the codebook", 3 * sample.size * 4)
    words = kmeans_centers(
        sample.astype(np.float32),
        min(n_words, len(sample)),
        n_iterations=_N_ITERATIONS,
        seed=seed % _SEEDS,
        whole_numbers=sample.dtype == np.uint8,
        max_vectors_a_center=max(1, n_samples),
    )
    return Codebook(words, sample.dtype)

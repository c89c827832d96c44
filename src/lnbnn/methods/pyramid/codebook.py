"""A codebook of visual words: the centers of sampled descriptors, and how much of a descriptor each word gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.indexes.faiss_kmeans import check_memory, kmeans_centers, nearest_centers

__all__ = ["Codebook", "Codes", "codebook_of", "make_codebook", "sample_descriptors", "sample_features", "soft_weights"]

_N_ITERATIONS = 20
_SEEDS = (1 << 31) - 1  # FAISS takes seeds below


@dataclass(frozen=True, eq=False)
class Codes:
    """The codes of an image's descriptors: all but a few words of a code are zero, so only those few are held.

    Parameters
    ----------
    words : ndarray of shape (n_descriptors, n_nearest), int64
        Words with a weight, each at most once in a row.
    weights : ndarray of shape (n_descriptors, n_nearest), float32
        Their weights; a row sums to 1.
    n_words : int
        Size of the codebook.
    """

    words: NDArray[np.int64]
    weights: NDArray[np.float32]
    n_words: int


@dataclass(frozen=True, eq=False)
class Codebook:
    """Visual words.

    Parameters
    ----------
    words : ndarray of shape (n_words, d), float32
        One row per word, in the units of the descriptors.
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
        unit = UNIT_LENGTH if self.dtype == np.uint8 else 1.0
        return squared / np.float32(unit**2), nearest

    def codes(self, descriptors: NDArray[np.generic], n_nearest: int, beta: float) -> Codes:
        """The nearest few words (all of a smaller codebook) share a descriptor: :func:`soft_weights`.

        With one it is hard assignment (Lazebnik et al. 2006), with more local soft assignment (Liu et al. 2011).

        References
        ----------
        Lazebnik, Schmid and Ponce, "Beyond Bags of Features: Spatial Pyramid Matching for Recognizing Natural Scene
        Categories", CVPR 2006.
        """
        squared, words = self.assign(descriptors, min(n_nearest, len(self)))
        return Codes(words, soft_weights(squared, beta), len(self))


def soft_weights(squared: NDArray[np.float32], beta: float) -> NDArray[np.float32]:
    """Shares of the nearest words, from squared distances of shape (n_descriptors, n_nearest), nearest first.

    Notes
    -----
    With ``d_j`` the distance of the j-th nearest of n words, ``u_j = exp(-beta d_j^2) / sum_k exp(-beta d_k^2)``, the
    sum over the n nearest words only: a word far away gets nothing, however large beta is. The nearest distance is
    taken off all of them first, which changes no share and keeps the sum above zero.

    References
    ----------
    Liu, Wang and Liu, "In Defense of Soft-assignment Coding", ICCV 2011.

    Examples
    --------
    >>> import numpy as np
    >>> soft_weights(np.array([[0.0, np.log(3.0)]]), 1.0)
    array([[0.75, 0.25]], dtype=float32)
    """
    shares = np.exp(-beta * (squared - squared[:, :1]).astype(np.float64))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


def sample_features(features: Sequence[ImageFeatures], n_samples: int, seed: int) -> list[ImageFeatures]:
    """About ``n_samples`` descriptors, as many from each image as from any other; all of an image that has fewer."""
    kinds = {(image.descriptors.dtype, image.n_dims) for image in features}
    if len(kinds) != 1:
        shown = ", ".join(sorted(f"{dtype} of length {n_dims}" for dtype, n_dims in kinds))
        raise InvalidInputError(f"all images must have descriptors of one type and length; got {shown or 'no image'}.")
    per_image = -(-n_samples // len(features))
    parts = []
    for number, image in enumerate(features):
        n_taken = min(len(image), per_image)
        rows = np.random.default_rng([seed, number]).choice(len(image), n_taken, replace=False)
        parts.append(image.take(np.sort(rows)))
    return parts


def sample_descriptors(features: Sequence[ImageFeatures], n_samples: int, seed: int) -> NDArray[np.generic]:
    """The descriptors of :func:`sample_features`."""
    return np.concatenate([image.descriptors for image in sample_features(features, n_samples, seed)])


def make_codebook(features: Sequence[ImageFeatures], n_words: int, *, n_samples: int, seed: int) -> Codebook:
    """A codebook of the descriptors of training images, by k-means on a sample of them: :func:`codebook_of`."""
    sample = sample_descriptors(features, n_samples, seed)
    return codebook_of(sample, n_words, seed=seed, whole_numbers=sample.dtype == np.uint8)


def codebook_of(
    sample: NDArray[np.generic], n_words: int, *, seed: int, whole_numbers: bool, n_iterations: int = _N_ITERATIONS
) -> Codebook:
    """A codebook by k-means on all of a sample.

    Fewer vectors than ``n_words`` give one word each. The words of whole numbers are whole numbers.
    """
    check_memory("making the codebook", 3 * sample.size * 4)
    words = kmeans_centers(
        sample.astype(np.float32),
        min(n_words, len(sample)),
        n_iterations=n_iterations,
        seed=seed % _SEEDS,
        whole_numbers=whole_numbers,
        max_vectors_per_center=max(1, len(sample)),
    )
    return Codebook(words, sample.dtype)

"""Spatially Local Coding: words of appearance and place, max pooling over the whole image, and ridge regression."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import ModelFormatError
from lnbnn.features import UNIT_LENGTH, ImageFeatures, append_location
from lnbnn.files.arrays import load_array, save_array
from lnbnn.methods.base import Progress
from lnbnn.methods.coded_ridge import CodedRegression
from lnbnn.methods.pyramid.codebook import Codebook, Codes, codebook_of, sample_features
from lnbnn.methods.pyramid.pooling import cells_of, n_cells, normalize, pool
from lnbnn.methods.ridge import in_steps

__all__ = ["LocalCoding", "with_location"]

_N_ITERATIONS = 10  # of k-means: half of those of a pyramid, as there are several codebooks


class LocalCoding(CodedRegression):
    """Several codebooks, the codes of each descriptor in all of them, the largest of each word, ridge regression.

    The settings are ``n_words``, ``location_weights``, ``n_levels``, ``max_descriptors``, ``n_nearest_words``,
    ``beta``, ``n_samples`` and ``alpha``. The codebooks are learned by the first :meth:`finish` and stay: images that
    come later are coded with them.

    With max pooling the value of a word comes from one descriptor, so the score of a class is the sum of what each
    descriptor says (:meth:`patch_scores`).

    Parameters
    ----------
    settings : object
    dtype : {np.float32, np.float16}
        Of the vectors: in float32 they are :func:`~lnbnn.methods.ridge.in_steps`.

    References
    ----------
    McCann and Lowe, "Spatially Local Coding for Object Recognition", ACCV 2012.
    """

    learns = "words"

    def __init__(self, settings: Any, dtype: type[np.floating] = np.float32) -> None:
        super().__init__(settings)
        self.codebooks: list[Codebook] = []
        self._dtype = dtype

    # ---- codes --------------------------------------------------------------------------------------------------

    def coded_rows(self, n: int) -> NDArray[np.intp]:
        """Which of n descriptors are coded, ascending: evenly, in the order of the grid."""
        n_used = n if self.settings.max_descriptors is None else min(n, int(self.settings.max_descriptors))
        return ((np.arange(n_used) + 0.5) * (n / n_used)).astype(np.intp)

    def codes(self, features: ImageFeatures) -> list[Codes]:
        """The codes of all descriptors, by each codebook."""
        settings = self.settings
        unit = UNIT_LENGTH if features.descriptors.dtype == np.uint8 else 1.0
        located = [self._located(features, place) for place in range(len(self.codebooks))]
        return [
            codebook.codes(vectors, int(settings.n_nearest_words), float(settings.beta) / unit**2)
            for codebook, vectors in zip(self.codebooks, located, strict=True)
        ]

    def vector_of(self, features: ImageFeatures) -> NDArray[np.floating]:
        """The largest weight of each word in the image, of unit length."""
        coded = features.take(self.coded_rows(len(features)))
        return self._pooled(self.codes(coded), coded)

    def contributions(self, features: ImageFeatures, coef: NDArray[np.float64]) -> NDArray[np.float64]:
        taken = self.coded_rows(len(features))
        coded = features.take(taken)
        codes = self.codes(coded)
        values = coef * self._pooled(codes, coded)
        result = np.zeros((len(features), len(coef)))
        first = 0
        for of_book in codes:
            for level in range(int(self.settings.n_levels)):
                rows, places = _strongest(of_book, cells_of(coded.xy, level))
                np.add.at(result, taken[rows], values[:, first + places].T)
                first += 4**level * of_book.n_words
        return result

    def _pooled(self, codes: list[Codes], features: ImageFeatures) -> NDArray[np.floating]:
        n_levels = int(self.settings.n_levels)
        pooled = [pool(of_book, features.xy, pooling="max", n_levels=n_levels) for of_book in codes]
        vector = normalize(np.concatenate(pooled), "l2")
        return in_steps(vector.astype(np.float64)) if self._dtype == np.float32 else vector.astype(self._dtype)

    def _located(self, features: ImageFeatures, place: int) -> NDArray[np.float32]:
        return with_location(features, float(self.settings.location_weights[place]))

    # ---- learning -----------------------------------------------------------------------------------------------

    @property
    def has_learned(self) -> bool:
        return bool(self.codebooks)

    def learn(self, images: list[ImageFeatures], progress: Progress) -> None:
        settings, seed = self.settings, int(self.settings.random_state)
        sample = sample_features(images, int(settings.n_samples), seed)
        is_8_bit = sample[0].descriptors.dtype == np.uint8

        def codebook_at(place: int) -> Codebook:
            vectors = np.concatenate([self._located(image, place) for image in sample])
            return codebook_of(
                vectors, int(settings.n_words), seed=seed, whole_numbers=is_8_bit, n_iterations=_N_ITERATIONS
            )

        n_books = len(settings.location_weights)
        for place in range(n_books):
            progress("making the codebooks", place, n_books)
            self.codebooks.append(codebook_at(place))
        progress("making the codebooks", n_books, n_books)

    def has_codes_of(self, other: Self) -> bool:
        pairs = zip(self.codebooks, other.codebooks, strict=True)
        return all(np.array_equal(mine.words, theirs.words) for mine, theirs in pairs)

    # ---- keeping ------------------------------------------------------------------------------------------------

    @property
    def n_values(self) -> int:
        return n_cells(int(self.settings.n_levels)) * sum(map(len, self.codebooks))

    def save_codes(self, folder: Path) -> None:
        for place, codebook in enumerate(self.codebooks):
            save_array(folder / f"words_{place}.npy", codebook.words)

    def load_codes(self, folder: Path) -> None:
        weights = self.settings.location_weights
        self.codebooks = []
        for place in range(len(weights)):
            words = load_array(folder / f"words_{place}.npy", ndim=2, dtypes=("float32",))
            self.codebooks.append(Codebook(np.array(words, np.float32), words.dtype))
        n_dims = {
            codebook.words.shape[1] - 2 * bool(weight) for codebook, weight in zip(self.codebooks, weights, strict=True)
        }
        if len(n_dims) != 1:
            raise ModelFormatError(f"{folder}: the words do not fit each other; fit the model again.")
        if not all(np.isfinite(codebook.words).all() for codebook in self.codebooks):
            raise ModelFormatError(f"{folder}: the words are no finite numbers; fit the model again.")

    def describe_codes(self) -> str:
        sizes = " + ".join(str(len(codebook)) for codebook in self.codebooks)
        return f"the largest code of each of {sizes} words"

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(codebook.words.nbytes for codebook in self.codebooks)


def with_location(features: ImageFeatures, weight: float) -> NDArray[np.float32]:
    """As :func:`~lnbnn.features.append_location`, in float32 and for any weight; whole numbers for 8-bit descriptors.

    Distances between whole numbers are exact in float32, so they are the same in any order of summing.
    """
    if features.descriptors.dtype != np.uint8:
        return append_location(features, weight).astype(np.float32, copy=False)
    floats = ImageFeatures(features.descriptors.astype(np.float32), features.xy, features.scale, features.size)
    return np.rint(append_location(floats, UNIT_LENGTH * weight))


def _strongest(codes: Codes, cells: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The descriptor with the largest weight of each word in each cell, the first of equals; and the word's place."""
    places = cells[:, None] * codes.n_words + codes.words
    best = np.zeros(int(places.max()) + 1, np.float32)
    np.maximum.at(best, places, codes.weights)
    rows, columns = np.nonzero((codes.weights == best[places]) & (codes.weights > 0))
    found, first = np.unique(places[rows, columns], return_index=True)
    return rows[first], found

"""Ridge regression on pooled descriptors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.methods.ridge import RidgeMethod, in_steps

__all__ = ["PooledRegression"]

_SQRT_3 = 3.0**0.5


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

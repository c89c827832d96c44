"""Several codes of the same descriptors side by side in one vector, and ridge regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.features import ImageFeatures
from lnbnn.methods.base import Progress
from lnbnn.methods.coded_ridge import CodedRegression

__all__ = ["JointCoding"]


class JointCoding(CodedRegression):
    """Ridge regression on the vectors of several methods side by side, each of unit length.

    One regression weighs all values together, where a fusion weighs the answers of several. The regressions of the
    inner methods are not used.

    Parameters
    ----------
    settings : object
        With what the inner methods need, and ``alpha``.
    parts : sequence of CodedRegression
        Methods whose vectors are in float16, so that theirs and the joint one have the same values.
    """

    def __init__(self, settings: Any, parts: Sequence[CodedRegression]) -> None:
        super().__init__(settings)
        self.parts = list(parts)
        self.learns = " and ".join(part.learns for part in parts)

    def vector_of(self, features: ImageFeatures) -> NDArray[np.float16]:
        """The vectors of the parts, one after another."""
        return np.concatenate([part.vector_of(features) for part in self.parts]).astype(np.float16, copy=False)

    def contributions(self, features: ImageFeatures, coef: NDArray[np.float64]) -> NDArray[np.float64]:
        found = [part.contributions(features, coef[:, values]) for part, values in self.slices()]
        return np.sum(found, axis=0)

    def slices(self) -> Iterator[tuple[CodedRegression, slice]]:
        """Each part, and where its values are in the vector."""
        start = 0
        for part in self.parts:
            yield part, slice(start, start + part.n_values)
            start += part.n_values

    @property
    def n_values(self) -> int:
        return sum(part.n_values for part in self.parts)

    # ---- learning and keeping -----------------------------------------------------------------------------------

    @property
    def has_learned(self) -> bool:
        return all(part.has_learned for part in self.parts)

    def learn(self, images: list[ImageFeatures], progress: Progress) -> None:
        for part in self.parts:
            part.learn(images, progress)

    def has_codes_of(self, other: Self) -> bool:
        return all(mine.has_codes_of(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))

    def save_codes(self, folder: Path) -> None:
        for part in self.parts:
            part.save_codes(folder)

    def load_codes(self, folder: Path) -> None:
        for part in self.parts:
            part.load_codes(folder)

    def describe_codes(self) -> str:
        return " beside ".join(part.describe_codes() for part in self.parts)

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(part.nbytes for part in self.parts)

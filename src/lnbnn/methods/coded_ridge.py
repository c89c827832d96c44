"""Ridge regression on codes of the descriptors: what they are coded with is learned from the first images."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.methods.base import Method, Progress
from lnbnn.methods.ridge import RidgeMethod
from lnbnn.reading.extraction import map_in_order
from lnbnn.references import Reference, References

__all__ = ["CodedRegression"]


class CodedRegression(RidgeMethod):
    """Ridge regression on a vector of codes per image.

    What descriptors are coded with is learned by the first :meth:`finish` and stays: images that come later are coded
    with it. A method says how it is learned, kept and used.
    """

    learns: str
    """What images are coded with, as a message has it: words, Gaussians."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._waiting: dict[int, ImageFeatures] = {}  # until there is something to code them with

    @property
    @abstractmethod
    def has_learned(self) -> bool:
        """Whether there is something to code images with."""

    @abstractmethod
    def learn(self, images: list[ImageFeatures], progress: Progress) -> None:
        """Learn what images are coded with; the order of the images is that of their contents."""

    @property
    @abstractmethod
    def n_values(self) -> int:
        """The length of the vectors."""

    @abstractmethod
    def contributions(self, features: ImageFeatures, coef: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each descriptor adds to ``coef @ vector``, shape (n_descriptors, n_classes)."""

    @abstractmethod
    def has_codes_of(self, other: Self) -> bool:
        """Whether another method learned the same."""

    @abstractmethod
    def describe_codes(self) -> str:
        """A few words on the vectors."""

    @abstractmethod
    def save_codes(self, folder: Path) -> None:
        """Write what images are coded with."""

    @abstractmethod
    def load_codes(self, folder: Path) -> None:
        """Read what :meth:`save_codes` wrote, checked."""

    def add(self, image: Reference, features: ImageFeatures) -> None:
        if self.has_learned:
            super().add(image, features)
        else:
            self._waiting[image.id] = features

    def finish(self, references: References, progress: Progress) -> None:
        if not self.has_learned:
            self.learn(sorted(self._waiting.values(), key=_digest), progress)
            ids, images = list(self._waiting), list(self._waiting.values())
            for number, vector in enumerate(map_in_order(self.vector_of, images, self.settings.n_jobs)):
                self._vectors[ids[number]] = vector
                progress("coding images", number + 1, len(images))
            self._waiting = {}
        super().finish(references, progress)

    def patch_scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        return self.contributions(features, self.coef) + self.intercept / len(features)

    def check_absorbs(self, other: Method) -> None:
        assert isinstance(other, type(self))
        if not self.has_codes_of(other):
            raise InvalidInputError(
                f"models to merge must have learned the same {self.learns}; fit one model on the images of both."
            )

    def describe(self) -> str:
        return f"ridge regression (alpha={self.alpha[0]:g}) on {self.describe_codes()}"

    def save(self, folder: Path) -> None:
        super().save(folder)
        self.save_codes(folder)

    def load(self, folder: Path, references: References) -> None:
        super().load(folder, references)
        self.load_codes(folder)
        if self.n_values != self.coef.shape[1]:
            raise ModelFormatError(f"{folder}: the {self.learns} do not fit the regression; fit the model again.")


def _digest(features: ImageFeatures) -> bytes:
    digest = hashlib.blake2b(features.descriptors.tobytes())
    digest.update(features.xy.tobytes())
    return digest.digest()

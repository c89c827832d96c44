"""Ridge regression on codes of the descriptors: what they are coded with is learned from the first images."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import Any

from lnbnn.features import ImageFeatures
from lnbnn.methods.base import Progress
from lnbnn.methods.ridge import RidgeMethod
from lnbnn.reading.extraction import map_in_order
from lnbnn.references import Reference, References

__all__ = ["CodedRegression"]


class CodedRegression(RidgeMethod):
    """Ridge regression on a vector of codes per image.

    What descriptors are coded with is learned by the first :meth:`finish` and stays: images that come later are coded
    with it. A method says how it is learned, and whether it was.
    """

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


def _digest(features: ImageFeatures) -> bytes:
    digest = hashlib.blake2b(features.descriptors.tobytes())
    digest.update(features.xy.tobytes())
    return digest.digest()

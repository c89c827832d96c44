"""What a descriptor extractor promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lnbnn.features import ImageFeatures
from lnbnn.settings import Configurable

__all__ = ["Descriptor"]


class Descriptor(Configurable, ABC):
    """Turns one image into local descriptors.

    A subclass stores its settings under the names of its constructor's keywords and declares what stands below. Raise
    ``version`` whenever the same settings would give other numbers: cached features of the old version are then
    no longer used.
    """

    version: ClassVar[int]
    n_dims: ClassVar[int]
    """Length of one descriptor."""

    longest_side: int
    """Longest side, in pixels, of the image the descriptors are taken from."""

    def warm_up(self) -> None:
        """Load what the first extraction would have to wait for."""

    @abstractmethod
    def extract(self, image: NDArray[np.generic]) -> ImageFeatures:
        """The descriptors of one image, gray (h, w) or RGB (h, w, 3), of any size; none at all is a valid answer."""

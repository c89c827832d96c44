"""The interface of descriptors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.params import Configurable, OldName, warn_renamed

if TYPE_CHECKING:
    from lnbnn.descriptors.normalization import Normalization

__all__ = ["MAX_NETWORK_BYTES", "Descriptor", "StoredNetwork"]

MAX_NETWORK_BYTES = (1 << 31) - 1
"""Larger network files keep their weights in other files, which are not followed."""


@dataclass(frozen=True)
class StoredNetwork:
    """A network file as a model keeps it: its content, and the name of the value that is used (None: the default)."""

    data: bytes
    output: str | None


class Descriptor(Configurable, ABC):
    """Turns one image into local descriptors.

    A subclass stores its settings under the names of its constructor's keywords and declares the attributes below.
    Raise ``version`` whenever the same settings would give other numbers: cached features of the old version are then
    no longer used.
    """

    version: ClassVar[int]
    is_color: ClassVar[bool] = False
    """Whether it looks at RGB rather than gray pictures."""
    location_weight: ClassVar[float] = 1.6
    """The default location weight, which suits its distances."""
    scale_weight: ClassVar[float] = 0.0
    """The default weight of an octave of a patch's size."""
    learned_settings: ClassVar[frozenset[str]] = frozenset()
    """Settings that are used after extraction only, in :attr:`normalization`: not part of a cache key."""
    learnt_settings = OldName("learned_settings")

    n_dims: int
    """Length of one descriptor."""
    longest_side: int | None
    """Longest side, in pixels, of the image the descriptors are taken from."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "learnt_settings" in vars(cls):
            warn_renamed(f"{cls.__name__}.learnt_settings", "learned_settings")
            cls.learned_settings = vars(cls)["learnt_settings"]

    @classmethod
    def from_name(cls, name: str, params: dict[str, Any]) -> Self:
        """The descriptor with this registry name and these settings; a family takes the rest of the name apart."""
        return cls.from_params(params)

    @property
    def normalization(self) -> Normalization | None:
        """What a model learns about these descriptors from its labeled images; None for those used unchanged."""
        return None

    def warm_up(self) -> None:
        """Load what the first extraction would have to wait for."""

    def prepare(self, image: NDArray[np.generic]) -> NDArray[np.uint8]:
        """The picture that the descriptors are taken from: gray or RGB, of the size that features refer to."""
        from lnbnn.files.images import resize, to_pixels  # here, so that listing the registry loads no OpenCV

        assert self.longest_side is not None
        return resize(to_pixels(image), int(self.longest_side))

    def decode(self, data: bytes, *, name: str = "image") -> NDArray[np.uint8]:
        """The content of a picture file as :meth:`prepare` gives it."""
        from lnbnn.files.images import decode

        return self.prepare(decode(data, self.longest_side, color=self.is_color, name=name))

    def onnx_file(self) -> tuple[bytes, float]:
        """The network behind it as an ONNX file, and how far the two differ at most; only where there is one."""
        raise InvalidInputError(f"{self.name} cannot be written as ONNX; expected timm:MODEL or deep.")

    def network_to_store(self) -> StoredNetwork | None:
        """The network file that goes into a model's folder with the model; None for those that need none."""
        return None

    @abstractmethod
    def extract(self, image: NDArray[np.generic]) -> ImageFeatures:
        """The descriptors of one image, gray (h, w) or RGB (h, w, 3), of any size; none at all is a valid answer."""

"""Cells of a network's feature map as local descriptors: what the networks of all sources share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.base import Descriptor, StoredNetwork
from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.files.images import decode, resize, to_pixels
from lnbnn.params import check_whole, plain

if TYPE_CHECKING:
    from lnbnn.descriptors.normalization import Normalization

__all__ = ["Network", "NetworkDescriptor", "first_line"]

_MAX_HALF = 65504.0  # the largest 16-bit float


@dataclass(frozen=True, eq=False)
class Network:
    """A network that is loaded, and what its own configuration says about its input.

    Parameters
    ----------
    run : callable
        From an image of shape (1, 3, height, width), float32, to its cells, (rows, columns, n_dims).
    n_dims : int
        Length of a cell.
    mean, std : sequence of 3 floats, or None where the configuration is silent
        Of each color, for values in 0..1.
    longest_side : int, or None where the configuration is silent
        Of the pictures it was made for.
    stride : int
        Both sides of a picture must be multiples of it.
    fixed_size : tuple of (width, height), optional
        The only size it takes: pictures are stretched to it.
    sha256 : str
        Of its weights.
    """

    run: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    n_dims: int
    mean: Sequence[float] | None
    std: Sequence[float] | None
    longest_side: int | None
    stride: int
    fixed_size: tuple[int, int] | None
    sha256: str


@dataclass(eq=False, repr=False)
class NetworkDescriptor(Descriptor):
    """One descriptor for each cell of a feature map (or patch token) of a network.

    A subclass writes :meth:`_network`. What is not given comes from the network's own configuration.

    Parameters
    ----------
    source : str
        Which network and layer: what follows the family in the registry name.
    stored : StoredNetwork, optional
        The file that a model keeps: it is used in place of the one that ``source`` names.
    longest_side : int, optional
        Pictures are resized to it, up or down, keeping the aspect ratio to the nearest multiple of the stride.
    mean, std : float or three floats, optional
        Subtracted from, and divided into, each color (values in 0..1).
    n_components : int or None, default=128
        Principal components that a model keeps, learned from its labeled images; None keeps all dimensions.
    whitening : float, default=0.0
        0 leaves the components their spread, 1 gives all the same.
    sha256 : str, optional
        What the network's weights must hash to; a model remembers it, and refuses others.
    """

    version = 1
    is_color = True
    location_weight = 1.4
    learned_settings: ClassVar[frozenset[str]] = frozenset({"n_components", "whitening"})

    source: str
    stored: StoredNetwork | None = None
    _: KW_ONLY
    longest_side: int | None = None
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    n_components: int | None = 128
    whitening: float = 0.0
    sha256: str | None = None

    def __post_init__(self) -> None:
        self.name = f"{type(self).name}{self.source}"

    @classmethod
    def param_names(cls) -> list[str]:
        """Names of the settings, without ``source`` and ``stored``."""
        return super().param_names()[2:]

    @classmethod
    def from_name(cls, name: str, params: dict[str, Any], stored: StoredNetwork | None = None) -> Self:
        """The network that the rest of the name, after the family, says; or the one that a model keeps."""
        return cls.from_params(params, name.removeprefix(cls.name), stored)

    @abstractmethod
    def _network(self) -> Network:
        """The loaded network; asked for often, so a subclass keeps it outside of the object, which may be copied."""

    def check_params(self) -> None:
        if self.longest_side is not None:
            check_whole("longest_side", self.longest_side, 8, 10_000)
        if self.n_components is not None:
            check_whole("n_components", self.n_components, 1, 1 << 16)
        if not (isinstance(self.whitening, int | float) and 0.0 <= self.whitening <= 1.0):
            raise InvalidInputError(f"whitening must be from 0 to 1; got {self.whitening!r}.")
        network = self._network()
        if self.sha256 is not None and self.sha256 != network.sha256:
            raise InvalidInputError(
                f"{self.name}: its weights are not those the model was made with (sha256 {network.sha256[:12]}..., "
                f"expected {str(self.sha256)[:12]}...); use the same file, or fit the model again."
            )
        if network.fixed_size is not None and self.longest_side not in (None, max(network.fixed_size)):
            width, height = network.fixed_size
            raise InvalidInputError(f"{self.name} takes pictures of {width} x {height} pixels only; drop longest_side.")
        for setting in ("mean", "std"):
            self.used_color(setting)
        self.used_longest_side()

    def settings(self) -> dict[str, Any]:
        """The settings with the hash of the weights filled in, so that features and models are tied to it."""
        return super().settings() | {"sha256": self._network().sha256}

    @property
    def n_dims(self) -> int:  # type: ignore[override]
        """Length of one cell, before a model's normalization."""
        return self._network().n_dims

    @property
    def normalization(self) -> Normalization:
        """Centered on the labeled images, turned to principal components, of unit length."""
        from lnbnn.descriptors.normalization import Normalization  # here: what only extracts needs no numba

        return Normalization(self.n_components, float(self.whitening))

    def warm_up(self) -> None:
        """Load the network."""
        self._network()

    def decode(self, data: bytes, *, name: str = "image") -> NDArray[np.uint8]:
        """The content of a picture file as :meth:`prepare` gives it."""
        return self.prepare(decode(data, self.used_longest_side(), color=True, name=name))

    def prepare(self, image: NDArray[np.generic]) -> NDArray[np.uint8]:
        """The RGB picture that the network is shown."""
        network = self._network()
        rgb = to_pixels(image, color=True)
        if network.fixed_size is not None:
            return resize(rgb, network.fixed_size)
        height, width = rgb.shape[:2]
        factor = self.used_longest_side() / max(height, width) / network.stride
        rows, columns = (max(1, math.floor(side * factor + 0.5)) for side in (height, width))
        return resize(rgb, (columns * network.stride, rows * network.stride))

    def extract(self, image: NDArray[np.generic]) -> ImageFeatures:
        """The cells of one image of any size, in 16-bit floats."""
        rgb = self.prepare(image)
        height, width = rgb.shape[:2]
        planes = (rgb.astype(np.float32) / 255.0 - self.used_color("mean")) / self.used_color("std")
        cells = self._network().run(np.ascontiguousarray(planes.transpose(2, 0, 1)[None]))
        rows, columns, n_dims = cells.shape
        y, x = np.mgrid[0:rows, 0:columns]
        xy = np.stack([(x.ravel() + 0.5) / columns, (y.ravel() + 0.5) / rows], axis=1)
        side = math.sqrt(width / columns * height / rows)
        descriptors = np.clip(cells.reshape(-1, n_dims), -_MAX_HALF, _MAX_HALF).astype(np.float16)
        return ImageFeatures(descriptors, xy.astype(np.float32), np.full(len(xy), side, np.float32), (width, height))

    def used_longest_side(self) -> int:
        """Of the pictures it is shown: the user's, else the network's."""
        network = self._network()
        if network.fixed_size is not None:
            return max(network.fixed_size)
        side = network.longest_side if self.longest_side is None else self.longest_side
        if side is None:
            raise InvalidInputError(f"{self.name} does not say the size of its pictures; give -D longest_side=288.")
        return int(side)

    def used_color(self, setting: str) -> NDArray[np.float32]:
        """``mean`` or ``std``, one number per color: the user's, else the network's."""
        given = getattr(self, setting)
        value = getattr(self._network(), setting) if given is None else given
        if value is None:
            raise InvalidInputError(
                f"{self.name} does not say how its input is scaled; give mean and std (for values in 0..1), for "
                "example -D mean=0.485,0.456,0.406 -D std=0.229,0.224,0.225."
            )
        numbers = np.atleast_1d(np.asarray(value, dtype=np.float32))
        wrong = numbers.shape not in ((1,), (3,)) or not np.isfinite(numbers).all()
        if wrong or (setting == "std" and numbers.min() <= 0):
            raise InvalidInputError(f"{setting} must be one number or three, one per color; got {plain(value)!r}.")
        return np.broadcast_to(numbers, 3)


def first_line(error: Exception) -> str:
    """What an error of another package says, short enough to be part of a message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(".")

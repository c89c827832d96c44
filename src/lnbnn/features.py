"""The features of one image, :class:`ImageFeatures`, and the vectors that are searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError

__all__ = [
    "MAX_LOCATION_WEIGHT",
    "MAX_SCALE_WEIGHT",
    "N_OCTAVES",
    "UNIT_LENGTH",
    "ImageFeatures",
    "JointFeatures",
    "append_location",
    "check_weight",
]

MAX_LOCATION_WEIGHT = 2.0
"""Above it, the weighted location of an 8-bit descriptor no longer fits 8 bits."""

N_OCTAVES = 5
"""The largest octave: smaller patches count as patches of this octave."""

MAX_SCALE_WEIGHT = 0.4
"""Above it, the weighted octaves of an 8-bit descriptor no longer fit 8 bits."""

UNIT_LENGTH = 127.0
"""The length of an 8-bit descriptor that stands for a unit vector."""


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """The local descriptors of one image and where each was taken.

    The arrays are checked once, on creation, and made read-only: later steps trust them.

    Parameters
    ----------
    descriptors : ndarray of shape (n_descriptors, d), uint8, float16 or float32
        One row per patch. uint8 rows are unit vectors times 127; others are used unchanged.
    xy : ndarray of shape (n_descriptors, 2), float32
        Center of each patch as a fraction of the image's width and height, in [0, 1].
    scale : ndarray of shape (n_descriptors,), float32
        Side of each patch in pixels of the extracted image.
    size : tuple of (int, int)
        Width and height, in pixels, of the image the descriptors were taken from.

    Examples
    --------
    >>> import numpy as np
    >>> f = ImageFeatures(np.zeros((2, 128), np.uint8), np.full((2, 2), 0.5), np.full(2, 16), (300, 200))
    >>> len(f), f.n_dims
    (2, 128)
    """

    descriptors: NDArray[np.generic]
    xy: NDArray[np.float32]
    scale: NDArray[np.float32]
    size: tuple[int, int]

    def __post_init__(self) -> None:
        descriptors = np.asarray(self.descriptors)
        if descriptors.ndim != 2 or descriptors.shape[1] == 0:
            raise InvalidInputError(
                f"descriptors must have shape (n_descriptors, d) with d at least 1; got {descriptors.shape}."
            )
        if descriptors.dtype != np.uint8:
            if descriptors.dtype.kind not in "fiu":
                raise InvalidInputError(f"descriptors must be numbers; got dtype {descriptors.dtype}.")
            if descriptors.dtype != np.float16:
                descriptors = descriptors.astype(np.float32)
            if not np.isfinite(descriptors).all():
                raise InvalidInputError("descriptors must be finite; got NaN or infinity.")
        n = len(descriptors)
        xy = np.asarray(self.xy, dtype=np.float32)
        scale = np.asarray(self.scale, dtype=np.float32)
        if xy.shape != (n, 2) or scale.shape != (n,):
            raise InvalidInputError(
                f"xy and scale must have shapes ({n}, 2) and ({n},), one row per descriptor; "
                f"got {xy.shape} and {scale.shape}."
            )
        if n and not (xy.min() >= 0.0 and xy.max() <= 1.0 and np.isfinite(scale).all()):
            raise InvalidInputError("xy must hold fractions of width and height in [0, 1] and scale finite sizes.")
        width, height = (int(side) for side in self.size)
        if width < 1 or height < 1:
            raise InvalidInputError(f"size must be (width, height) in pixels, both at least 1; got {self.size}.")
        for name, array in (("descriptors", descriptors), ("xy", xy), ("scale", scale)):
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        object.__setattr__(self, "size", (width, height))

    def __len__(self) -> int:
        return len(self.descriptors)

    @property
    def n_dims(self) -> int:
        """Length of one descriptor."""
        return int(self.descriptors.shape[1])

    @property
    def kind(self) -> list[Any]:
        """Length and type of a descriptor."""
        return [self.n_dims, self.descriptors.dtype.name]

    def take(self, rows: NDArray[np.intp]) -> ImageFeatures:
        """The features of the given rows only."""
        return ImageFeatures(self.descriptors[rows], self.xy[rows], self.scale[rows], self.size)


@dataclass(frozen=True, eq=False)
class JointFeatures:
    """The features of one image by several descriptors; some may find nothing in a picture."""

    parts: tuple[ImageFeatures, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def kind(self) -> list[Any]:
        """Length and type of the descriptors of each part."""
        return [part.kind for part in self.parts]


def check_weight(name: str, weight: float) -> None:
    """Raise unless ``location_weight`` (the paper's alpha) or ``scale_weight`` (of an octave of size) can be used."""
    largest, ignored = {
        "location_weight": (MAX_LOCATION_WEIGHT, "location"),
        "scale_weight": (MAX_SCALE_WEIGHT, "size"),
    }[name]
    is_number = isinstance(weight, int | float | np.integer | np.floating)
    if not (is_number and 0.0 <= weight <= largest):
        raise InvalidInputError(f"{name} must be from 0 ({ignored} ignored) to {largest:g}; got {weight!r}.")


def append_location(features: ImageFeatures, location_weight: float, scale_weight: float = 0.0) -> NDArray[np.generic]:
    """Descriptors with ``scale_weight * octave`` and ``location_weight * (x, y)`` appended, in the descriptors' unit.

    The location weighting is that of Boiman et al. (2008). The scale weighting is not in the paper: it makes patches of
    different sizes, which may look alike by chance, match less easily.

    One squared Euclidean distance over the result is the squared distance of the descriptors plus
    ``location_weight**2`` times that of the locations plus ``scale_weight**2`` times that of the octaves. The octave
    of a patch is how often the image's longest side is halved to get the patch's side. uint8 descriptors (unit vectors
    times 127) get uint8 dimensions, rounded.

    Returns
    -------
    ndarray of shape (n_descriptors, d + 3), uint8 or float32
        x and y are last. A weight of 0 appends nothing.
    """
    descriptors = features.descriptors
    if descriptors.dtype == np.float16:
        descriptors = descriptors.astype(np.float32)
    is_8_bit = descriptors.dtype == np.uint8
    unit = UNIT_LENGTH if is_8_bit else 1.0
    columns: list[NDArray[np.float32]] = []
    if scale_weight:
        octaves = np.log2(max(features.size) / np.maximum(features.scale, np.float32(1e-6)))
        columns.append(np.clip(octaves, 0.0, N_OCTAVES)[:, None] * np.float32(unit * scale_weight))
    if location_weight:
        columns.append(features.xy * np.float32(unit * location_weight))
    if not columns:
        return descriptors
    appended = np.hstack(columns)
    return np.hstack([descriptors, (appended + np.float32(0.5)).astype(np.uint8) if is_8_bit else appended])

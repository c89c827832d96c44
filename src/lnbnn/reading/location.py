"""Where a patch lies and how large it is, as further dimensions of its descriptor.

The place is the location weighting of Boiman et al. (2008). The size is not in the paper: it keeps patches of
different sizes, whose appearance may be alike by chance, from matching as freely as patches of one size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures

__all__ = [
    "MAX_LOCATION_WEIGHT",
    "MAX_SCALE_WEIGHT",
    "N_OCTAVES",
    "UNIT_LENGTH",
    "append_location",
    "check_location_weight",
    "check_scale_weight",
]

MAX_LOCATION_WEIGHT = 2.0
"""Above it, the weighted location of an 8-bit descriptor no longer fits 8 bits."""

N_OCTAVES = 5
"""A patch whose side is less than the image's longest by more halvings than these counts as one of so many."""

MAX_SCALE_WEIGHT = 0.4
"""Above it, the weighted octaves of an 8-bit descriptor no longer fit 8 bits."""

UNIT_LENGTH = 127.0
"""The length that the unit vector of an 8-bit descriptor has."""


def check_location_weight(location_weight: float) -> None:
    """Raise unless the weight (the paper's alpha) can be used."""
    _check_weight("location_weight", location_weight, MAX_LOCATION_WEIGHT, "location ignored")


def check_scale_weight(scale_weight: float) -> None:
    """Raise unless the weight of an octave of size can be used."""
    _check_weight("scale_weight", scale_weight, MAX_SCALE_WEIGHT, "size ignored")


def _check_weight(name: str, weight: float, largest: float, meaning_of_0: str) -> None:
    is_number = isinstance(weight, int | float | np.integer | np.floating)
    if not (is_number and 0.0 <= weight <= largest):
        raise InvalidInputError(f"{name} must be from 0 ({meaning_of_0}) to {largest:g}; got {weight!r}.")


def append_location(features: ImageFeatures, location_weight: float, scale_weight: float = 0.0) -> NDArray[np.generic]:
    """Descriptors with ``scale_weight * octave`` and ``location_weight * (x, y)`` appended, in the descriptors' unit.

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

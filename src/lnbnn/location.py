"""Location weighting: where a patch lies, as two more dimensions of its descriptor (Boiman et al. 2008)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures

__all__ = ["MAX_LOCATION_WEIGHT", "UNIT_LENGTH", "append_location", "check_location_weight"]

MAX_LOCATION_WEIGHT = 2.0
"""Above it, the weighted location of an 8-bit descriptor no longer fits 8 bits."""

UNIT_LENGTH = 127.0
"""The length that the unit vector of an 8-bit descriptor has."""


def check_location_weight(location_weight: float) -> None:
    """Raise unless the weight (the paper's alpha) can be used."""
    is_number = isinstance(location_weight, int | float | np.integer | np.floating)
    if not (is_number and math.isfinite(location_weight) and 0.0 <= location_weight <= MAX_LOCATION_WEIGHT):
        raise InvalidInputError(
            f"location_weight must be from 0 (location ignored) to {MAX_LOCATION_WEIGHT:g}; got {location_weight!r}."
        )


def append_location(features: ImageFeatures, location_weight: float) -> NDArray[np.generic]:
    """Descriptors with ``location_weight * (x, y)`` appended, in the descriptors' own unit.

    One squared Euclidean distance over the result is the squared distance of the descriptors plus
    ``location_weight**2`` times that of the locations. uint8 descriptors (unit vectors times 127) get uint8 locations,
    rounded.

    Returns
    -------
    ndarray of shape (n_descriptors, d + 2), uint8 or float32; (n_descriptors, d) if the weight is 0
    """
    descriptors = features.descriptors
    if descriptors.dtype == np.float16:
        descriptors = descriptors.astype(np.float32)
    if location_weight == 0:
        return descriptors
    location: NDArray[np.generic]
    if descriptors.dtype == np.uint8:
        location = (features.xy * np.float32(UNIT_LENGTH * location_weight) + np.float32(0.5)).astype(np.uint8)
    else:
        location = features.xy * np.float32(location_weight)
    return np.hstack([descriptors, location])

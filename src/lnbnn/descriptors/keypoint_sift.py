"""SIFT at keypoints: found again when the picture is turned, shifted or seen at another size (OpenCV's SIFT)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.params import check_whole

__all__ = ["KeypointSIFT"]

_N_DIMS = 128
_PATCH_OF_KEYPOINT = 6.0  # 4 bins of 3 sigma each; OpenCV's keypoint size is 2 sigma


@dataclass(eq=False, repr=False, kw_only=True)
class KeypointSIFT(Descriptor):
    """SIFT descriptors at the keypoints of an image, rotated to each keypoint's direction.

    For individuals and instances: the same animal, coin or building seen again. For kinds of things dense descriptors
    do better, because smooth regions have no keypoints.

    Parameters
    ----------
    max_keypoints : int, default=2000
        How many keypoints are kept, the strongest first.
    min_contrast : float, default=0.03
        A keypoint whose contrast is lower is discarded.
    longest_side : int, default=600
        Images are resized to this longest side, up or down.

    References
    ----------
    Lowe, "Distinctive image features from scale-invariant keypoints", IJCV 2004.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((80, 80), np.uint8); image[30:50, 30:50] = 255
    >>> features = KeypointSIFT(longest_side=80).extract(image)
    >>> len(features) > 0, features.n_dims, features.descriptors.dtype
    (True, 128, dtype('uint8'))
    """

    name = "keypoint-sift"
    version = 1
    location_weight = 0.0
    n_dims = _N_DIMS

    max_keypoints: int = 2000
    min_contrast: float = 0.03
    longest_side: int = 600

    def check_params(self) -> None:
        check_whole("max_keypoints", self.max_keypoints, 1, 1 << 20)
        if not (math.isfinite(self.min_contrast) and self.min_contrast >= 0):
            raise InvalidInputError(f"min_contrast must be a number, at least 0; got {self.min_contrast}.")
        check_whole("longest_side", self.longest_side, 8, 10_000)

    def extract(self, image: NDArray[np.generic]) -> ImageFeatures:
        """Descriptors of one image of any size."""
        self.check_params()
        gray = self.prepare(image)
        height, width = gray.shape
        sift = cv2.SIFT_create(contrastThreshold=float(self.min_contrast))
        found, values = sift.detectAndCompute(gray, None)
        if not found:
            nothing = np.empty(0, np.float32)
            return ImageFeatures(np.empty((0, _N_DIMS), np.uint8), nothing.reshape(0, 2), nothing, (width, height))
        places = np.array([(*point.pt, point.size, point.angle, point.response) for point in found], np.float32)
        x, y, size, angle, response = places.T
        order = np.lexsort((angle, size, x, y, -response))  # the same whatever OpenCV's order
        order = order[: int(self.max_keypoints)]
        values = values[order]
        unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1.0)
        xy = np.clip(places[order, :2] / np.array([width, height], np.float32), 0.0, 1.0).astype(np.float32)
        descriptors = (unit * UNIT_LENGTH + 0.5).astype(np.uint8)
        return ImageFeatures(descriptors, xy, _PATCH_OF_KEYPOINT * size[order], (width, height))

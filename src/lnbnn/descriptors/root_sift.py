"""RootSIFT: the square root of the SIFT histogram, so that Euclidean distance compares as the Hellinger kernel does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.dense_sift import DenseSIFT
from lnbnn.features import UNIT_LENGTH, ImageFeatures

__all__ = ["RootSIFT", "rooted"]


class RootSIFT(DenseSIFT):
    """Dense SIFT scaled to unit sum, then the square root of each value (Arandjelovic and Zisserman, CVPR 2012).

    The settings are those of :class:`~lnbnn.descriptors.dense_sift.DenseSIFT`. The distances are of another size, so
    that ``location_weight`` wants another value than with dense SIFT; ``scale_weight`` is 0 unless given.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((40, 40), np.uint8); image[:, 20:] = 255
    >>> features = RootSIFT(bin_sizes=4, longest_side=40).extract(image)
    >>> bool(abs(np.linalg.norm(features.descriptors[0].astype(float)) - 127) < 3)
    True
    """

    name = "root-sift"
    version = 1
    scale_weight = 0.0

    def extract(self, image: NDArray[np.generic]) -> ImageFeatures:
        """Descriptors of one image of any size."""
        plain = super().extract(image)
        root = (rooted(plain.descriptors) * UNIT_LENGTH + 0.5).astype(np.uint8)
        return ImageFeatures(root, plain.xy, plain.scale, plain.size)


def rooted(descriptors: NDArray[np.generic]) -> NDArray[np.float32]:
    """Histograms scaled to unit sum, and the square root of each value: vectors of unit length."""
    values = descriptors.astype(np.float32)
    roots: NDArray[np.float32] = np.sqrt(values / np.maximum(values.sum(axis=1, keepdims=True), 1.0))
    return roots

"""Fisher vectors and Spatially Local Coding side by side, on one ridge regression."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lnbnn.classifiers.base import settings_class
from lnbnn.classifiers.fisher import FisherVectors
from lnbnn.classifiers.local_coding import SpatiallyLocalCoding
from lnbnn.descriptors import Descriptor
from lnbnn.methods.base import Method
from lnbnn.methods.fisher import FisherRegression
from lnbnn.methods.joint_coding import JointCoding
from lnbnn.methods.local_coding import LocalCoding

__all__ = ["FisherSLC"]


@settings_class
class FisherSLC(FisherVectors, SpatiallyLocalCoding):
    """The vectors of two methods side by side, and one ridge regression that weighs all their values together.

    Images can be added, removed and relabeled. Gaussians and words are learned by ``fit`` and stay until another
    ``fit``.

    Parameters
    ----------
    n_gaussians, n_components, root, spatial, power
        As of :class:`~lnbnn.classifiers.fisher.FisherVectors`.
    n_words, location_weights, n_levels, max_descriptors, n_nearest_words, beta
        As of :class:`~lnbnn.classifiers.local_coding.SpatiallyLocalCoding`.
    n_samples, alpha, descriptor, descriptor_params, n_jobs, random_state
        As of both.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = FisherSLC(n_gaussians=4, n_words=8).fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method: ClassVar[str] = "fisher-slc"
    params_before: ClassVar[dict[str, Any]] = {}

    def make_method(self, descriptor: Descriptor) -> Method:
        return JointCoding(self, [FisherRegression(self), LocalCoding(self, np.float16)])

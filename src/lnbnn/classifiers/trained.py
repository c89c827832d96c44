"""The classifiers that train on all images together: spatial pyramids, and linear SVMs on the mean descriptor."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, cast

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.descriptors import Descriptor
from lnbnn.methods.base import Method
from lnbnn.methods.pooled_svm import PooledLinearSVM
from lnbnn.methods.pyramid.pooling import NORMS, POOLINGS
from lnbnn.methods.spatial_pyramid import PyramidSVM
from lnbnn.params import check_choice, check_positive, check_whole

__all__ = ["HardSpatialPyramid", "PooledSVM", "SoftSpatialPyramid"]


@settings_class
class PooledSVM(Classifier):
    """One linear SVM per class on the mean of an image's descriptors.

    Parameters
    ----------
    C : float, default=1.0
        Inverse regularization strength of the SVMs.
    descriptor, descriptor_params, n_jobs, random_state
        As in :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`; nothing is drawn at random.
    """

    method: ClassVar[str] = "pooled-svm"

    C: float = 1.0

    def make_method(self, descriptor: Descriptor) -> Method:
        return PooledLinearSVM(self)

    def check_settings(self) -> None:
        super().check_settings()
        check_positive("C", self.C)


@settings_class
class HardSpatialPyramid(Classifier):
    """Spatial pyramid with hard assignment and average pooling (Lazebnik et al. 2006).

    Parameters
    ----------
    n_words : int, default=1024
        Size of the codebook.
    pooling : {"average", "max"}, default="average"
        How the codes in a cell are pooled; "average" weights the levels 1/4, 1/4, 1/2.
    n_levels : int, default=3
        Levels of 1 x 1, 2 x 2, 4 x 4, ... cells.
    norm : {"l1", "l2", "none"}, default="none"
        Scale of a pyramid; average-pooled ones sum to 1 as they are.
    n_samples : int, default=200000
        Training descriptors for the codebook, equally many from each image.
    C : float, default=10.0
        Penalty for a training image on the wrong side of the margin.
    descriptor, descriptor_params, n_jobs
        As in :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`.
    random_state : int, default=0
        Seed of the codebook.

    References
    ----------
    Lazebnik, Schmid and Ponce, "Beyond Bags of Features: Spatial Pyramid Matching for Recognizing Natural Scene
    Categories", CVPR 2006.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = HardSpatialPyramid(n_words=8).fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method: ClassVar[str] = "spm-hard"

    n_words: int = dataclasses.field(default=1024, kw_only=False)
    pooling: str = "average"
    n_levels: int = 3
    norm: str = "none"
    n_samples: int = 200_000
    C: float = 10.0

    def make_method(self, descriptor: Descriptor) -> Method:
        return PyramidSVM(self)

    @property
    def pyramids_(self) -> PyramidSVM:
        """The fitted codebook, pyramids and SVMs."""
        return cast(PyramidSVM, self.fitted().method)

    def check_settings(self) -> None:
        super().check_settings()
        check_whole("n_words", self.n_words, 1, 1 << 20)
        check_whole("n_levels", self.n_levels, 1, 8)
        check_whole("n_samples", self.n_samples, 1, 1 << 30)
        check_choice("pooling", self.pooling, POOLINGS)
        check_choice("norm", self.norm, NORMS)
        check_positive("C", self.C)


@settings_class
class SoftSpatialPyramid(HardSpatialPyramid):
    """Spatial pyramid with local soft assignment and max pooling (Liu et al. 2011).

    Parameters
    ----------
    n_nearest_words : int, default=10
        Words that share a descriptor.
    beta : float, default=20.0
        How fast a word's share falls with its squared distance, of unit vectors.
    pooling : {"average", "max"}, default="max"
        How the codes in a cell are pooled.
    norm : {"l1", "l2", "none"}, default="l2"
        Scale of a pyramid.
    n_words, n_levels, n_samples, C, descriptor, descriptor_params, n_jobs, random_state
        As in :class:`HardSpatialPyramid`.

    References
    ----------
    Liu, Wang and Liu, "In Defense of Soft-assignment Coding", ICCV 2011.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = SoftSpatialPyramid(n_words=8).fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method: ClassVar[str] = "spm-soft"

    n_nearest_words: int = 10
    beta: float = 20.0
    pooling: str = "max"
    norm: str = "l2"

    def check_settings(self) -> None:
        super().check_settings()
        check_whole("n_nearest_words", self.n_nearest_words, 1, 1 << 20)
        check_positive("beta", self.beta)

"""The trained classifiers: spatial pyramids, linear SVMs and ridge regression on one vector per image."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, cast

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.methods.base import Method
from lnbnn.methods.local_coding import LocalCoding
from lnbnn.methods.pooled_svm import PooledMachines
from lnbnn.methods.pyramid.pooling import NORMS, POOLINGS
from lnbnn.methods.ridge import PooledRegression
from lnbnn.methods.spatial_pyramid import PyramidMachines
from lnbnn.params import check_choice, check_positive, check_whole, plain

__all__ = ["HardSpatialPyramid", "PooledRidge", "PooledSVM", "SoftSpatialPyramid", "SpatiallyLocalCoding"]

_MAX_CODEBOOKS = 16


@settings_class
class PooledSVM(Classifier):
    """One linear SVM per class on the mean of an image's descriptors.

    Parameters
    ----------
    C : float, default=1.0
        Regularization of the SVMs.
    descriptor, descriptor_params, n_jobs, random_state
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`; nothing is drawn at random.
    """

    method: ClassVar[str] = "pooled-svm"

    C: float = 1.0

    def make_method(self, descriptor: Descriptor) -> Method:
        return PooledMachines(self)

    def check_settings(self) -> None:
        super().check_settings()
        check_positive("C", self.C)


@settings_class
class PooledRidge(Classifier):
    """Ridge regression on the mean of an image's descriptors; images can be added, removed and relabeled.

    Parameters
    ----------
    spatial : bool, default=True
        Whether the maximum of the descriptors, and the means of the picture's four quarters, stand beside the mean.
    alpha : float, optional
        The penalty on the coefficients, of vectors of unit length; by default the one of a few at which the labeled
        images, each left out, are told best. A model that is changed keeps it until ``compact``.
    descriptor, descriptor_params, n_jobs, random_state
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`; nothing is drawn at random.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = PooledRidge().fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method: ClassVar[str] = "pooled-ridge"

    spatial: bool = True
    alpha: float | None = None

    def make_method(self, descriptor: Descriptor) -> Method:
        return PooledRegression(self)

    def check_settings(self) -> None:
        super().check_settings()
        if not isinstance(self.spatial, bool):
            raise InvalidInputError(f"spatial must be true or false; got {self.spatial!r}.")
        if self.alpha is not None:
            check_positive("alpha", self.alpha)


@settings_class
class HardSpatialPyramid(Classifier):
    """Spatial pyramid with hard assignment and average pooling (Lazebnik et al. 2006).

    Parameters
    ----------
    n_words : int, default=1024
        Size of the codebook.
    pooling : {"average", "max"}, default="average"
        How the codes in a cell are gathered; "average" weights the levels 1/4, 1/4, 1/2.
    n_levels : int, default=3
        Levels of 1 x 1, 2 x 2, 4 x 4, ... cells.
    norm : {"l1", "l2", "none"}, default="none"
        Scale of a pyramid; average-pooled ones sum to 1 as they are.
    n_samples : int, default=200000
        Training descriptors that the codebook is made from, as many from each image.
    C : float, default=10.0
        Price of a training image on the wrong side of a machine's margin.
    descriptor, descriptor_params, n_jobs
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`.
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
        return PyramidMachines(self)

    @property
    def pyramids_(self) -> PyramidMachines:
        """The fitted codebook, pyramids and machines."""
        return cast(PyramidMachines, self.fitted().method)

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
        How the codes in a cell are gathered.
    norm : {"l1", "l2", "none"}, default="l2"
        Scale of a pyramid.
    n_words, n_levels, n_samples, C, descriptor, descriptor_params, n_jobs, random_state
        As of :class:`HardSpatialPyramid`.

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


@settings_class
class SpatiallyLocalCoding(PooledRidge):
    """Codes of appearance and place, max pooling over the whole image, and ridge regression (McCann and Lowe 2012).

    Images can be added, removed and relabeled. The words are learned by ``fit`` and stay until another ``fit``.

    Parameters
    ----------
    n_words : int, default=1024
        Size of each codebook.
    location_weights : sequence of float, default=(0.0, 0.75, 1.5, 3.0)
        One codebook each: what the place of a patch counts beside its appearance; 0 ignores the place.
    n_levels : int, default=1
        Cells that the codes are pooled in: 1 for the whole image, 3 for a pyramid of 1 x 1, 2 x 2 and 4 x 4.
    max_descriptors : int or None, default=1500
        So many descriptors of an image are coded at most, evenly chosen; None for all.
    n_nearest_words : int, default=10
        Words of a codebook that share a descriptor.
    beta : float, default=40.0
        How fast a word's share falls with its squared distance, of unit vectors.
    n_samples : int, default=65536
        Training descriptors that the codebooks are made from, as many from each image.
    alpha : float, optional
        As of :class:`PooledRidge`.
    descriptor, descriptor_params, n_jobs
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`.
    random_state : int, default=0
        Seed of the codebooks.

    References
    ----------
    McCann and Lowe, "Spatially Local Coding for Object Recognition", ACCV 2012.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = SpatiallyLocalCoding(n_words=8).fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method: ClassVar[str] = "slc"

    n_words: int = dataclasses.field(default=1024, kw_only=False)
    location_weights: Sequence[float] = (0.0, 0.75, 1.5, 3.0)
    n_levels: int = 1
    max_descriptors: int | None = 1500
    n_nearest_words: int = 10
    beta: float = 40.0
    n_samples: int = 65_536

    def make_method(self, descriptor: Descriptor) -> Method:
        return LocalCoding(self)

    def check_settings(self) -> None:
        super().check_settings()
        check_whole("n_words", self.n_words, 1, 1 << 16)
        check_whole("n_samples", self.n_samples, 1, 1 << 30)
        check_whole("n_nearest_words", self.n_nearest_words, 1, 1 << 16)
        check_whole("n_levels", self.n_levels, 1, 4)
        if self.max_descriptors is not None:
            check_whole("max_descriptors", self.max_descriptors, 1, 1 << 30)
        check_positive("beta", self.beta)
        weights = plain(self.location_weights)
        if not isinstance(weights, list) or not 1 <= len(weights) <= _MAX_CODEBOOKS:
            raise InvalidInputError(f"location_weights must be 1 to {_MAX_CODEBOOKS} numbers; got {weights!r}.")
        for weight in weights:
            if weight != 0:
                check_positive("location_weights", weight)

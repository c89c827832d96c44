"""Fisher vectors, on ridge regression."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.methods.base import Method
from lnbnn.methods.fisher import FisherRegression
from lnbnn.params import check_positive, check_whole

__all__ = ["FisherVectors"]


@settings_class
class FisherVectors(Classifier):
    """How the descriptors of an image differ from a mixture of Gaussians, and ridge regression.

    Images can be added, removed and relabeled. The Gaussians are learned by ``fit`` and stay until another ``fit``.

    Parameters
    ----------
    n_gaussians : int, default=128
        Size of the mixture; smaller where there are not 32 training descriptors for each Gaussian.
    n_components : int, default=64
        Principal components of the descriptors that are used.
    root : bool, default=True
        Whether 8-bit descriptors, which are histograms, are scaled to unit sum and each value becomes its square root
        (RootSIFT: Arandjelovic and Zisserman, CVPR 2012).
    spatial : bool, default=True
        Whether size and place of a patch belong to what the Gaussians describe.
    power : float, default=0.5
        Each value g of the vector becomes sign(g) |g|^power; 1 leaves it.
    n_samples : int, default=65536
        Training descriptors that the Gaussians are learned from, as many from each image.
    alpha : float, optional
        As of :class:`PooledRidge`.
    descriptor, descriptor_params, n_jobs
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`.
    random_state : int, default=0
        Seed of the Gaussians.

    References
    ----------
    Perronnin, Sanchez and Mensink, "Improving the Fisher kernel for large-scale image classification", ECCV 2010.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = FisherVectors(n_gaussians=4).fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method: ClassVar[str] = "fisher"
    params_before: ClassVar[dict[str, Any]] = {"root": False}

    n_gaussians: int = dataclasses.field(default=128, kw_only=False)
    n_components: int = 64
    root: bool = True
    spatial: bool = True
    power: float = 0.5
    n_samples: int = 65_536
    alpha: float | None = None

    def make_method(self, descriptor: Descriptor) -> Method:
        return FisherRegression(self)

    def check_settings(self) -> None:
        super().check_settings()
        check_whole("n_gaussians", self.n_gaussians, 1, 1 << 14)
        check_whole("n_components", self.n_components, 1, 1 << 14)
        check_whole("n_samples", self.n_samples, 1, 1 << 30)
        check_positive("power", self.power)
        if self.power > 1:
            raise InvalidInputError(f"power must be above 0 and at most 1; got {self.power!r}.")
        if self.alpha is not None:
            check_positive("alpha", self.alpha)
        for name in ("root", "spatial"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInputError(f"{name} must be true or false; got {getattr(self, name)!r}.")

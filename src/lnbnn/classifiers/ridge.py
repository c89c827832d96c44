"""Ridge regression on pooled descriptors: the trained classifier that images can be added to."""

from __future__ import annotations

from typing import ClassVar

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.methods.base import Method
from lnbnn.methods.pooled_ridge import PooledRegression
from lnbnn.params import check_positive

__all__ = ["PooledRidge"]


@settings_class
class PooledRidge(Classifier):
    """Ridge regression on the mean of an image's descriptors; images can be added, removed and relabeled.

    Parameters
    ----------
    spatial : bool, default=True
        Whether to add the maximum of the descriptors and the means of the picture's four quarters to the mean.
    alpha : float, optional
        The penalty on the coefficients, for vectors of unit length; by default chosen by leave-one-out on the labeled
        images. A model that is changed keeps it until ``compact``.
    descriptor, descriptor_params, n_jobs, random_state
        As in :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`; nothing is drawn at random.

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

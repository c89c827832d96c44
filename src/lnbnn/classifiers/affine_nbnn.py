"""NBNN for unequal classes: an affine correction of each class"s distance, learned from the training images."""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import settings_class
from lnbnn.classifiers.nbnn import NBNN
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.methods.affine import AffineCorrection
from lnbnn.methods.base import Method
from lnbnn.methods.nbnn import ClassMatching
from lnbnn.params import check_positive, plain

__all__ = ["AffineNBNN"]


@settings_class
class AffineNBNN(NBNN):
    """NBNN with per-class affine correction (Behmo, Marcombes, Dalalyan and Prinet 2010).

    Parameters
    ----------
    regularization : float, default=0.01
        How strongly alpha is held near 1 and beta near 0; see :func:`lnbnn.methods.affine_correction.fit_affine`.
    balance : float, default=0.5
        In training, an image of a class with n images has the weight n ** -balance: 0 weights images equally, 1
        classes.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    n_jobs, random_state
        As in :class:`NBNN`.

    Attributes
    ----------
    alpha_, beta_ : ndarray of shape (n_classes,)
        The correction of each class; 1 and 0 for a class of one image.
    reference_distances_ : ndarray of shape (n_images, n_classes)
        The uncorrected mean distances of the labeled images, each class without one image: what alpha and beta are
        learned from.
    classes_, images_, indexes_, skipped_
        As in :class:`NBNN`.

    Notes
    -----
    The total of class c for an image with descriptors d_1 ... d_n is its corrected distance::

        alpha_c * (1 / n) * sum_i ||d_i - NN_c(d_i)||^2 + beta_c

    A class with more descriptors has nearer neighbors whatever the image, so plain NBNN favors it. The correction
    removes this bias. Fitting takes one search per training image.

    References
    ----------
    Behmo, Marcombes, Dalalyan and Prinet, "Towards Optimal Naive Bayes Nearest Neighbor", ECCV 2010.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> images += [images[0][2:], images[1][:, 2:]]
    >>> AffineNBNN(query_budget=50).fit(images, [0, 1, 0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method: ClassVar[str] = "nbnn-affine"
    stop_confidence: ClassVar[None] = None  # type: ignore[misc]  # corrected distances are means over all descriptors

    regularization: float = 0.01
    balance: float = 0.5

    def make_method(self, descriptor: Descriptor) -> Method:
        return AffineCorrection(self, ClassMatching(self, *self._weights(descriptor)))

    @property
    def alpha_(self) -> NDArray[np.float64]:
        """The factor of each class."""
        return cast(AffineCorrection, self.matching_).alpha

    @property
    def beta_(self) -> NDArray[np.float64]:
        """The offset of each class."""
        return cast(AffineCorrection, self.matching_).beta

    @property
    def reference_distances_(self) -> NDArray[np.float64]:
        """The uncorrected mean distances of the labeled images."""
        return cast(AffineCorrection, self.matching_).reference_distances

    def check_settings(self) -> None:
        super().check_settings()
        check_positive("regularization", self.regularization)
        balance = plain(self.balance)
        if isinstance(balance, bool) or not isinstance(balance, int | float) or not 0.0 <= balance <= 1.0:
            raise InvalidInputError(f"balance must be a number from 0 to 1; got {self.balance!r}.")

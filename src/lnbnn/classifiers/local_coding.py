"""Spatially Local Coding, the authors' next method, on ridge regression."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.methods.base import Method
from lnbnn.methods.local_coding import LocalCoding
from lnbnn.params import check_positive, check_whole, plain

__all__ = ["SpatiallyLocalCoding"]

_MAX_CODEBOOKS = 16


@settings_class
class SpatiallyLocalCoding(Classifier):
    """Codes of appearance and location, max pooling over the whole image, and ridge regression (McCann and Lowe 2012).

    Images can be added, removed and relabeled. The words are learned by ``fit`` and do not change afterward.

    Parameters
    ----------
    n_words : int, default=1024
        Size of each codebook.
    location_weights : sequence of float, default=(0.0, 0.75, 1.5, 3.0)
        One codebook per weight of a patch's location; 0 ignores the location.
    n_levels : int, default=1
        Cells that the codes are pooled in: 1 for the whole image, 3 for a pyramid of 1 x 1, 2 x 2 and 4 x 4.
    max_descriptors : int or None, default=1500
        The most descriptors coded per image, evenly chosen; None for all.
    n_nearest_words : int, default=10
        Words of a codebook that share a descriptor.
    beta : float, default=40.0
        How fast a word's share falls with its squared distance, of unit vectors.
    n_samples : int, default=65536
        Training descriptors for the codebooks, equally many from each image.
    alpha : float, optional
        As in :class:`PooledRidge`.
    descriptor, descriptor_params, n_jobs
        As in :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`.
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
    alpha: float | None = None
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
        if self.alpha is not None:
            check_positive("alpha", self.alpha)
        weights = plain(self.location_weights)
        if not isinstance(weights, list) or not 1 <= len(weights) <= _MAX_CODEBOOKS:
            raise InvalidInputError(f"location_weights must be 1 to {_MAX_CODEBOOKS} numbers; got {weights!r}.")
        for weight in weights:
            if weight != 0:
                check_positive("location_weights", weight)

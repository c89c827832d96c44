"""NBNN: one index per class, every class is updated by every descriptor (Algorithm 1); and its log-odds form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import settings_class
from lnbnn.classifiers.matching import MatchingClassifier
from lnbnn.descriptors import Descriptor
from lnbnn.indexes import Index
from lnbnn.methods.base import Method
from lnbnn.methods.nbnn import ClassMatching, LogOddsMatching
from lnbnn.reading.extraction import ImageLike, map_in_order
from lnbnn.scoring import Updates

__all__ = ["NBNN", "LogOddsNBNN"]


@settings_class
class NBNN(MatchingClassifier):
    """NBNN classifier (Boiman, Shechtman and Irani 2008; Algorithm 1 of McCann & Lowe 2011).

    Parameters
    ----------
    location_weight : float, optional
        alpha: weight of a patch's location, 0 to 2; the default depends on the descriptor, 1.6 for dense SIFT.
    scale_weight : float, optional
        Weight of an octave of a patch's size, 0 to 0.4; the default depends on the descriptor, 0.25 for dense SIFT.
    descriptor, descriptor_params, index, index_params, query_budget, stop_confidence, n_jobs, random_state
        As in :class:`LocalNBNN`; each class has an index of its own.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    images_ : list of Reference
    indexes_ : list of Index
        One per class, in the order of ``classes_``.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> NBNN(index="exact").fit(images, [0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method: ClassVar[str] = "nbnn"

    def make_method(self, descriptor: Descriptor) -> Method:
        return ClassMatching(self, *self._weights(descriptor))

    @property
    def indexes_(self) -> list[Index]:
        """One index per class."""
        return [index for index, _ in self.matching_.indexes()]

    def class_distances(self, image: ImageLike) -> NDArray[np.float32]:
        """Squared distance of each query descriptor of an image to its nearest neighbor in every class.

        Returns
        -------
        ndarray of shape (n_descriptors, n_classes); inf where a class's index found none
        """
        matching = cast(ClassMatching, self.matching_)
        return matching.class_distances(self.query_vectors(image))


@settings_class
class LogOddsNBNN(NBNN):
    """NBNN by increments of the posterior log-odds (McCann & Lowe 2011, section "Towards local NBNN").

    Parameters
    ----------
    positive_only : bool, default=True
        Use only the positive increments. The paper finds that the others are not needed.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    stop_confidence, n_jobs, random_state
        As in :class:`NBNN`.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> LogOddsNBNN(index="exact").fit(images, [0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method: ClassVar[str] = "nbnn-log-odds"

    positive_only: bool = True

    def make_method(self, descriptor: Descriptor) -> Method:
        return LogOddsMatching(self, *self._weights(descriptor))

    def mean_increments(self, X: Sequence[ImageLike]) -> float:
        """How many classes a descriptor updates, on average over all query descriptors of all images."""
        sizes = [
            (updates.n_increments * len(updates.values), len(updates.values))
            for updates in map_in_order(self.updates, list(X), self.n_jobs)
        ]
        n_increments, n_descriptors = np.sum(sizes, axis=0)
        return float(n_increments / n_descriptors) if n_descriptors else 0.0

    def increments(self, distances: NDArray[np.floating], *, positive_only: bool) -> Updates:
        """The updates from squared distances to the classes (see :meth:`class_distances`), all or the positive ones."""
        return cast(LogOddsMatching, self.matching_).increments(distances, positive_only=positive_only)

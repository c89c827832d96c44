"""Local NBNN: one merged index, only the classes near a descriptor are updated (Algorithm 2)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import settings_class
from lnbnn.classifiers.matching import MatchingClassifier
from lnbnn.descriptors import Descriptor
from lnbnn.indexes import Index
from lnbnn.methods.base import Method
from lnbnn.methods.local_nbnn import LocalMatching
from lnbnn.params import check_whole
from lnbnn.reading.extraction import ImageLike

__all__ = ["LocalNBNN"]


@settings_class
class LocalNBNN(MatchingClassifier):
    """Local NBNN classifier (McCann & Lowe 2011, Algorithm 2).

    Parameters
    ----------
    n_neighbors : int, default=10
        k: a descriptor updates the classes among its k nearest neighbors.
    location_weight : float, optional
        alpha: weight of a patch's location, 0 to 2; the default depends on the descriptor, 1.6 for dense SIFT.
    scale_weight : float, optional
        Weight of an octave of a patch's size, 0 to 0.4; the default depends on the descriptor, 0.25 for dense SIFT.
    descriptor : str or Descriptor, default="dense-sift"
        A registered name, or a descriptor object.
    descriptor_params : dict, optional
        Settings of the named descriptor.
    index : str, default="faiss"
        A registered name: "faiss", "exact" or "flann".
    index_params : dict, optional
        Settings of the index.
    query_budget : int, float or None, default=500
        Use at most this many (int) or this share (float) of a query image's descriptors, evenly spread over scales and
        locations, offset by ``random_state``; None uses all.
    stop_confidence : float or None, default=0.95
        Search for some of the query descriptors at a time, and stop once the leading class would keep its lead over the
        second with this probability if all were used; the scores are then estimates of the full sums. None uses all
        descriptors, as ``updates`` and ``totals`` always do.
    n_jobs : int or RayCluster, optional
        Threads, or the machines of a Ray cluster; by default all cores. The answers do not depend on it.
    random_state : int, default=0
        Seed for the choice of query descriptors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    images_ : list of Reference
        The labeled images, in the order given.
    index_ : Index
        The merged index.
    skipped_ : list of (name, reason)
        Files left out by ``fit(..., on_error="skip")``.

    References
    ----------
    McCann and Lowe, "Local Naive Bayes Nearest Neighbor for Image Classification", UBC TR-2011-11.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = LocalNBNN(index="exact").fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method: ClassVar[str] = "local-nbnn"
    params_gone: ClassVar[dict[str, Any]] = {
        "match_score": "difference",
        "background_rank": None,
        "background_other_class": False,
        "normalize_classes": False,
    }

    n_neighbors: int = dataclasses.field(default=10, kw_only=False)

    def make_method(self, descriptor: Descriptor) -> Method:
        return LocalMatching(self, *self._weights(descriptor))

    @property
    def index_(self) -> Index:
        """The merged index."""
        return cast(LocalMatching, self.matching_).index

    def neighbors(self, image: ImageLike) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """The k + 1 nearest neighbors of each query descriptor of an image, nearest first.

        Returns
        -------
        distances, labels : ndarrays of shape (n_descriptors, k + 1)
            Squared distances, and classes as their places in ``classes_``; inf and -1 where fewer were found.
        """
        matching = cast(LocalMatching, self.matching_)
        return matching.neighbors(self.query_vectors(image))

    def check_settings(self) -> None:
        super().check_settings()
        check_whole("n_neighbors", self.n_neighbors, 1, 1 << 30)

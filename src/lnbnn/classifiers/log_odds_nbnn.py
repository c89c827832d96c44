"""NBNN as log-odds: each descriptor moves the odds of every class, or only of those it speaks for (Equation 15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.nbnn import NBNN
from lnbnn.descriptors import Descriptor
from lnbnn.features import UNIT_LENGTH
from lnbnn.indexes import LeaveOut
from lnbnn.reading.extraction import ImageLike, map_in_order
from lnbnn.scoring import Updates, log_odds_updates

__all__ = ["LogOddsNBNN"]


class LogOddsNBNN(NBNN):
    """NBNN by increments of the posterior log-odds (McCann & Lowe 2011, section "Towards local NBNN").

    Parameters
    ----------
    positive_only : bool, default=True
        Use only the increments that speak for a class. The paper finds that the rest is not needed.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    stop_confidence, n_jobs, random_state
        As of :class:`~lnbnn.classifiers.nbnn.NBNN`.

    Notes
    -----
    With equal priors the increment of class C by descriptor d is ``log(P(C|d) / (1 - P(C|d))) + log(n_classes - 1)``,
    with ``P(C|d)`` proportional to ``exp(-||d - NN_C(d)||^2)`` between unit vectors.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> LogOddsNBNN(index="exact").fit(images, [0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method = "nbnn-log-odds"

    def __init__(
        self,
        *,
        positive_only: bool = True,
        location_weight: float | None = None,
        scale_weight: float | None = None,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 500,
        stop_confidence: float | None = 0.95,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.positive_only = positive_only
        super().__init__(
            location_weight=location_weight,
            scale_weight=scale_weight,
            descriptor=descriptor,
            descriptor_params=descriptor_params,
            index=index,
            index_params=index_params,
            query_budget=query_budget,
            stop_confidence=stop_confidence,
            n_jobs=n_jobs,
            random_state=random_state,
        )

    def mean_increments(self, X: Sequence[ImageLike]) -> float:
        """How many classes a descriptor moves, on average over all query descriptors of all images."""
        sizes = [
            (updates.n_increments * len(updates.values), len(updates.values))
            for updates in map_in_order(self.updates, list(X), self.n_jobs)
        ]
        n_increments, n_descriptors = np.sum(sizes, axis=0)
        return float(n_increments / n_descriptors) if n_descriptors else 0.0

    def increments(self, distances: NDArray[np.floating], *, positive_only: bool) -> Updates:
        """The updates from squared distances to the classes (see :meth:`class_distances`), all or the positive ones."""
        unit = UNIT_LENGTH**2 if self.indexes_[0].dtype == np.uint8 else 1.0
        return log_odds_updates(distances / unit, positive_only=positive_only)

    def _updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> Updates:
        return self.increments(self._class_distances(vectors, leave_out), positive_only=self.positive_only)

"""The paper's index: FLANN's randomized kd-trees. The only module that imports FLANN's binding."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import MissingExtraError
from lnbnn.indexes.base import Index
from lnbnn.params import check_whole

try:
    import pyflann_ibeis as pyflann
except ImportError as error:
    raise MissingExtraError("index 'flann' needs the extra: pip install 'lnbnn[flann]'.") from error

__all__ = ["FlannIndex"]

_OVERSAMPLE = 8  # FLANN cannot pass over rows: when some are hidden, more are asked for and the hidden ones dropped


@dataclass(eq=False, repr=False)
class FlannIndex(Index):
    """Randomized kd-trees searched best bin first (Muja & Lowe 2009), as in the paper.

    Parameters
    ----------
    n_trees : int, default=4
        Randomized trees searched together.
    checks : int, default=1024
        Leaves visited for each query: the computation knob of the paper.
    seed : int, default=0
        Of the random choice of the dimensions to split at.

    Notes
    -----
    The trees are rebuilt when the model is opened and when vectors are added or removed. Searches take turns:
    FLANN's result buffers belong to the index.
    """

    name = "flann"

    n_trees: int = 4
    checks: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def check_params(self) -> None:
        check_whole("n_trees", self.n_trees, 1, 1 << 10)
        check_whole("checks", self.checks, 1, 1 << 24)
        check_whole("seed", self.seed, 0, (1 << 31) - 2)

    def _build_rows(self) -> None:
        self._flann = pyflann.FLANN()
        # FLANN takes no seed of 0: it would leave its generator as it is.
        self._flann.build_index(
            np.ascontiguousarray(self._table.vectors),
            algorithm="kdtree",
            trees=int(self.n_trees),
            random_seed=self.seed + 1,
            log_level="warning",
        )

    def _search_rows(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        n_asked = n_neighbors if hidden is None else min(_OVERSAMPLE * n_neighbors, len(self._table))
        with self._lock:
            rows, distances = self._flann.nn_index(queries, n_asked, checks=int(self.checks), cores=1)
        rows = np.asarray(rows, np.int64).reshape(len(queries), n_asked)
        distances = np.asarray(distances, np.float32).reshape(len(queries), n_asked)
        found = (rows >= 0) & (rows < self._table.n_rows)
        if hidden is not None:
            found &= ~np.isin(rows, hidden)
        distances, rows = np.where(found, distances, np.float32(np.inf)), np.where(found, rows, -1)
        order = np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
        return np.take_along_axis(distances, order, axis=1), np.take_along_axis(rows, order, axis=1)

    def _describe(self) -> str:
        return f"flann: {self.n_trees} randomized kd-trees, {self.checks} checks"

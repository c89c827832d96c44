"""Exact search by comparing with every vector: the reference the other backends are checked against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lnbnn.indexes.base import Index
from lnbnn.indexes.selection import select_smallest

__all__ = ["ExactIndex"]

_BLOCK_ELEMENTS = 1 << 24  # distances held at once, about 128 MiB
_BLOCK_ROWS = 1 << 16


class ExactIndex(Index):
    """Brute force: right to the last bit, equal distances in the order they were added, time linear in the size."""

    name = "exact"

    def _build_rows(self) -> None:
        # Sums of products of 8-bit numbers stay whole numbers: float64 holds them exactly in any order of summation.
        vectors = self._table.vectors
        blocks = (
            vectors[start : start + _BLOCK_ROWS].astype(np.float64) for start in range(0, len(vectors), _BLOCK_ROWS)
        )
        self._norms = np.concatenate([(block * block).sum(axis=1) for block in blocks])

    def _search_rows(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        vectors = self._table.vectors
        distances = np.empty((len(queries), n_neighbors), np.float32)
        rows = np.empty((len(queries), n_neighbors), np.int64)
        block = max(1, _BLOCK_ELEMENTS // len(vectors))
        references = vectors.astype(np.float64).T
        for start in range(0, len(queries), block):
            part = queries[start : start + block].astype(np.float64)
            squared = self._norms[None, :] - 2.0 * (part @ references) + (part * part).sum(axis=1)[:, None]
            squared = np.maximum(squared, 0.0)
            if hidden is not None:
                squared[:, hidden] = np.inf
            distances[start : start + block], rows[start : start + block] = select_smallest(squared, n_neighbors)
        return distances, np.where(np.isfinite(distances), rows, -1)

    def _describe(self) -> str:
        return "exact: every query compared with every vector"

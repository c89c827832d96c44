"""Exact search by comparing with every vector: the reference the other backends are checked against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lnbnn.indexes.base import Index
from lnbnn.indexes.selection import select_smallest

__all__ = ["ExactIndex"]

_BLOCK_ELEMENTS = 1 << 24  # distances held at once, about 128 MiB


class ExactIndex(Index):
    """Brute force: right to the last bit, equal distances in the order they were added, time linear in the size."""

    name = "exact"

    def _build_rows(self) -> None:
        # Sums of products of 8-bit numbers stay whole numbers: float64 holds them exactly in any order of summation.
        self._norms = _squared_norms(self._require_table().vectors)

    def _search_rows(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        vectors = self._require_table().vectors
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
            found = select_smallest(squared, n_neighbors)
            distances[start : start + block], rows[start : start + block] = found
        return distances, np.where(np.isfinite(distances), rows, -1)

    def _describe(self) -> str:
        return "exact: every query compared with every vector"


def _squared_norms(vectors: NDArray[np.generic], block: int = 1 << 16) -> NDArray[np.float64]:
    norms = np.empty(len(vectors))
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block].astype(np.float64)
        norms[start : start + block] = (part * part).sum(axis=1)
    return norms

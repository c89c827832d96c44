"""The rows of a collection as an index sees them: numbers to ids and back, and vectors that stay on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lnbnn.indexes.milvus_collection import Collection
    from lnbnn.indexes.milvus_state import State

__all__ = ["Ids", "RemoteRows", "runs"]

_BLOCK = 1 << 16  # ids compared at once


class Ids:
    """Ids of rows, in the order of the rows, found by value."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self.ids = ids
        self._order: NDArray[np.intp] | None = None
        self._ascending = ids
        if len(ids) > 1 and not all(
            (np.diff(ids[start : start + _BLOCK + 1]) > 0).all() for start in range(0, len(ids), _BLOCK)
        ):
            self._order = np.argsort(ids, kind="stable")
            self._ascending = ids[self._order]

    def __len__(self) -> int:
        return len(self.ids)

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these ids, of any shape; -1 for one that is not here."""
        if not len(self.ids):
            return np.full(ids.shape, -1, np.int64)
        places = np.minimum(np.searchsorted(self._ascending, ids), len(self.ids) - 1)
        rows = places if self._order is None else self._order[places]
        return np.where(self._ascending[places] == ids, rows, -1).astype(np.int64)

    def runs(self, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
        """The lowest and the highest id of each run of rows that follow each other by id."""
        places = rows
        if self._order is not None:
            places = np.sort(np.searchsorted(self._ascending, self.ids[rows]))
        return [(int(self._ascending[low]), int(self._ascending[high])) for low, high in runs(places)]


class RemoteRows:
    """Vectors that are asked for when they are needed, where an array would have them; see :class:`VectorTable`."""

    def __init__(self, collection: Collection, ids: NDArray[np.int64], state: State) -> None:
        self.shape, self.dtype = (len(ids), state.n_dims), np.dtype(state.dtype)
        self._collection, self._ids = collection, ids

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[np.generic]:
        return self._collection.fetch(self._ids[rows]).astype(self.dtype)


def runs(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    """First and last of each run of ascending whole numbers."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1)
    first, last = numbers[np.append(0, breaks + 1)], numbers[np.append(breaks, len(numbers) - 1)]
    return list(zip(first.tolist(), last.tolist(), strict=True))

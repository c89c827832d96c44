"""The rows an index searches: vectors and their ids, growing in memory or mapped from files."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.arrays import load_array, save_array
from lnbnn.errors import InvalidInputError, ModelFormatError

__all__ = ["VectorTable"]


class VectorTable:
    """Vectors of one type and length, each under an id; removed rows keep their place until :meth:`drop_removed`."""

    def __init__(self, n_dims: int, dtype: np.dtype) -> None:
        self._vectors = np.empty((0, n_dims), dtype)
        self._ids = np.empty(0, np.int64)
        self._n_rows = 0
        self._removed = np.zeros(0, bool)
        self._ascending: bool | None = None  # whether the ids are; not known until asked for

    @property
    def n_dims(self) -> int:
        return int(self._vectors.shape[1])

    @property
    def dtype(self) -> np.dtype:
        return self._vectors.dtype

    @property
    def vectors(self) -> NDArray[np.generic]:
        """All rows, the removed ones too."""
        return self._vectors[: self._n_rows]

    @property
    def ids(self) -> NDArray[np.int64]:
        """The id of each row, the removed ones too."""
        return self._ids[: self._n_rows]

    @property
    def removed(self) -> NDArray[np.bool_]:
        """Which rows are removed; of length 0 when none is."""
        return self._removed

    def __len__(self) -> int:
        return self._n_rows - int(np.count_nonzero(self._removed))

    @property
    def nbytes(self) -> int:
        return int(self.vectors.nbytes + self.ids.nbytes)

    def append(self, vectors: NDArray[np.generic], ids: NDArray[np.int64]) -> int:
        """Add rows; returns the number of the first."""
        if vectors.shape[1] != self.n_dims or vectors.dtype != self.dtype:
            raise InvalidInputError(
                f"vectors must be {self.dtype} of length {self.n_dims}, as those already indexed; "
                f"got {vectors.dtype} of length {vectors.shape[1]}."
            )
        start, end = self._n_rows, self._n_rows + len(vectors)
        if end > len(self._vectors):
            self._grow(max(end, len(self._vectors) + len(self._vectors) // 2, 1024))
        self._vectors[start:end] = vectors
        self._ids[start:end] = ids
        self._n_rows = end
        self._ascending = None
        self._removed = np.append(self._removed, np.zeros(len(vectors), bool)) if self._removed.size else self._removed
        return start

    def remove(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Mark the rows with these ids as removed; returns their numbers."""
        if not self._removed.size:
            self._removed = np.zeros(self._n_rows, bool)
        rows = np.flatnonzero(np.isin(self.ids, ids) & ~self._removed)
        self._removed[rows] = True
        return rows

    def rows_of(self, ids: range) -> NDArray[np.int64]:
        """The numbers of the rows with ids in a range, the removed ones too."""
        if self._ascending is None:
            self._ascending = bool((np.diff(self.ids) > 0).all())
        if self._ascending:
            return np.arange(*np.searchsorted(self.ids, [ids.start, ids.stop]))
        return np.flatnonzero((self.ids >= ids.start) & (self.ids < ids.stop))

    def drop_removed(self) -> None:
        """Close the gaps that removals left; row numbers change."""
        if self._removed.any():
            keep = ~self._removed
            self._vectors, self._ids = self.vectors[keep], self.ids[keep]
            self._n_rows = len(self._ids)
        self._removed = np.zeros(0, bool)

    def save(self, folder: Path) -> None:
        save_array(folder / "vectors.npy", self.vectors)
        save_array(folder / "ids.npy", self.ids)
        if self._removed.any():
            save_array(folder / "removed.npy", self._removed)

    @classmethod
    def load(cls, folder: Path) -> Self:
        vectors = load_array(folder / "vectors.npy", ndim=2, dtypes=("uint8", "float32"))
        ids = load_array(folder / "ids.npy", ndim=1, dtypes=("int64",))
        if len(vectors) != len(ids):
            raise ModelFormatError(f"{folder}: {len(vectors)} vectors but {len(ids)} ids; fit the model again.")
        table = cls(vectors.shape[1], vectors.dtype)
        table._vectors, table._ids, table._n_rows = vectors, ids.view(np.int64), len(ids)
        if (folder / "removed.npy").exists():
            table._removed = np.array(load_array(folder / "removed.npy", ndim=1, dtypes=("bool",)))
            if len(table._removed) != len(ids):
                raise ModelFormatError(f"{folder}: removed.npy does not fit ids.npy; fit the model again.")
        return table

    def _grow(self, capacity: int) -> None:
        if self._vectors.flags.owndata and self._ids.flags.owndata and len(self._vectors):
            # In place: the system moves pages instead of copying, so memory does not double.
            self._vectors.resize((capacity, self.n_dims), refcheck=False)
            self._ids.resize(capacity, refcheck=False)
            return
        vectors, ids = np.empty((capacity, self.n_dims), self.dtype), np.empty(capacity, np.int64)
        vectors[: self._n_rows], ids[: self._n_rows] = self.vectors, self.ids
        self._vectors, self._ids = vectors, ids

"""The rows an index searches: vectors and their ids, mapped from files, and those that came after in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.files.arrays import load_array, save_stacked

__all__ = ["VectorTable"]

_GROWTH = 16  # memory grows by a 16th of itself: the room that stays unused is filled with zeros, so it counts


class VectorTable:
    """Vectors of one type and length, each under an id; removed rows keep their place until :meth:`drop_removed`.

    The rows are in two parts: those of the files a table was opened from, which stay mapped and are never copied, and
    those added since, in memory that grows.
    """

    def __init__(self, n_dims: int, dtype: np.dtype) -> None:
        self._stored = _read_only(np.empty((0, n_dims), dtype))
        self._stored_ids = np.empty(0, np.int64)
        self._added = np.empty((0, n_dims), dtype)
        self._added_ids = np.empty(0, np.int64)
        self._n_added = 0
        self._removed = np.zeros(0, bool)
        self._ascending: bool | None = None  # whether the ids are; not known until asked for

    @property
    def n_dims(self) -> int:
        return int(self._added.shape[1])

    @property
    def dtype(self) -> np.dtype:
        return self._added.dtype

    @property
    def n_rows(self) -> int:
        """Number of rows, the removed ones too."""
        return len(self._stored) + self._n_added

    @property
    def parts(self) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """All rows, the removed ones too, in two arrays: stored ones (read-only), then added ones."""
        return self._stored, self._added[: self._n_added]

    @property
    def vectors(self) -> NDArray[np.generic]:
        """All rows in one array; copied together, once, where there are two."""
        if len(self._stored) and self._n_added:
            self._added, self._added_ids = np.concatenate(self.parts), self.ids
            self._n_added = len(self._added)
            self._stored, self._stored_ids = self._stored[:0], self._stored_ids[:0]
        return self._stored if len(self._stored) else self._added[: self._n_added]

    @property
    def ids(self) -> NDArray[np.int64]:
        """The id of each row, the removed ones too."""
        added = self._added_ids[: self._n_added]
        if not len(self._stored_ids):
            return added
        return np.concatenate([self._stored_ids, added]) if len(added) else self._stored_ids

    @property
    def removed(self) -> NDArray[np.bool_]:
        """Which rows are removed; of length 0 when none is."""
        return self._removed

    def __len__(self) -> int:
        return self.n_rows - int(np.count_nonzero(self._removed))

    @property
    def nbytes(self) -> int:
        return self.n_rows * (self.n_dims * self.dtype.itemsize + 8)

    def take(self, rows: NDArray[np.integer]) -> NDArray[np.generic]:
        """The vectors of these rows, ascending."""
        split = np.searchsorted(rows, len(self._stored))
        return np.concatenate([self._stored[rows[:split]], self._added[rows[split:] - len(self._stored)]])

    def block(self, start: int, stop: int) -> NDArray[np.generic]:
        """The vectors of a run of rows."""
        n_stored, end = len(self._stored), min(stop, self.n_rows)
        if start >= n_stored:
            return self._added[start - n_stored : end - n_stored]
        if end <= n_stored:
            return self._stored[start:end]
        return np.concatenate([self._stored[start:], self._added[: end - n_stored]])

    def ids_at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids of these rows, of any shape and order; -1 stays -1."""
        if rows.size and (rows.max() >= self.n_rows or rows.min() < -1):
            raise ModelFormatError("the index points to vectors that are not there; fit the model again.")
        if not self._n_added:
            found = self._stored_ids[rows]
        elif not len(self._stored_ids):
            found = self._added_ids[rows]
        else:
            is_added = rows >= len(self._stored_ids)
            found = self._stored_ids[np.where(is_added, 0, rows)]
            found[is_added] = self._added_ids[rows[is_added] - len(self._stored_ids)]
        return np.where(rows >= 0, found, -1)

    def append(self, vectors: NDArray[np.generic], ids: NDArray[np.int64]) -> int:
        """Add rows; returns the number of the first."""
        if vectors.shape[1] != self.n_dims or vectors.dtype != self.dtype:
            raise InvalidInputError(
                f"vectors must be {self.dtype} of length {self.n_dims}, as those already indexed; "
                f"got {vectors.dtype} of length {vectors.shape[1]}."
            )
        start, end = self._n_added, self._n_added + len(vectors)
        if self._ascending and len(ids) and self.n_rows:
            last = self._added_ids[start - 1] if start else self._stored_ids[-1]
            self._ascending = bool(ids[0] > last and (np.diff(ids) > 0).all())
        if end > len(self._added):
            self._grow(max(end, len(self._added) + len(self._added) // _GROWTH, 1024))
        self._added[start:end] = vectors
        self._added_ids[start:end] = ids
        self._n_added = end
        self._removed = np.append(self._removed, np.zeros(len(vectors), bool)) if self._removed.size else self._removed
        return len(self._stored) + start

    def remove(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Mark the rows with these ids as removed; returns their numbers."""
        if not len(ids):
            return np.empty(0, np.int64)
        low, high = int(ids.min()), int(ids.max())
        rows = self.rows_of(range(low, high + 1))  # the ids of an image are one run: only a few rows are looked at
        rows = rows[np.isin(self.ids_at(rows), ids)]
        if not self._removed.size:
            self._removed = np.zeros(self.n_rows, bool)
        rows = rows[~self._removed[rows]]
        self._removed[rows] = True
        return rows

    def rows_of(self, ids: range) -> NDArray[np.int64]:
        """The numbers of the rows with ids in a range, the removed ones too."""
        if self._ascending is None:
            self._ascending = bool((np.diff(self.ids) > 0).all())
        parts = ((0, self._stored_ids), (len(self._stored_ids), self._added_ids[: self._n_added]))
        if self._ascending:
            found = [start + np.arange(*np.searchsorted(part, [ids.start, ids.stop])) for start, part in parts]
        else:
            found = [start + np.flatnonzero((part >= ids.start) & (part < ids.stop)) for start, part in parts]
        return np.concatenate(found).astype(np.int64)

    def live_rows_of(self, ids: range) -> NDArray[np.int64]:
        """The numbers of the rows with ids in a range, without the removed ones."""
        rows = self.rows_of(ids)
        return rows[~self._removed[rows]] if self._removed.size else rows

    def drop_removed(self) -> None:
        """Close the gaps that removals left; row numbers change."""
        if self._removed.any():
            keep = ~self._removed
            ids, vectors = self.ids[keep], self.take(np.flatnonzero(keep))
            self._stored, self._stored_ids = self._stored[:0], self._stored_ids[:0]
            self._added, self._added_ids, self._n_added = vectors, ids, len(ids)
        self._removed = np.zeros(0, bool)

    def save(self, folder: Path) -> None:
        save_stacked(folder / "vectors.npy", self.parts)
        save_stacked(folder / "ids.npy", (self._stored_ids, self._added_ids[: self._n_added]))
        if self._removed.any():
            save_stacked(folder / "removed.npy", (self._removed,))

    @classmethod
    def load(cls, folder: Path) -> Self:
        vectors = load_array(folder / "vectors.npy", ndim=2, dtypes=("uint8", "float32"))
        ids = load_array(folder / "ids.npy", ndim=1, dtypes=("int64",))
        if len(vectors) != len(ids) or vectors.shape[1] == 0:
            raise ModelFormatError(f"{folder}: {len(vectors)} vectors but {len(ids)} ids; fit the model again.")
        table = cls(vectors.shape[1], vectors.dtype)
        table._stored, table._stored_ids = _read_only(vectors), ids.view(np.int64)
        if (folder / "removed.npy").exists():
            table._removed = np.array(load_array(folder / "removed.npy", ndim=1, dtypes=("bool",)))
            if len(table._removed) != len(ids):
                raise ModelFormatError(f"{folder}: removed.npy does not fit ids.npy; fit the model again.")
        return table

    def _grow(self, capacity: int) -> None:
        if self._added.flags.owndata and self._added_ids.flags.owndata and len(self._added):
            # In place: the system moves pages instead of copying, so memory does not double.
            self._added.resize((capacity, self.n_dims), refcheck=False)
            self._added_ids.resize(capacity, refcheck=False)
            return
        vectors, ids = np.empty((capacity, self.n_dims), self.dtype), np.empty(capacity, np.int64)
        vectors[: self._n_added], ids[: self._n_added] = self._added[: self._n_added], self._added_ids[: self._n_added]
        self._added, self._added_ids = vectors, ids


def _read_only(vectors: NDArray[np.generic]) -> NDArray[np.generic]:
    view = np.asarray(vectors).view()
    view.flags.writeable = False
    return view

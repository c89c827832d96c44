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

    Parameters
    ----------
    stored : ndarray of shape (n, n_dims)
        The rows of the files a table was opened from: they stay mapped and are never copied. Anything that has a
        shape and a type, and gives rows by their numbers, can stand for an array.
    stored_ids : ndarray of shape (n,), int64
    removed : ndarray of shape (n,), bool, optional

    Attributes
    ----------
    added : ndarray of shape (n_added, n_dims)
        The rows that came after the stored ones, in memory that grows.
    n_rows : int
        Number of stored and added rows, the removed ones too.
    removed : ndarray, bool
        Which rows are removed; of length 0 when none is.
    """

    def __init__(
        self,
        stored: NDArray[np.generic],
        stored_ids: NDArray[np.int64],
        removed: NDArray[np.bool_] | None = None,
    ) -> None:
        self.n_dims, self.dtype = stored.shape[1], stored.dtype
        self.removed = np.zeros(0, bool) if removed is None else removed
        self._ascending: bool | None = None  # whether the ids are; not known until asked for
        self.stored, self._stored_ids = stored, stored_ids
        if isinstance(stored, np.ndarray):
            self.stored = np.asarray(stored).view()
            self.stored.flags.writeable = False
        self._set_added(np.empty((0, self.n_dims), self.dtype), np.empty(0, np.int64), 0)

    def _set_added(self, room: NDArray[np.generic], room_ids: NDArray[np.int64], n_added: int) -> None:
        self._room, self._room_ids = room, room_ids
        self.added, self._added_ids = room[:n_added], room_ids[:n_added]
        self.n_rows = len(self.stored) + n_added

    @property
    def vectors(self) -> NDArray[np.generic]:
        """All rows, the removed ones too, in one array; copied together, once, where there are two."""
        if len(self.stored) and len(self.added):
            self._keep_in_memory(np.concatenate([self.stored, self.added]), self.ids)
        return self.stored if len(self.stored) else self.added

    @property
    def ids(self) -> NDArray[np.int64]:
        """The id of each row, the removed ones too."""
        if not len(self._stored_ids):
            return self._added_ids
        return np.concatenate([self._stored_ids, self._added_ids]) if len(self._added_ids) else self._stored_ids

    def __len__(self) -> int:
        return self.n_rows - int(np.count_nonzero(self.removed))

    def take(self, rows: NDArray[np.integer]) -> NDArray[np.generic]:
        """The vectors of these rows, ascending."""
        split = np.searchsorted(rows, len(self.stored))
        return np.concatenate([self.stored[rows[:split]], self.added[rows[split:] - len(self.stored)]])

    def block(self, start: int, stop: int) -> NDArray[np.generic]:
        """The vectors of a run of rows."""
        n_stored = len(self.stored)
        stored, added = self.stored[start:stop], self.added[max(start - n_stored, 0) : max(stop - n_stored, 0)]
        return np.concatenate([stored, added]) if len(stored) and len(added) else stored if len(stored) else added

    def ids_at(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids of these rows, of any shape and order; -1 stays -1."""
        if rows.size and (rows.max() >= self.n_rows or rows.min() < -1):
            raise ModelFormatError("the index points to vectors that are not there; fit the model again.")
        if len(self._stored_ids) and len(self._added_ids):
            is_added = rows >= len(self._stored_ids)
            found = self._stored_ids[np.where(is_added, 0, rows)]
            found[is_added] = self._added_ids[rows[is_added] - len(self._stored_ids)]
        else:
            found = (self._stored_ids if len(self._stored_ids) else self._added_ids)[rows]
        return np.where(rows >= 0, found, -1)

    def append(self, vectors: NDArray[np.generic], ids: NDArray[np.int64]) -> int:
        """Add rows; returns the number of the first."""
        if vectors.shape[1] != self.n_dims or vectors.dtype != self.dtype:
            raise InvalidInputError(
                f"vectors must be {self.dtype} of length {self.n_dims}, as those already indexed; "
                f"got {vectors.dtype} of length {vectors.shape[1]}."
            )
        first, start, end = self.n_rows, len(self.added), len(self.added) + len(vectors)
        if self._ascending and len(ids) and first:
            last = self._added_ids[-1] if start else self._stored_ids[-1]
            self._ascending = bool(ids[0] > last and (np.diff(ids) > 0).all())
        if end > len(self._room):
            self._grow(max(end, len(self._room) + len(self._room) // _GROWTH, 1024))
        self._room[start:end] = vectors
        self._room_ids[start:end] = ids
        self._set_added(self._room, self._room_ids, end)
        self.removed = np.append(self.removed, np.zeros(len(vectors), bool)) if self.removed.size else self.removed
        return first

    def remove(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Mark the rows with these ids as removed; returns their numbers."""
        if not len(ids):
            return np.empty(0, np.int64)
        rows = self.rows_of(range(int(ids.min()), int(ids.max()) + 1))  # the ids of an image are one run: few rows
        rows = rows[np.isin(self.ids_at(rows), ids)]
        if not self.removed.size:
            self.removed = np.zeros(self.n_rows, bool)
        rows = rows[~self.removed[rows]]
        self.removed[rows] = True
        return rows

    def rows_of(self, ids: range) -> NDArray[np.int64]:
        """The numbers of the rows with ids in a range, the removed ones too."""
        if self._ascending is None:
            self._ascending = bool((np.diff(self.ids) > 0).all())
        parts = ((0, self._stored_ids), (len(self._stored_ids), self._added_ids))
        if self._ascending:
            found = [start + np.arange(*np.searchsorted(part, [ids.start, ids.stop])) for start, part in parts]
        else:
            found = [start + np.flatnonzero((part >= ids.start) & (part < ids.stop)) for start, part in parts]
        return np.concatenate(found).astype(np.int64)

    def drop_removed(self) -> None:
        """Close the gaps that removals left; row numbers change."""
        if self.removed.any():
            keep = ~self.removed
            self._keep_in_memory(self.take(np.flatnonzero(keep)), self.ids[keep])
        self.removed = np.zeros(0, bool)

    def save(self, folder: Path) -> None:
        """Write the rows as array files into a folder."""
        save_stacked(folder / "vectors.npy", (self.stored, self.added))
        save_stacked(folder / "ids.npy", (self._stored_ids, self._added_ids))
        if self.removed.any():
            save_stacked(folder / "removed.npy", (self.removed,))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open what :meth:`save` wrote."""
        vectors = load_array(folder / "vectors.npy", ndim=2, dtypes=("uint8", "float32"))
        ids = load_array(folder / "ids.npy", ndim=1, dtypes=("int64",))
        if len(vectors) != len(ids) or vectors.shape[1] == 0:
            raise ModelFormatError(f"{folder}: {len(vectors)} vectors but {len(ids)} ids; fit the model again.")
        removed = None
        if (folder / "removed.npy").exists():
            removed = np.array(load_array(folder / "removed.npy", ndim=1, dtypes=("bool",)))
            if len(removed) != len(ids):
                raise ModelFormatError(f"{folder}: removed.npy does not fit ids.npy; fit the model again.")
        return cls(vectors, ids.view(np.int64), removed)

    def _keep_in_memory(self, vectors: NDArray[np.generic], ids: NDArray[np.int64]) -> None:
        """Copy all rows into memory, so that none is mapped."""
        self.stored, self._stored_ids = self.stored[:0], self._stored_ids[:0]
        self._set_added(vectors, ids, len(ids))

    def _grow(self, capacity: int) -> None:
        n_added = len(self.added)
        if self._room.flags.owndata and self._room_ids.flags.owndata and len(self._room):
            # In place: the system moves pages instead of copying, so memory does not double.
            self._room.resize((capacity, self.n_dims), refcheck=False)
            self._room_ids.resize(capacity, refcheck=False)
            self._set_added(self._room, self._room_ids, n_added)
            return
        room, room_ids = np.empty((capacity, self.n_dims), self.dtype), np.empty(capacity, np.int64)
        room[:n_added], room_ids[:n_added] = self.added, self._added_ids
        self._set_added(room, room_ids, n_added)

"""What a nearest-neighbor index promises, and the part all backends share."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.indexes.vector_table import VectorTable
from lnbnn.params import Configurable

__all__ = ["Index", "LeaveOut", "LeftOver"]

LeaveOut: TypeAlias = range | Sequence[range] | None
"""Ids that count as absent in a search."""

_logger = logging.getLogger(__name__)


class LeftOver(str):
    """A line about what is kept outside a model's files and not needed: it does no harm."""

    __slots__ = ()


class Index(Configurable, ABC):
    """Vectors under stable ids, searched by squared Euclidean distance.

    The base class keeps the vectors and their ids (:class:`~lnbnn.indexes.vector_table.VectorTable`); a backend keeps
    a search structure over row numbers of that table. The structure is made on the first search, or by :meth:`build`,
    and follows later additions and removals.

    A search is the work of one thread and depends on nothing but the index and the query, so that many can run side by
    side and the answers are the same for any number of threads.
    """

    is_remote: ClassVar[bool] = False
    """Whether others search: then one process asks them, and workers of a cluster do not open the index themselves."""

    max_pending: int | None = None
    """How many added vectors a model's files may hold beside the index; None: by its size."""

    def __init__(self) -> None:
        self._table = VectorTable(np.empty((0, 0), np.uint8), np.empty(0, np.int64))
        self._built = False
        self._building = threading.Lock()
        self._progress: Callable[[int, int], None] | None = None
        self.keeps_structure = False  # set while changes are applied that the structure is known to bear

    # ---- the contract -------------------------------------------------------------------------------------------

    def add(self, vectors: NDArray[np.generic], ids: NDArray[np.int64]) -> None:
        """Add vectors under ids that are not in use.

        Parameters
        ----------
        vectors : ndarray of shape (n, d), uint8 or float32
            The first call decides d and the type for all.
        ids : ndarray of shape (n,), int64, at least 0
            Ids that ascend from call to call make leaving some out, and looking some up, fast.
        """
        vectors = np.asarray(vectors)
        ids = np.asarray(ids, dtype=np.int64)
        if vectors.ndim != 2 or ids.shape != (len(vectors),) or vectors.dtype not in (np.uint8, np.float32):
            raise InvalidInputError(
                "vectors must be uint8 or float32 of shape (n, d) with one id per row; "
                f"got {vectors.dtype} {vectors.shape} and ids {ids.shape}."
            )
        if len(ids) and ids.min() < 0:
            raise InvalidInputError(f"ids must be at least 0; got {ids.min()}.")
        if self._table.n_dims == 0:
            self._table = VectorTable(np.empty((0, vectors.shape[1]), vectors.dtype), np.empty(0, np.int64))
        start = self._table.append(vectors, ids)
        if self._built:
            self._append_rows(start)
            self._renew_if_outgrown()

    def build(self, progress: Callable[[int, int], None] | None = None) -> Self:
        """Make the search structure now rather than on the first search; ``progress(done, total)`` counts vectors."""
        with self._building:
            if not self._built:
                if len(self._table) == 0:
                    raise InvalidInputError(
                        "an index needs at least one vector; add some before building or searching."
                    )
                self._table.drop_removed()
                self._progress = progress
                self._build_rows()
                self._progress = None
                self._built = True
        return self

    def search(
        self, queries: NDArray[np.generic], n_neighbors: int, *, leave_out: LeaveOut = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The nearest vectors of each query, nearest first.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, d)
        n_neighbors : int
        leave_out : range or sequence of ranges, optional
            Ids that count as absent for this search: those of the image that asks, or of all images of its class.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors), float32
            Squared Euclidean distances, ascending; inf where fewer were found.
        ids : ndarray of shape (n_queries, n_neighbors), int64
            -1 where fewer were found.
        """
        if not self._built:
            self.build()
        table, queries = self._table, np.asarray(queries)
        if queries.ndim != 2 or queries.shape[1] != table.n_dims or queries.dtype != table.dtype:
            raise InvalidInputError(
                f"queries must be {table.dtype} of shape (n, {table.n_dims}), as the indexed vectors are; "
                f"got {queries.dtype} {queries.shape}."
            )
        if not 1 <= n_neighbors <= len(table):
            raise InvalidInputError(
                f"n_neighbors must be from 1 to {len(table)}, the number of indexed vectors; got {n_neighbors}."
            )
        if len(queries) == 0:
            return np.empty((0, n_neighbors), np.float32), np.empty((0, n_neighbors), np.int64)
        ranges = [] if leave_out is None else [leave_out] if isinstance(leave_out, range) else leave_out
        hidden = np.sort(np.concatenate([table.rows_of(ids) for ids in ranges])) if ranges else None
        hidden = hidden if hidden is not None and len(hidden) else None
        distances, rows = self._search_rows(np.ascontiguousarray(queries), n_neighbors, hidden)
        return distances, table.ids_at(rows)

    def vectors_of(self, ids: range) -> NDArray[np.generic]:
        """The vectors with ids in this range, in the order they were added."""
        rows = self._table.rows_of(ids)
        return self._table.take(rows[~self._table.removed[rows]] if self._table.removed.size else rows)

    def remove(self, ids: NDArray[np.int64]) -> int:
        """Remove the vectors with these ids; returns how many there were."""
        rows = self._table.remove(np.asarray(ids, dtype=np.int64))
        if self._built and len(rows):
            if len(self._table) == 0:
                self._built = False
            else:
                self._remove_rows(rows)
                self._renew_if_outgrown()
        return len(rows)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the indexed vectors: uint8 or float32."""
        return self._table.dtype

    def renew(self) -> Self:
        """Rebuild the structure if it was outgrown."""
        self._renew_if_outgrown()
        return self.build()

    def compact(self) -> Self:
        """Drop removed rows for good and rebuild the structure if there were any, or if it was outgrown."""
        if self._table.removed.any():
            self._built = False
        return self.renew()

    def live_ids(self) -> NDArray[np.int64]:
        """The ids of all vectors that are not removed, in the order of the rows."""
        return self._table.ids[~self._table.removed] if self._table.removed.size else self._table.ids

    def problems(self) -> list[str]:
        """What is missing of vectors that are kept outside the model's files, one line each; every id is looked at.

        What is there and not needed is a line of the type :class:`LeftOver`.
        """
        return []

    def describe(self) -> str:
        """One line that says how the search is done."""
        self.build()
        return self._describe()

    @property
    def nbytes(self) -> int:
        """Bytes held: vectors, ids and search structure."""
        in_table = self._table.n_rows * (self._table.n_dims * self._table.dtype.itemsize + 8)
        return in_table + (self._structure_nbytes() if self._built else 0)

    def save(self, folder: Path) -> None:
        """Write vectors, ids and search structure as files into an existing folder."""
        self.build()
        self._table.save(folder)
        self._save_structure(folder)

    def save_structure(self, folder: Path) -> None:
        """Write the search structure alone; nothing is written where it is simply made again."""
        self.build()
        self._save_structure(folder)

    def open_structure(self, folder: Path) -> None:
        """Open the structure that :meth:`save_structure` wrote, over the rows that were added; or make it."""
        self._built = self._load_structure(folder)
        self.build()

    @classmethod
    def load(cls, folder: Path, params: dict[str, Any]) -> Self:
        """Open what :meth:`save` wrote; large arrays are memory-mapped."""
        index = cls.from_params(params)
        index._table = VectorTable.load(folder)
        if len(index._table) == 0:
            raise ModelFormatError(f"{folder}: the index holds no vectors; fit the model again.")
        if not index._load_structure(folder):
            index._table.drop_removed()
            index._build_rows()
        index._built = True
        return index

    # ---- what a backend writes ----------------------------------------------------------------------------------

    @abstractmethod
    def _build_rows(self) -> None:
        """Make the structure over all rows of the table (none of them removed)."""

    @abstractmethod
    def _search_rows(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Squared distances and row numbers, (inf, -1) where fewer were found; hidden rows count as absent."""

    @abstractmethod
    def _describe(self) -> str: ...

    def _append_rows(self, start: int) -> None:
        """Take in the rows from ``start``; the default rebuilds the structure on the next search."""
        self._built = False

    def _remove_rows(self, rows: NDArray[np.int64]) -> None:
        """Leave these rows out; the default rebuilds the structure on the next search."""
        self._built = False

    def _outgrown(self) -> str | None:
        """Why the structure should be rebuilt for the rows there are now, if it should."""
        return None

    def _structure_nbytes(self) -> int:
        return 0

    def _save_structure(self, folder: Path) -> None:
        """Write the structure, if it is not simply made again on loading."""

    def _load_structure(self, folder: Path) -> bool:
        """Read the structure; False if none was written, and it is made again."""
        return False

    # ---- helpers ------------------------------------------------------------------------------------------------

    def _renew_if_outgrown(self) -> None:
        reason = self._outgrown() if self._built and not self.keeps_structure else None
        if reason is not None:
            _logger.warning("the index is rebuilt: %s", reason)
            self._built = False  # on the next search

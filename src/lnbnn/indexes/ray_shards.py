"""An index in parts, each held in memory by a process of a Ray cluster; a search asks all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lnbnn.cluster.actors import KeptObject, ask_all, n_machines
from lnbnn.errors import ModelFormatError
from lnbnn.files.arrays import load_array, save_array
from lnbnn.files.regular import read_regular
from lnbnn.indexes.base import Index
from lnbnn.indexes.faiss_index import N_PROBES
from lnbnn.indexes.vector_table import VectorTable
from lnbnn.params import check_choice, check_whole, resolve

__all__ = ["RayShards", "Shard", "merge_nearest"]

_MAX_SHARDS = 1 << 10
_MAX_FILE_BYTES = 1 << 36
_ROWS_PER_BLOCK = 1 << 16  # that travel at once
_SHARD_ROWS = "shard_rows.npy"
_FILES = ("lists.npy", "list_sizes.npy", "centers.npy", "branches.npy", "branch_sizes.npy", "codebook.npy")
_KINDS = {"faiss": "lnbnn.indexes.faiss_index:FaissIndex", "exact": "lnbnn.indexes.exact:ExactIndex"}


@dataclass(eq=False, repr=False)
class RayShards(Index):
    """The vectors in equal parts, each in an index of its own, in the memory of the machines of a Ray cluster.

    The nearest neighbors of all parts are merged: of exact parts they are those of one exact index, equal distances in
    the same order. A part that is lost is made again from the vectors here.

    Parameters
    ----------
    n_shards : int, optional
        Number of parts; by default one per machine.
    shard : {"faiss", "exact"}, default="faiss"
        The index of each part.
    form, n_lists, n_probes, rerank_factor, seed
        Settings of ``faiss``. Lists, and those visited for each query (8 by default), are those of all parts together:
        each part has its share, rounded up.

    Notes
    -----
    A part has lists of the size that one index would have. Each visiting its share of ``n_probes``, a query is compared
    with about as many vectors as in one index.

    The cluster is the one that this process works on, or the one that this machine is part of.
    """

    name = "ray-shards"
    is_remote: ClassVar[bool] = True

    n_shards: int | None = None
    shard: str = "faiss"
    form: str = "auto"
    n_lists: int | None = None
    n_probes: int | None = None
    rerank_factor: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self._shards: list[KeptObject] = []
        self._rows: list[list[range]] = []  # of each shard, in the order it got them
        self._n_built = 0

    def check_params(self) -> None:
        if self.n_shards is not None:
            check_whole("n_shards", self.n_shards, 1, _MAX_SHARDS)
        check_choice("shard", self.shard, _KINDS)
        self._new_shard(1)()

    def _new_shard(self, n_shards: int) -> partial[Shard]:
        """What makes a shard, one of so many."""
        if self.shard != "faiss":
            return partial(Shard, self.shard, {})
        given = {name: getattr(self, name) for name in ("form", "rerank_factor", "seed")}
        given["n_lists"] = None if self.n_lists is None else -(-self.n_lists // n_shards)
        given["n_probes"] = -(-(N_PROBES if self.n_probes is None else self.n_probes) // n_shards)
        return partial(Shard, self.shard, given)

    # ---- building -----------------------------------------------------------------------------------------------

    def _build_rows(self) -> None:
        n_rows = self._table.n_rows
        cuts = np.linspace(0, n_rows, min(self.n_shards or n_machines(), n_rows) + 1).astype(int).tolist()
        self._start([[range(*cut)] for cut in pairwise(cuts)])
        with ThreadPoolExecutor(len(self._shards)) as pool:
            list(pool.map(lambda shard: shard.change("build", tuple), self._shards))

    def _start(self, rows: list[list[range]]) -> None:
        """New shards with these rows, not yet built."""
        make = self._new_shard(len(rows))
        self._shards = [KeptObject(make, f"shard {place} of the index", place) for place in range(len(rows))]
        self._rows, self._n_built = [[] for _ in rows], self._table.n_rows
        for place, ranges in enumerate(rows):
            for own in ranges:
                self._give(place, own)

    def _give(self, place: int, rows: range) -> None:
        """Send rows to a shard, a block at a time."""
        self._rows[place].append(rows)
        for start in range(rows.start, rows.stop, _ROWS_PER_BLOCK):
            block = range(start, min(start + _ROWS_PER_BLOCK, rows.stop))
            self._shards[place].change("add", partial(_block_of, self._table, block))
            if self._progress is not None:
                self._progress(sum(map(len, chain(*self._rows))) - (rows.stop - block.stop), self._table.n_rows)

    def _append_rows(self, start: int) -> None:
        sizes = [sum(map(len, ranges)) for ranges in self._rows]
        self._give(int(np.argmin(sizes)), range(start, self._table.n_rows))

    def _remove_rows(self, rows: NDArray[np.int64]) -> None:
        for shard, ranges in zip(self._shards, self._rows, strict=True):
            own = np.concatenate([rows[(rows >= part.start) & (rows < part.stop)] for part in ranges])
            if len(own):
                shard.change("remove", partial(_only, own))

    def _outgrown(self) -> str | None:
        table = self._table
        if 4 * (table.n_rows - len(table)) > table.n_rows:
            return "more than a quarter of its vectors were removed"
        if table.n_rows > 2 * self._n_built:
            return "it has twice the vectors that its shards were made for"
        return None

    # ---- searching ----------------------------------------------------------------------------------------------

    def _search_rows(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        return merge_nearest(ask_all(self._shards, "search", queries, n_neighbors, hidden), n_neighbors)

    # ---- describing and storing ---------------------------------------------------------------------------------

    def _describe(self) -> str:
        return f"ray-shards: {len(self._shards)} shards, each {ask_all(self._shards[:1], 'describe')[0]}"

    def _structure_nbytes(self) -> int:
        return sum(ask_all(self._shards, "nbytes"))

    def _save_structure(self, folder: Path) -> None:
        found = [(place, row.start, row.stop) for place, ranges in enumerate(self._rows) for row in ranges]
        for place, shard in enumerate(self._shards):
            files = shard.receive(shard.send("structure"), "structure")
            if not files:  # made again when the model is opened
                return
            (folder / f"shard{place:04d}").mkdir()
            for name, content in files.items():
                (folder / f"shard{place:04d}" / name).write_bytes(content)
        save_array(folder / _SHARD_ROWS, np.array(found, np.int64))

    def _load_structure(self, folder: Path) -> bool:
        if not (folder / _SHARD_ROWS).exists():
            return False
        table = np.asarray(load_array(folder / _SHARD_ROWS, ndim=2, dtypes=("int64",)))
        self._start(_checked(table, self._table.n_rows, folder / _SHARD_ROWS))
        for place, shard in enumerate(self._shards):
            shard.change("open_structure", partial(_files_of, folder / f"shard{place:04d}"))
        removed = np.flatnonzero(self._table.removed)
        if len(removed):
            self._remove_rows(removed)
        return True


def merge_nearest(
    found: Sequence[tuple[NDArray[np.float32], NDArray[np.int64]]], n_neighbors: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The nearest of several lists of neighbors, of equal ones the lowest row; (inf, -1) where there are too few.

    Examples
    --------
    >>> one, other = np.array([[1.0, 4.0]]), np.array([[1.0, 9.0]])
    >>> merge_nearest([(one, np.array([[7, 8]])), (other, np.array([[2, 3]]))], 3)[1]
    array([[2, 7, 8]])
    """
    distances, rows = (np.hstack(arrays) for arrays in zip(*found, strict=True))
    missing = n_neighbors - distances.shape[1]
    if missing > 0:
        distances = np.pad(distances, ((0, 0), (0, missing)), constant_values=np.inf)
        rows = np.pad(rows, ((0, 0), (0, missing)), constant_values=-1)
    order = np.lexsort((rows, distances), axis=1)[:, :n_neighbors]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(rows, order, axis=1)


def _block_of(table: VectorTable, rows: range) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
    return table.block(rows.start, rows.stop), np.array(rows, np.int64)


def _only(value: Any) -> tuple[Any]:
    return (value,)


def _files_of(folder: Path) -> tuple[dict[str, bytes]]:
    try:
        return ({name: read_regular(folder / name, _MAX_FILE_BYTES) for name in _FILES if (folder / name).exists()},)
    except OSError as error:
        raise ModelFormatError(f"{folder}: cannot be read ({error}); fit the model again.") from error


def _checked(table: NDArray[np.int64], n_rows: int, path: Path) -> list[list[range]]:
    """The rows of each shard, each row in one; raises otherwise."""
    rows: list[list[range]] = []
    inside = table.shape[1:] == (3,) and len(table) and table[0, 0] == 0 and np.isin(np.diff(table[:, 0]), [0, 1]).all()
    if inside and table[-1, 0] < _MAX_SHARDS:
        by_start = table[np.argsort(table[:, 1], kind="stable")]
        if np.array_equal(np.append(by_start[:, 1], n_rows), np.append(0, by_start[:, 2])):
            rows = [
                [range(*row[1:]) for row in table[table[:, 0] == place].tolist()] for place in range(table[-1, 0] + 1)
            ]
    if not rows:
        raise ModelFormatError(f"{path}: does not fit ids.npy; fit the model again.")
    return rows


# ---- in the process of a shard --------------------------------------------------------------------------------------


class Shard:
    """A part of the rows in an index of its own, whose ids are the numbers of the rows."""

    def __init__(self, kind: str, params: dict[str, Any]) -> None:
        self.index: Index = resolve(_KINDS, kind, "index").from_params(params)
        self.index.keeps_structure = True  # the whole index says when shards are rebuilt

    def add(self, vectors: NDArray[np.generic], rows: NDArray[np.int64]) -> None:
        """Take in rows, ascending."""
        self.index.add(vectors, rows)

    def remove(self, rows: NDArray[np.int64]) -> None:
        """Leave rows out from now on."""
        self.index.remove(rows)

    def build(self) -> None:
        """Make the search structure."""
        self.index.build()

    def search(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The nearest rows of each query, as many as there are."""
        n_found = min(n_neighbors, len(self.index))
        if not n_found:
            return np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
        runs = [] if hidden is None else np.split(hidden, np.flatnonzero(np.diff(hidden) != 1) + 1)
        out = [range(int(run[0]), int(run[-1]) + 1) for run in runs]
        return self.index.search(np.array(queries), n_found, leave_out=out)

    def describe(self) -> str:
        """How it searches."""
        return self.index.describe()

    def nbytes(self) -> int:
        """Bytes held."""
        return self.index.nbytes

    def structure(self) -> dict[str, bytes]:
        """The files of the search structure; none where it is simply made again."""
        with tempfile.TemporaryDirectory(prefix="lnbnn-") as folder:
            self.index.save_structure(Path(folder))
            return {file.name: file.read_bytes() for file in Path(folder).iterdir()}

    def open_structure(self, files: dict[str, bytes]) -> None:
        """Open such files over the rows that were added; once they are mapped they need no name."""
        with tempfile.TemporaryDirectory(prefix="lnbnn-") as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            self.index.open_structure(Path(folder))

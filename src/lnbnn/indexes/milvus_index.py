"""Vectors in a Milvus server, cluster or file: for more of them than one machine holds."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.files.arrays import load_array, save_array
from lnbnn.indexes.base import Index
from lnbnn.indexes.faiss_index import FaissIndex
from lnbnn.indexes.faiss_kmeans import kmeans_centers, nearest_centers
from lnbnn.indexes.milvus_address import check_uri, full_uri, trusted_uri
from lnbnn.indexes.milvus_collection import MAX_CELLS, MAX_NEIGHBORS, Collection
from lnbnn.indexes.milvus_rows import Ids, RemoteRows, runs
from lnbnn.indexes.milvus_state import FILE, IDS, State, home_of, ids_in, ids_known, new_mark
from lnbnn.indexes.milvus_survey import claim, sent_already, survey
from lnbnn.indexes.vector_table import VectorTable
from lnbnn.params import check_whole

__all__ = ["MilvusIndex", "default_n_cells"]

CENTERS = "centers.npy"

_ROWS_PER_CELL = 1 << 18  # in one segment of the engine, which visits each segment of the cells that it looks into
_TRAIN_ROWS_PER_CELL = 1000
_ROWS_PER_BLOCK = 1 << 16
_SPARE = 4  # neighbors asked for beyond those wanted: left-over rows are passed over, and ties are seen
_MORE = 4  # times as many, where these were too few
_RANGES = 100  # of ids in one filter, at most; more are passed over here
_CALLS_AT_ONCE = 4  # of a search that visits several cells
_OUTGROWN = 4


@dataclass(eq=False, repr=False)
class MilvusIndex(Index):
    """Vectors in a collection of Milvus; the files of a model hold their ids.

    Parameters
    ----------
    uri : str
        A file of milvus-lite, whose name ends in ``.db``, or ``http://HOST:PORT`` of a server or a cluster. The
        environment variable ``LNBNN_MILVUS_URI`` has precedence; ``LNBNN_MILVUS_TOKEN`` has the credentials.
    index_type : str, default="IVF_FLAT"
        Milvus's own index: ``FLAT``, ``IVF_FLAT``, ``IVF_SQ8``, ``HNSW``, ``DISKANN`` or another that the server has.
    n_cells : int, optional
        Groups that the vectors lie in, each a partition; by default one for 262,144 vectors.
    n_cell_probes : int, default=4
        Cells visited for each query, those with the nearest centers.
    n_lists, n_probes : int, default=512 and 8
        Inverted lists of each segment and how many are visited, for the kinds that start with ``IVF``.
    m, ef_construction, ef : int, default=16, 200 and 64
        Links, and candidates when building and when searching, for ``HNSW``.
    search_list : int, default=64
        Candidates when searching, for ``DISKANN``.
    mmap : bool, default=False
        Whether the server maps the vectors from its disk instead of holding them in memory.
    max_pending : int, default=50,000
        Vectors of added images that wait in the model's files, searched there, before they are sent.
    seed : int, default=0
        Of the sample that the centers of the cells are trained on.

    Notes
    -----
    The engine visits every segment of a collection, so the time of a query would grow with their number. A query visits
    ``n_cell_probes`` cells of a size that stays the same. Queries are sent by cell, those of one cell together,
    a few cells at a time.
    """

    name = "milvus"
    is_remote: ClassVar[bool] = True  # so no worker of a cluster needs the address, the credentials or the file

    uri: str = "lnbnn.db"
    index_type: str = "IVF_FLAT"
    n_cells: int | None = None
    n_cell_probes: int = 4
    n_lists: int = 512
    n_probes: int = 8
    m: int = 16
    ef_construction: int = 200
    ef: int = 64
    search_list: int = 64
    mmap: bool = False
    max_pending: int = 50_000
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self._collection: Collection | None = None
        self._state: State | None = None  # of the files that were read or written last
        self._home: Path | None = None  # the model folder that the collection belongs to
        self._centers = np.empty((0, 0), np.float32)
        self._sent = Ids(np.empty(0, np.int64))  # of the rows in the collection: the first ones of the table
        self._tail = FaissIndex(form="flat")  # the rows after them, under their numbers
        self._drop: weakref.finalize | None = None  # of a collection that no files name

    def check_params(self) -> None:
        check_uri(self.uri)
        if not (isinstance(self.index_type, str) and self.index_type.isidentifier() and self.index_type.isupper()):
            raise InvalidInputError(f"index_type must be a name such as IVF_FLAT or HNSW; got {self.index_type!r}.")
        if self.n_cells is not None:
            check_whole("n_cells", self.n_cells, 1, MAX_CELLS)
        check_whole("n_cell_probes", self.n_cell_probes, 1, MAX_CELLS)
        check_whole("n_lists", self.n_lists, 1, 1 << 16)
        check_whole("n_probes", self.n_probes, 1, 1 << 16)
        check_whole("m", self.m, 2, 2048)
        check_whole("ef_construction", self.ef_construction, 1, 1 << 16)
        check_whole("ef", self.ef, 1, 1 << 15)
        check_whole("search_list", self.search_list, 1, 1 << 15)
        check_whole("max_pending", self.max_pending, 0, 1 << 30)
        check_whole("seed", self.seed, 0, (1 << 31) - 2)
        if not isinstance(self.mmap, bool):
            raise InvalidInputError(f"mmap must be true or false; got {self.mmap!r}.")

    # ---- building -----------------------------------------------------------------------------------------------

    def _build_rows(self) -> None:
        """Send all rows to a new collection, which goes with this object unless it is saved."""
        table, before = self._table, self._collection
        uri = before.uri if before is not None else full_uri(self.uri)
        n_cells = min(self.n_cells or default_n_cells(table.n_rows), table.n_rows)
        self._centers = self._train(n_cells)
        rows = table.block(0, table.n_rows)  # before the collection they are in may go
        self._let_go()
        collection = Collection.create(uri, table.n_dims, self.index_type, self._build_options(), mmap=self.mmap)
        self._collection, self._state, self._home = collection, None, None
        self._drop = weakref.finalize(self, _drop_quietly, collection)
        collection.drop_abandoned()
        self._send(table.ids, rows)
        collection.flush()
        collection.wait_for_index(self.index_type, table.n_rows, self._progress)
        collection.open()
        collection.catch_up()
        self._set_sent()

    def _build_options(self) -> dict[str, Any]:
        if self.index_type.startswith("IVF") or self.index_type == "SCANN":
            return {"nlist": self.n_lists}
        return {"M": self.m, "efConstruction": self.ef_construction} if self.index_type.startswith("HNSW") else {}

    def _search_options(self, limit: int) -> dict[str, Any]:
        if self.index_type.startswith("IVF") or self.index_type == "SCANN":
            return {"nprobe": min(self.n_probes, self.n_lists)}
        if self.index_type.startswith("HNSW"):
            return {"ef": max(self.ef, limit)}
        return {"search_list": max(self.search_list, limit)} if self.index_type == "DISKANN" else {}

    def _train(self, n_cells: int) -> NDArray[np.float32]:
        table = self._table
        if n_cells == 1:
            return np.zeros((1, table.n_dims), np.float32)
        n_sampled = min(table.n_rows, _TRAIN_ROWS_PER_CELL * n_cells)
        picked = np.sort(np.random.default_rng(self.seed).choice(table.n_rows, n_sampled, replace=False))
        sample = table.take(picked).astype(np.float32)
        is_whole = table.dtype == np.uint8
        return kmeans_centers(sample, n_cells, n_iterations=10, seed=self.seed + 1, whole_numbers=is_whole)

    def _send(self, ids: NDArray[np.int64], vectors: NDArray[np.generic]) -> None:
        """Insert rows, those of one cell together."""
        assert self._collection is not None
        if not len(ids):
            return
        cells = self._nearest_cells(vectors, 1)[:, 0]
        order = np.argsort(cells, kind="stable")
        done = 0
        for part in np.split(order, np.flatnonzero(np.diff(cells[order])) + 1):
            for start in range(0, len(part), _ROWS_PER_BLOCK):
                rows = part[start : start + _ROWS_PER_BLOCK]
                self._collection.insert(ids[rows], vectors[rows], int(cells[rows[0]]))
                done += len(rows)
                if self._progress is not None:
                    self._progress(done, len(ids))

    def _nearest_cells(self, vectors: NDArray[np.generic], n: int) -> NDArray[np.int64]:
        if len(self._centers) == 1:
            return np.zeros((len(vectors), 1), np.int64)
        blocks = (vectors[start : start + _ROWS_PER_BLOCK] for start in range(0, len(vectors), _ROWS_PER_BLOCK))
        return np.concatenate([nearest_centers(block.astype(np.float32), self._centers, n)[1] for block in blocks])

    def _append_rows(self, start: int) -> None:
        """Rows that come later are searched here until the index is saved."""
        table = self._table
        self._tail.add(np.ascontiguousarray(table.block(start, table.n_rows)), np.arange(start, table.n_rows))

    def _remove_rows(self, rows: NDArray[np.int64]) -> None:
        """Rows in the collection are passed over, until the files that name them are gone."""
        self._tail.remove(rows)

    def _outgrown(self) -> str | None:
        if self.n_cells is None and default_n_cells(len(self._table)) >= _OUTGROWN * len(self._centers):
            return f"{len(self._table):,} vectors are too many for its {len(self._centers)} cells"
        return None

    def compact(self) -> Self:
        """Rebuild the index if it was outgrown; removed rows go when it is saved."""
        return self.renew()

    # ---- searching ----------------------------------------------------------------------------------------------

    def _search_rows(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if n_neighbors > MAX_NEIGHBORS:
            raise InvalidInputError(f"Milvus finds at most {MAX_NEIGHBORS} neighbors at once; got {n_neighbors}.")
        distances, rows = self._search_sent(queries, n_neighbors, hidden)
        if len(self._tail):
            n = min(n_neighbors, len(self._tail))
            out = None if hidden is None else [range(low, high + 1) for low, high in runs(hidden)]
            found = self._tail.search(queries, n, leave_out=out)
            distances, rows = np.hstack([distances, found[0]]), np.hstack([rows, found[1]])
            distances, rows = _nearest(distances, rows, n_neighbors)
        return distances, rows

    def _search_sent(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The nearest rows in the collection, of those that are neither removed nor hidden nor left over.

        More are asked for where too few of them remain, or where others may be as near as the last: the answer does not
        depend on what else is in the collection.
        """
        absent, without = self._table.removed[: len(self._sent)], ""
        if hidden is not None:
            hidden = hidden[hidden < len(self._sent)]
            absent, without = absent.copy() if absent.size else np.zeros(len(self._sent), bool), self._filter(hidden)
            absent[hidden] = True
        distances = np.full((len(queries), n_neighbors), np.inf, np.float32)
        rows = np.full((len(queries), n_neighbors), -1, np.int64)
        asked, limit = np.arange(len(queries)), min(n_neighbors + _SPARE, MAX_NEIGHBORS)
        everywhere = len(self._centers) <= self.n_cell_probes
        while len(asked):
            found, ids = self._ask(queries[asked], limit, without, everywhere=everywhere)
            if self._table.dtype == np.uint8:  # whole numbers, but milvus-lite takes roots and squares them again
                found = np.rint(found)
            places = self._sent.rows_of(ids)
            if absent.size:
                places[(places >= 0) & absent[places]] = -1
            kept = np.where(places >= 0, found, np.float32(np.inf))
            distances[asked], rows[asked] = _nearest(kept, places, n_neighbors)
            last = distances[asked, -1]
            is_all = ids[:, -1] == -1  # there are no more
            undecided = ~is_all & (last >= found[:, -1])
            lacking = is_all & np.isinf(last) & (not everywhere)  # in the cells that were visited
            if limit == MAX_NEIGHBORS and not lacking.any():
                break
            everywhere |= bool(lacking.any())
            asked, limit = asked[undecided | lacking], min(_MORE * limit, MAX_NEIGHBORS)
        return distances, rows

    def _ask(
        self, queries: NDArray[np.generic], limit: int, without: str, *, everywhere: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Squared distances and ids of the nearest rows of the cells near each query, or of all."""
        assert self._collection is not None
        search = partial(
            self._collection.search,
            limit=limit,
            without=without,
            params=self._search_options(limit),
            is_flat=self.index_type == "FLAT",
        )
        if everywhere:
            return search(queries)
        cells = self._nearest_cells(queries, self.n_cell_probes)
        distances = np.full((len(queries), self.n_cell_probes, limit), np.inf, np.float32)
        ids = np.full(distances.shape, -1, np.int64)
        visited = np.unique(cells).tolist()
        visits = [np.nonzero(cells == cell) for cell in visited]
        with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:  # most of a call is waiting for its answer
            calls = [
                pool.submit(search, queries[rows], cells=[cell])
                for cell, (rows, _) in zip(visited, visits, strict=True)
            ]
            for where, call in zip(visits, calls, strict=True):
                distances[where], ids[where] = call.result()
        return _nearest(distances.reshape(len(queries), -1), ids.reshape(len(queries), -1), limit)

    def _filter(self, hidden: NDArray[np.int64]) -> str:
        """Milvus's words for rows that count as absent; none where they would be too many, and are passed over here."""
        ranges = self._sent.runs(hidden)
        if not 0 < len(ranges) <= _RANGES:
            return ""
        return " and ".join(f"(id < {low} or id > {high})" for low, high in ranges)

    # ---- keeping ------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write the ids into an existing folder, and send what the collection lacks; one of another model is copied.

        If that fails, the index is what it was, and can be saved again.
        """
        self.build()
        home = home_of(folder)
        clash = self._sent.rows_of(self._table.ids[len(self._sent) :]) >= 0  # ids that came again
        if self._state is not None and (home is None or home != self._home or clash.any()):
            self._copy().save(folder)
            return
        try:
            state = self._store(folder, home or folder)
        except (Exception, KeyboardInterrupt):
            if self._state is None:  # the collection stays with this object, it does not go with the files
                (folder / FILE).unlink(missing_ok=True)
            raise
        if state is None:
            self._copy().save(folder)
            return
        self._state, self._home = state, home
        if self._drop is not None:
            self._drop.detach()
            self._drop = None
        self._set_sent()

    def _store(self, folder: Path, home: Path) -> State | None:
        """Write the files and send the rows; None if rows are in the collection twice, which only a copy mends."""
        collection, table = self._collection, self._table
        assert collection is not None
        is_gone = table.removed if table.removed.size else np.zeros(table.n_rows, bool)
        kept = self._sent.ids
        if self._state is None and is_gone.any():  # nobody else knows the collection
            collection.delete(kept[is_gone[: len(kept)]])
            kept = kept[~is_gone[: len(kept)]]
        state = State(collection.uri, collection.name, new_mark(home), table.n_dims, str(table.dtype))
        state.write(folder)  # before anything is sent: what a killed process leaves is known by it
        save_array(folder / IDS, self.live_ids())
        save_array(folder / CENTERS, self._centers)
        claim(collection, state, home, self._state)
        tail = len(self._sent) + np.flatnonzero(~is_gone[len(self._sent) :])
        there = sent_already(collection, kept, table.ids[tail], home)
        if there is None:
            return None
        tail = tail[~there]
        self._send(table.ids[tail], table.take(tail))
        collection.flush()
        collection.catch_up()
        if self._state is None:
            table.drop_removed()
        return state

    def _copy(self) -> MilvusIndex:
        """The same vectors in a collection of their own."""
        live = np.flatnonzero(~self._table.removed) if self._table.removed.size else np.arange(self._table.n_rows)
        copy = type(self).from_params(self.settings())
        copy._table = VectorTable(self._table.take(live), self._table.ids[live])
        copy._progress = self._progress
        copy.uri = self._collection.uri if self._collection is not None else self.uri
        return copy.build()

    @classmethod
    def load(cls, folder: Path, params: dict[str, Any]) -> Self:
        """Open what :meth:`save` wrote; the vectors stay where they are."""
        index = cls.from_params(params)
        state, ids = State.read(folder), ids_in(folder)
        centers = np.array(load_array(folder / CENTERS, ndim=2, dtypes=("float32",)))
        if not 1 <= len(centers) <= MAX_CELLS or centers.shape[1] != state.n_dims or not np.isfinite(centers).all():
            raise ModelFormatError(f"{folder / CENTERS}: does not fit the other files; fit the model again.")
        if len(ids) == 0 or ids.min() < 0:
            raise ModelFormatError(f"{folder / IDS}: the index holds no vectors, or wrong ids; fit the model again.")
        collection = Collection(trusted_uri(state.uri, folder), state.name, state.n_dims).open()
        if state.mark not in collection.marks():  # from here on, what others wrote before is found
            raise ModelFormatError(
                f"{folder}: the collection {state.name} was changed by another copy of this model; use that one, and "
                "make copies with lnbnn.load(MODEL).save(COPY)."
            )
        index._collection, index._state, index._home = collection, state, home_of(folder)
        index._table = VectorTable(RemoteRows(collection, ids, state), ids)  # type: ignore[arg-type]
        index._centers = centers
        index._set_sent()
        index._built = True
        return index

    def problems(self) -> list[str]:
        """What the collection lacks, and what is left over in it, which does no harm."""
        collection, home = self._collection, self._home
        if collection is None:
            return []
        removed = self._table.removed[: len(self._sent)]
        needed = self._sent.ids[~removed] if removed.size else self._sent.ids
        known = [self._sent.ids, *([] if home is None else ids_known(home, collection.name))]
        return survey(collection, needed, known).told(collection, home)

    def _set_sent(self) -> None:
        self._sent = Ids(self._table.ids)
        self._tail = FaissIndex(form="flat")

    def _let_go(self) -> None:
        """Drop a collection that no files name."""
        if self._drop is not None:
            self._drop()
            self._drop = None

    def _describe(self) -> str:
        n_cells = len(self._centers)
        cells = f"{n_cells} cells, {min(self.n_cell_probes, n_cells)} visited per query" if n_cells > 1 else "one cell"
        return f"milvus: {self.index_type}, {cells}"

    @property
    def nbytes(self) -> int:
        """Bytes held here: ids, centers, and vectors that are not in the collection only."""
        row_bytes = self._table.n_dims * self._table.dtype.itemsize
        return len(self._table.added) * row_bytes + self._table.n_rows * 8 + self._centers.nbytes


def _nearest(
    distances: NDArray[np.float32], rows: NDArray[np.int64], n: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The n nearest of each line, of equal distances the lowest row first; (inf, -1) where there are fewer."""
    order = np.lexsort((rows, distances), axis=1)[:, :n]
    distances, rows = np.take_along_axis(distances, order, axis=1), np.take_along_axis(rows, order, axis=1)
    return distances, np.where(np.isfinite(distances), rows, -1)


def _drop_quietly(collection: Collection) -> None:
    with suppress(Exception):  # the server may be gone, or Python at its end
        collection.drop()


def default_n_cells(n_rows: int) -> int:
    """One cell for 262,144 rows."""
    return min(MAX_CELLS, max(1, round(n_rows / _ROWS_PER_CELL)))

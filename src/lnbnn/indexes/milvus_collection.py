"""One collection of a Milvus server, cluster or file: rows in, rows out, by id. The only module that imports pymilvus.

A row is an id, the id of its image and a vector; rows lie in partitions, one per cell. Rows with ids below 0 are marks:
each state of a model that uses the collection has one, so that a second copy of the model is noticed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import LnbnnError, MissingExtraError, ModelFormatError
from lnbnn.indexes.milvus_address import TOKEN, URI, is_file
from lnbnn.references import MAX_DESCRIPTORS

try:
    import grpc
    from pymilvus import DataType, MilvusClient, MilvusException
except ImportError as error:
    raise MissingExtraError("index 'milvus' needs the extra: pip install 'lnbnn[milvus]'.") from error

__all__ = ["MAX_CELLS", "MAX_NEIGHBORS", "Collection"]

MAX_NEIGHBORS = 16_384
"""Of one query, and rows of one answer: Milvus's own limit."""
MAX_CELLS = 1000
"""Partitions are 1,024 at most."""

_MAX_QUERIES = 16_384
_BYTES_AT_ONCE = 24 << 20  # of a call, which may have 64 MB
_LITE_BYTES = 1 << 30  # that milvus-lite may take for a search
_IDS_AT_ONCE = 8192
_TIMEOUT_S = 60.0  # of one call
_CONNECT_S = 10.0
_LOAD_S = 600.0
_DOUBT_S = 120.0  # without any progress, for kinds that some servers take but do not build
_DOUBTFUL = ("DISKANN", "SCANN")
_IDLE_S = 20.0  # without any progress: what is not indexed by then will not be
_NAME = re.compile(r"lnbnn_[0-9a-f]{8}_\d{1,10}_\d{1,20}_[0-9a-f]{16}")
_AWAY = re.compile(  # a part of the server starts, moves or is gone: that passes
    r"Fail connecting|UNAVAILABLE|DEADLINE|timeout|unavailable|Cannot invoke RPC|closed|not available|offline|"
    r"(node|channel|segment|replica|delegator|leader)s?\b[^:;,]*not (found|loaded)"
)
_VECTOR, _ID, _IMAGE = "vector", "id", "image"

logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs a traceback for every error that it also raises

_clients: dict[tuple[str, int], MilvusClient] = {}
_connecting = threading.Lock()


def _client(uri: str) -> MilvusClient:
    key = (uri, os.getpid())
    with _connecting:
        if key not in _clients:
            given = {"token": os.environ[TOKEN]} if os.environ.get(TOKEN) else {}
            _clients[key] = MilvusClient(uri=uri, timeout=_CONNECT_S, **given)
        return _clients[key]


# ---- a collection ---------------------------------------------------------------------------------------------------


class Collection:
    """Rows under whole-number ids in one collection; every failure is one line.

    Parameters
    ----------
    uri : str
        As :mod:`lnbnn.indexes.milvus_address` gives it.
    name : str
    n_dims : int
    """

    def __init__(self, uri: str, name: str, n_dims: int) -> None:
        self.uri, self.name, self.n_dims = uri, name, n_dims
        self._partitions: set[str] = set()

    @classmethod
    def create(cls, uri: str, n_dims: int, kind: str, options: dict[str, Any], *, mmap: bool) -> Self:
        """A new, empty collection with an index of a kind, under a name that tells which process made it."""
        made = cls(uri, f"lnbnn_{_host()}_{os.getpid()}_{_started(os.getpid())}_{secrets.token_hex(8)}", n_dims)

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(_ID, DataType.INT64, is_primary=True)
        schema.add_field(_IMAGE, DataType.INT64)
        schema.add_field(_VECTOR, DataType.FLOAT_VECTOR, dim=n_dims)
        index = MilvusClient.prepare_index_params()
        index.add_index(_VECTOR, index_type=kind, metric_type="L2", params=options)
        given: dict[str, Any] = {"properties": {"mmap.enabled": True}} if mmap else {}
        what = "make a collection"
        made._call(
            what, "create_collection", made.name, schema=schema, consistency_level="Bounded", num_shards=1, **given
        )
        made._call(what, "create_index", made.name, index, sync=False)
        return made

    def open(self) -> Self:
        """Make ready for searches; raises unless the collection is there, and of this kind."""
        fields = self._call("describe the collection", "describe_collection", self.name)
        found = {field["name"]: field for field in fields["fields"]}
        n_dims = int(found.get(_VECTOR, {}).get("params", {}).get("dim", 0))
        if set(found) != {_ID, _IMAGE, _VECTOR} or n_dims != self.n_dims:
            raise ModelFormatError(
                f"{self.uri}: the collection {self.name} holds vectors of length {n_dims}, the model has "
                f"{self.n_dims}; it is not the model's, fit the model again."
            )
        state = self._call("load the collection", "get_load_state", self.name)["state"]
        if state.name != "Loaded":  # someone may have loaded it with several replicas: they stay
            self._call("load the collection", "load_collection", self.name, timeout=_LOAD_S)
        self._partitions = set(self._call("list partitions", "list_partitions", self.name))
        return self

    # ---- rows -------------------------------------------------------------------------------------------------------

    def insert(self, ids: NDArray[np.int64], vectors: NDArray[np.generic], cell: int = 0) -> None:
        """Add rows under ids that the collection does not have."""
        partition = _partition(cell)
        if partition not in self._partitions:
            self._call("make a partition", "create_partition", self.name, partition)
            self._partitions.add(partition)
        at_once = max(1, min(_BYTES_AT_ONCE // (4 * self.n_dims + 16), 20_000))
        for start in range(0, len(ids), at_once):
            part = slice(start, start + at_once)
            numbers = ids[part].tolist()
            wide = np.ascontiguousarray(vectors[part], np.float32)
            rows = [
                {_ID: number, _IMAGE: number // MAX_DESCRIPTORS, _VECTOR: row}
                for number, row in zip(numbers, wide, strict=True)
            ]
            self._call("store vectors", "insert", self.name, rows, partition_name=partition)

    def flush(self) -> None:
        """Have all rows on the server's disk."""
        self._call("store vectors", "flush", self.name, timeout=_LOAD_S)

    def catch_up(self) -> None:
        """Wait until searches find all that was written so far, by anyone.

        A search may lag behind by seconds ("Bounded"); never to do so ("Strong") would cost each call about 0.2 s. One
        call that does not lag brings the server up to date for those after it, as do :meth:`marks` and :meth:`n_rows`.
        """
        self.n_rows()

    def delete(self, ids: NDArray[np.int64]) -> None:
        """Remove rows; ids that are not there do no harm."""
        for start in range(0, len(ids), _IDS_AT_ONCE):
            part = ids[start : start + _IDS_AT_ONCE].tolist()
            self._call("remove vectors", "delete", self.name, ids=part)

    def n_rows(self) -> int:
        """The number of rows, marks included, as of now."""
        found = self._query("count the vectors", "", ["count(*)"])
        return int(found[0]["count(*)"])

    def marks(self) -> set[int]:
        """The ids below 0."""
        return {int(row[_ID]) for row in self._query("read the marks", f"{_ID} < 0", [_ID])}

    def mark(self, number: int) -> None:
        """Add a mark."""
        self.insert(np.array([number]), np.zeros((1, self.n_dims), np.float32))

    def ids(self) -> Iterator[NDArray[np.int64]]:
        """All ids from 0 on, in parts that ascend."""
        waiting = [(0, 1 << 62)]
        while waiting:
            low, high = waiting.pop()
            text = f"{_ID} >= {low} and {_ID} < {high}"
            found = self._query("read the ids", text, [_ID], limit=MAX_NEIGHBORS)
            if len(found) == MAX_NEIGHBORS and high - low > 1:
                middle = _middle([int(row[_ID]) for row in found], low, high)
                waiting += [(middle, high), (low, middle)]
            else:
                yield np.sort(np.array([int(row[_ID]) for row in found], np.int64))

    def fetch(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these ids, in their order."""
        vectors = np.empty((len(ids), self.n_dims), np.float32)
        at_once = max(1, min(_BYTES_AT_ONCE // (4 * self.n_dims + 16), _IDS_AT_ONCE))
        for start in range(0, len(ids), at_once):
            part = ids[start : start + at_once].tolist()
            found = self._get(part, "Bounded")
            if len(found) < len(part):  # they were written a moment ago?
                found = self._get(part, "Strong")
            if len(found) < len(part):
                raise ModelFormatError(self.lacks(len(part) - len(found)))
            vectors[start : start + len(part)] = [found[number] for number in part]
        return vectors

    def _get(self, ids: list[int], level: str) -> dict[int, Any]:
        given: dict[str, Any] = {"output_fields": [_ID, _VECTOR], "consistency_level": level}
        rows = self._call("read vectors", "get", self.name, ids=ids, **given)
        return {int(row[_ID]): row[_VECTOR] for row in rows}

    def search(
        self,
        queries: NDArray[np.generic],
        limit: int,
        *,
        cells: Sequence[int] | None = None,
        without: str = "",
        params: dict[str, Any] | None = None,
        is_flat: bool = False,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Squared distances and ids of the nearest rows, marks too; (inf, -1) where there are fewer.

        Parameters
        ----------
        cells : sequence of int, optional
            Where to look; by default everywhere.
        without : str
            A filter on the rows.
        params : dict
            Of Milvus's own index, such as ``nprobe``.
        is_flat : bool
            Whether that index compares with every row.
        """
        distances = np.full((len(queries), limit), np.inf, np.float32)
        ids = np.full((len(queries), limit), -1, np.int64)
        names = None if cells is None else [name for name in map(_partition, cells) if name in self._partitions]
        if names == []:
            return distances, ids
        at_once = min(_MAX_QUERIES, _BYTES_AT_ONCE // (4 * self.n_dims), _BYTES_AT_ONCE // (16 * limit))
        if is_flat and is_file(self.uri):  # milvus-lite subtracts all queries from all rows at once
            at_once = min(at_once, _LITE_BYTES // (4 * self.n_dims * max(1, self.n_rows())))
        at_once = max(1, at_once)
        for start in range(0, len(queries), at_once):
            part = list(np.ascontiguousarray(queries[start : start + at_once], np.float32))
            hits = self._call(
                "search",
                "search",
                self.name,
                part,
                limit=limit,
                filter=without,
                partition_names=names,
                search_params={"metric_type": "L2", "params": params or {}},
                output_fields=[_ID],
                consistency_level="Bounded",
            )
            for row, found in enumerate(hits, start=start):
                n = len(found)
                ids[row, :n] = [hit[_ID] for hit in found]
                distances[row, :n] = [hit["distance"] for hit in found]
        return distances, ids

    # ---- the collection as a whole ----------------------------------------------------------------------------------

    def indexed(self) -> tuple[int, int]:
        """How many rows Milvus has in its own index, and how many of all it is still to take in."""
        found = self._call("describe the index", "describe_index", self.name, _VECTOR)
        return int(found.get("indexed_rows", 0)), int(found.get("pending_index_rows", 0))

    def wait_for_index(self, kind: str, n_rows: int, progress: Callable[[int, int], None] | None) -> None:
        """Wait until Milvus has built its own index; one that it says it has, but that holds nothing, is refused."""
        before, since = -1, time.monotonic()
        while True:
            done, pending = self.indexed()
            if progress is not None:
                progress(min(done, n_rows), n_rows)
            idle_s = time.monotonic() - since
            patience_s = _IDLE_S if pending == 0 else _DOUBT_S if kind in _DOUBTFUL and done == 0 else _LOAD_S
            if done >= n_rows or idle_s >= patience_s:
                break
            if done != before:
                before, since = done, time.monotonic()
            time.sleep(0.5)
        if done == 0 and n_rows > 0 and kind != "FLAT":
            raise LnbnnError(
                f"{self.uri}: Milvus took the index {kind} but put no vectors into it; this server cannot build it, "
                "choose another index_type, such as IVF_FLAT."
            )

    def drop(self) -> None:
        """Remove the collection; one that is not there does no harm."""
        self._call("remove the collection", "drop_collection", self.name)

    def drop_abandoned(self) -> None:
        """Remove collections that processes of this machine made and left when they were killed, marked by no model."""
        for name in self.others():
            _, host, pid, started, _ = name.split("_")
            if host != _host() or started == str(_started(int(pid))):
                continue
            left = Collection(self.uri, name, self.n_dims)
            try:
                if not left.open().marks():
                    left.drop()
            except LnbnnError:  # another process does the same, or it is of another length: left alone
                continue

    def others(self) -> list[str]:
        """The names of other collections that this package made."""
        names = self._call("list collections", "list_collections")
        return [name for name in names if _NAME.fullmatch(name) and name != self.name]

    def exists(self) -> bool:
        """Whether the collection is there."""
        return bool(self._call("look for the collection", "has_collection", self.name))

    def _query(self, what: str, text: str, fields: list[str], **given: Any) -> Any:
        strong: dict[str, Any] = {"consistency_level": "Strong", "output_fields": fields}
        return self._call(what, "query", self.name, filter=text, **strong, **given)

    def lacks(self, n: int) -> str:
        """What to say of so many missing rows."""
        return f"{self.uri}: the collection {self.name} lacks {n:,} of the model's vectors; fit the model again."

    def _call(self, what: str, method: str, *args: Any, timeout: float = _TIMEOUT_S, **given: Any) -> Any:
        if is_file(self.uri):
            timeout = _LOAD_S  # milvus-lite is this process: it is slow, but cannot be away
        try:
            return getattr(_client(self.uri), method)(*args, timeout=timeout, **given)
        except (MilvusException, grpc.RpcError, OSError, ValueError) as error:
            raise self._told(what, error) from error

    def _told(self, what: str, error: Exception) -> LnbnnError:
        """One line for what pymilvus raised."""
        text = " ".join(str(getattr(error, "message", None) or error).split())[:200]
        code = getattr(error, "code", None)
        if code == 100 or re.search(r"collection[^:;,]*(not found|does not exist)", text):
            return ModelFormatError(
                f"{self.uri}: the collection {self.name} is missing; it was removed, or this is another server: "
                f"name the right one in {URI}, or fit the model again."
            )
        if "Open local milvus failed" in text:
            return LnbnnError(
                f"{self.uri}: cannot be opened; another process uses it (milvus-lite serves one at a time), or it is "
                "no file of milvus-lite."
            )
        if code == 2 or isinstance(error, grpc.RpcError | OSError) or _AWAY.search(text):
            return LnbnnError(
                f"{self.uri}: Milvus does not answer ({text}); start it, or name where it is in {URI}, and try again."
            )
        if "auth" in text.lower() or "permission" in text.lower():
            return LnbnnError(f"{self.uri}: Milvus wants other credentials ({text}); set {TOKEN}.")
        return LnbnnError(f"{self.uri}: Milvus could not {what} ({text}).")


def _partition(cell: int) -> str:
    return f"cell_{cell:04d}"


def _middle(found: list[int], low: int, high: int) -> int:
    """Where to split a run of ids of which some are known: at their median, inside the run."""
    return min(max(sorted(found)[len(found) // 2], low + 1), high - 1)


def _host() -> str:
    """What tells the processes of one running system from those of others, which may have the same numbers."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text("ascii"), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]


def _started(pid: int) -> int:
    """When a process began, by the system's own count; 0 if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0

"""A Milvus in memory that does what the index asks of one, and fails when told to."""

from __future__ import annotations

import re
import types

import numpy as np


class MilvusException(Exception):
    def __init__(self, code=1, message=""):
        super().__init__(message)
        self.code, self.message = code, message


class Killed(BaseException):
    """The process is dead: nothing that it would still do is done."""


class Server:
    """What outlives the clients: collections, and when the next call fails.

    Attributes
    ----------
    collections : dict
        Of name to ``{"dim", "partitions": {name: {id: [vectors]}}}``; ids may come twice, as on a real server.
    n_calls : int
        Calls so far.
    fails_at, failure : int or None, callable
        From which call on, and with what, calls fail: before they do anything.
    after : bool
        Whether that call is done before it fails.
    calls : list
        Of (method, keywords).
    fresh : set
        Of (name, id): rows that calls with bounded staleness do not find, until one that is strong was answered.
    loaded : set
        Names of collections that can be searched.
    """

    def __init__(self):
        self.collections, self.calls, self.n_calls = {}, [], 0
        self.fails_at, self.failure, self.after = None, lambda: MilvusException(2, "Fail connecting to server"), False
        self.holds_nothing = False
        self.fresh, self.loaded = set(), set()

    def revive(self):
        self.fails_at = None
        self.n_calls = 0

    def rows(self, name):
        """All (id, vector) of a collection."""
        parts = self.collections[name]["partitions"].values()
        return [(number, vector) for part in parts for number, vectors in part.items() for vector in vectors]

    def ids(self, name):
        return sorted(number for number, _ in self.rows(name) if number >= 0)


class _Schema:
    def __init__(self):
        self.fields = []

    def add_field(self, name, kind, **given):
        self.fields.append((name, given))


class _IndexParams:
    def add_index(self, *args, **given):
        self.given = given


def make_client_class(server):
    """The client's class, bound to a server."""

    class MilvusClient:
        def __init__(self, uri, timeout=None, token=None):
            self.uri = uri
            server.calls.append(("connect", {"uri": uri, "token": token}))

        create_schema = staticmethod(lambda **given: _Schema())
        prepare_index_params = staticmethod(_IndexParams)

        def __getattribute__(self, method):
            work = object.__getattribute__(self, method)
            if not callable(work) or method.startswith("_"):
                return work

            def call(*args, **given):
                given.pop("timeout", None)
                server.calls.append((method, given))
                server.n_calls += 1
                fails = server.fails_at is not None and server.n_calls >= server.fails_at
                if fails and not (server.after and server.n_calls == server.fails_at):
                    raise server.failure()
                result = work(*args, **given)
                if fails:
                    raise server.failure()
                return result

            return call

        def create_collection(self, name, schema, **given):
            dim = next(given["dim"] for field, given in schema.fields if field == "vector")
            server.collections[name] = {"dim": dim, "partitions": {"_default": {}}}

        def create_index(self, name, index, **given):
            self._of(name)

        def describe_collection(self, name):
            fields = [{"name": field, "params": {}} for field in ("id", "image")]
            return {"fields": [*fields, {"name": "vector", "params": {"dim": self._of(name)["dim"]}}]}

        def get_load_state(self, name):
            return {"state": types.SimpleNamespace(name="Loaded" if name in server.loaded else "NotLoad")}

        def load_collection(self, name):
            self._of(name)
            server.loaded.add(name)

        def list_partitions(self, name):
            return list(self._of(name)["partitions"])

        def create_partition(self, name, partition):
            self._of(name)["partitions"].setdefault(partition, {})

        def insert(self, name, rows, partition_name):
            part = self._of(name)["partitions"][partition_name]
            for row in rows:
                assert len(row["vector"]) == self._of(name)["dim"]
                assert row["image"] == row["id"] // (1 << 20)
                part.setdefault(row["id"], []).append(np.array(row["vector"]))
                server.fresh.add((name, row["id"]))

        def flush(self, name):
            self._of(name)

        def delete(self, name, ids):
            for part in self._of(name)["partitions"].values():
                for number in ids:
                    part.pop(number, None)

        def describe_index(self, name, field):
            n_rows = 0 if server.holds_nothing else len(server.rows(name))
            return {"indexed_rows": n_rows, "pending_index_rows": 0}

        def query(self, name, filter, output_fields, consistency_level, limit=None):
            assert consistency_level == "Strong"
            self._of(name)
            self._seen(name, consistency_level)
            if output_fields == ["count(*)"]:
                return [{"count(*)": len(server.rows(name))}]
            keep = _condition(filter)
            found = [{"id": number} for number in dict(server.rows(name)) if keep(number)]
            return found[: limit or len(found)]

        def get(self, name, ids, output_fields, consistency_level):
            seen = self._seen(name, consistency_level)
            rows = {number: vector for number, vector in server.rows(name) if seen(number)}
            return [{"id": number, "vector": rows[number].tolist()} for number in ids if number in rows]

        def search(
            self, name, queries, limit, filter, partition_names, search_params, output_fields, consistency_level
        ):
            assert len(queries) <= 16_384
            assert 1 <= limit <= 16_384
            keep, seen = _condition(filter), self._seen(name, consistency_level)
            parts = self._of(name)["partitions"]
            rows = {
                number: vectors[-1]
                for part in (parts if partition_names is None else partition_names)
                for number, vectors in parts[part].items()
                if keep(number) and seen(number)
            }
            numbers = np.array(list(rows), np.int64)
            vectors = np.array(list(rows.values()), np.float32).reshape(len(rows), -1)
            hits = []
            for query in queries:
                squared = ((vectors - query) ** 2).sum(axis=1)
                order = np.argsort(squared, kind="stable")[::1][:limit]
                hits.append([{"id": int(numbers[row]), "distance": float(squared[row])} for row in order])
            return hits

        def drop_collection(self, name):
            server.collections.pop(name, None)

        def list_collections(self):
            return list(server.collections)

        def has_collection(self, name):
            return name in server.collections

        def _seen(self, name, level):
            """Whether a call of this level finds a row."""
            assert name in server.loaded
            if level == "Strong":
                server.fresh = {(other, number) for other, number in server.fresh if other != name}
            return lambda number: (name, number) not in server.fresh

        def _of(self, name):
            if name not in server.collections:
                raise MilvusException(100, f"collection not found[collection={name}]")
            return server.collections[name]

    return MilvusClient


def _condition(text):
    """A filter of the few forms that the index writes, as a function of the id."""
    assert re.fullmatch(r"[id<>=\d\-() andor]*", text), text
    code = compile(text.replace("id", "number") or "True", "filter", "eval")
    return lambda number: eval(code, {}, {"number": number})


def modules(server):
    """What stands for the packages that the index imports."""
    pymilvus, grpc = types.ModuleType("pymilvus"), types.ModuleType("grpc")
    pymilvus.DataType = types.SimpleNamespace(INT64=5, FLOAT_VECTOR=101)
    pymilvus.MilvusClient = make_client_class(server)
    pymilvus.MilvusException = MilvusException
    grpc.RpcError = type("RpcError", (Exception,), {})
    return {"pymilvus": pymilvus, "grpc": grpc}

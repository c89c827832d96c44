"""Rows and ids, worked by hand."""

from types import SimpleNamespace

import numpy as np

from lnbnn.indexes.milvus_rows import Ids, RemoteRows, runs


def test_runs_by_hand():
    assert runs(np.array([], np.int64)) == []
    assert runs(np.array([7])) == [(7, 7)]
    assert runs(np.array([1, 2, 3, 5, 8, 9])) == [(1, 3), (5, 5), (8, 9)]


def test_rows_are_found_by_id_in_any_order():
    for ids in ([10, 20, 30], [30, 10, 20]):
        found = Ids(np.array(ids, np.int64))
        assert found.rows_of(np.array([[10, 99], [30, 20]])).tolist() == [
            [ids.index(10), -1],
            [ids.index(30), ids.index(20)],
        ]
    assert Ids(np.empty(0, np.int64)).rows_of(np.array([3])).tolist() == [-1]


def test_runs_of_rows_are_told_by_their_ids():
    """Rows 0, 1 and 3 of the ids 30, 10, 20, 40: by id they are 10, 30 and 40, and 20 lies between the first two."""
    assert Ids(np.array([30, 10, 20, 40])).runs(np.array([0, 1, 3])) == [(10, 10), (30, 40)]
    assert Ids(np.array([10, 20, 30, 40])).runs(np.array([0, 1, 3])) == [(10, 20), (40, 40)]


def test_remote_rows_are_fetched_by_id_in_the_type_of_the_model():
    collection = SimpleNamespace(fetch=lambda ids: np.stack([ids, ids + 1], axis=1).astype(np.float32))
    rows = RemoteRows(collection, np.array([10, 20, 30]), SimpleNamespace(n_dims=2, dtype="uint8"))
    assert (len(rows), rows.shape, rows.dtype) == (3, (3, 2), np.uint8)
    assert rows[np.array([2, 0])].tolist() == [[30, 31], [10, 11]]
    assert rows[1:].dtype == np.uint8

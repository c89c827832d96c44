"""An index in parts: merging, losses, and what is read from a folder. The contract is in test_indexes.py."""

from __future__ import annotations

import numpy as np
import pytest
from fake_ray import FakeRay
from synthetic import clustered_vectors

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.indexes import make_index
from lnbnn.indexes.ray_shards import RayShards, Shard, merge_nearest

N_DIMS = 18
FOUR_BIT = {"form": "ivf-4bit", "n_lists": 8, "n_probes": 2}


@pytest.fixture
def ray(monkeypatch):
    return FakeRay().install(monkeypatch)


def filled(params, n=500):
    index = make_index("ray-shards", params)
    index.add(clustered_vectors(n, N_DIMS, seed=1), 10 * np.arange(n))
    return index


QUERIES = clustered_vectors(30, N_DIMS, seed=2)


def test_merging_by_hand():
    one = np.array([[0, 5], [1, np.inf]], np.float32), np.array([[3, 4], [3, -1]])
    other = np.array([[0, 2], [1, 1]], np.float32), np.array([[9, 8], [1, 2]])
    distances, rows = merge_nearest([one, other], 3)
    assert distances.tolist() == [[0, 0, 2], [1, 1, 1]]
    assert rows.tolist() == [[3, 9, 8], [1, 2, 3]]  # of equal distances the lowest row


def test_merging_too_few():
    distances, rows = merge_nearest([(np.array([[4.0]], np.float32), np.array([[7]]))], 3)
    assert distances.tolist() == [[4, np.inf, np.inf]]
    assert rows.tolist() == [[7, -1, -1]]


@pytest.mark.parametrize("n_shards", [1, 2, 3, 7])
def test_exact_shards_equal_one_exact_index(ray, n_shards):
    vectors = np.random.default_rng(0).integers(0, 3, (90, 3), dtype=np.uint8)  # most distances are tied
    one, many = make_index("exact"), make_index("ray-shards", {"shard": "exact", "n_shards": n_shards})
    for index in (one, many):
        index.add(vectors, np.arange(90))
    for got, expected in zip(many.search(vectors, 20), one.search(vectors, 20), strict=True):
        assert np.array_equal(got, expected)
    assert ray.n_started == n_shards


def test_one_shard_per_machine_by_default(ray):
    ray.n_nodes = 3
    assert filled({}).describe().startswith("ray-shards: 3 shards, each flat")


@pytest.mark.parametrize(("n_shards", "n_each"), [(1, 8), (2, 4), (3, 3), (8, 1), (20, 1)])
def test_the_lists_that_a_query_visits_are_divided(ray, n_shards, n_each):
    """Eight by default, each shard its share rounded up; lists that are given, too."""
    index = filled({"n_shards": n_shards, "form": "ivf-8bit", "n_lists": 40})
    assert f"ivf-8bit: {-(-40 // n_shards)} lists, {n_each} visited per query" in index.describe()


def test_shards_look_at_as_many_vectors_as_one_index(ray):
    """Recall of the same number of lists: near that of one index, not that of twice the lists."""
    vectors, queries = clustered_vectors(4000, N_DIMS, seed=1), clustered_vectors(200, N_DIMS, seed=2)
    lists = {"form": "ivf-8bit", "n_lists": 64, "n_probes": 4}
    found = {}
    for name, params in (
        ("exact", {}),
        ("faiss", lists),
        ("ray-shards", {**lists, "n_shards": 2}),
        ("faiss twice", {**lists, "n_probes": 8}),
    ):
        index = make_index(name.split()[0], params)
        index.add(vectors, np.arange(4000))
        found[name] = index.search(queries, 10)[0]
    last = found.pop("exact")[:, -1:]
    recall = {name: float((distances <= last).mean()) for name, distances in found.items()}
    assert abs(recall["ray-shards"] - recall["faiss"]) < abs(recall["ray-shards"] - recall["faiss twice"])


def test_more_shards_than_vectors(ray):
    index = filled({"n_shards": 50}, n=3)
    assert sorted(index.search(QUERIES[:1], 3)[1][0].tolist()) == [0, 10, 20]


@pytest.mark.parametrize("call", range(1, 15))
@pytest.mark.parametrize("params", [{"shard": "exact"}, FOUR_BIT], ids=["exact", "4bit"])
def test_a_loss_at_any_call_changes_no_answer(ray, monkeypatch, params, call):
    def work():
        index = filled({**params, "n_shards": 2})
        found = [index.search(QUERIES, 5)]
        index.add(clustered_vectors(60, N_DIMS, seed=3), 10_000 + np.arange(60))
        index.remove(np.arange(0, 400, 10))
        found.append(index.search(QUERIES, 5, leave_out=range(1000, 2000)))
        return np.array([ids for _, ids in found])

    expected = work()
    ray.n_calls, ray.lose_at, ray.n_started = 0, {call}, 0
    assert np.array_equal(work(), expected)
    assert ray.n_started == 2 + (call <= ray.n_calls)


def test_shards_are_opened_as_they_were_saved(ray, tmp_path):
    index = filled({**FOUR_BIT, "n_shards": 2}).build()
    index.add(clustered_vectors(60, N_DIMS, seed=3), 10_000 + np.arange(60))
    index.remove(np.arange(0, 200, 10))
    index.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"shard0000", "shard0001"}
    again = RayShards.load(tmp_path, index.settings())
    for got, expected in zip(again.search(QUERIES, 5), index.search(QUERIES, 5), strict=True):
        assert np.array_equal(got, expected)
    assert len(again) == len(index) == 540
    ray.lose_at = {ray.n_calls + 1}
    assert np.array_equal(again.search(QUERIES, 5)[1], index.search(QUERIES, 5)[1])


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 0, 250]],
        [[0, 0, 250], [1, 200, 500]],
        [[0, 0, 250], [1, 250, 499]],
        [[0, 0, 250], [2, 250, 500]],
        [[1, 0, 500]],
        [[0, 0, 500], [0, -5, 0]],
        [[0, 0]],
    ],
)
def test_damaged_rows_are_refused(ray, tmp_path, rows):
    index = filled({**FOUR_BIT, "n_shards": 2}).build()
    index.save(tmp_path)
    np.save(tmp_path / "shard_rows.npy", np.array(rows, np.int64))
    with pytest.raises(ModelFormatError, match=r"shard_rows\.npy: does not fit"):
        RayShards.load(tmp_path, index.settings())


def test_damaged_lists_are_refused(ray, tmp_path):
    index = filled({**FOUR_BIT, "n_shards": 2}).build()
    index.save(tmp_path)
    np.save(tmp_path / "shard0001" / "list_sizes.npy", np.zeros(8, np.int64))
    with pytest.raises(ModelFormatError, match=r"Ray worker on .*list_sizes\.npy: does not fit"):
        RayShards.load(tmp_path, index.settings())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_shards": 0}, "n_shards must be"),
        ({"shard": "flann"}, "shard must be one of faiss, exact"),
        ({"form": "ball-tree"}, "form must be one of"),
        ({"address": "evil:1"}, "has no setting 'address'"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(InvalidInputError, match=words):
        make_index("ray-shards", settings)


def test_a_shard_that_lost_all_its_rows(ray):
    shard = Shard("exact", {})
    shard.add(QUERIES, np.arange(30))
    shard.remove(np.arange(30))
    assert shard.search(QUERIES, 4, None)[0].shape == (30, 0)

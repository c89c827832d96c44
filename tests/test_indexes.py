"""The contract of an index, over every backend in the registry and every form of the default one."""

from __future__ import annotations

import re
import subprocess
import sys

import faiss
import numpy as np
import pytest
from fake_ray import FakeRay
from synthetic import clustered_vectors

from lnbnn.errors import InvalidInputError, MissingExtraError, ModelFormatError, UnknownNameError
from lnbnn.indexes import INDEXES, faiss_index, make_index
from lnbnn.indexes.faiss_index import FaissIndex

N_DIMS = 18  # no multiple of 8, as 128 + 2 is none
N = 600
FIRST_ID = 5 << 20

# Every backend as it comes, and each form of faiss. "all lists" settings must find what `exact` finds.
FORMS = {
    "exact": ("exact", {}),
    "faiss": ("faiss", {}),
    "faiss flat": ("faiss", {"form": "flat"}),
    "faiss ivf-8bit": ("faiss", {"form": "ivf-8bit", "n_lists": 8, "n_probes": 8}),
    "faiss ivf-4bit": ("faiss", {"form": "ivf-4bit", "n_lists": 8, "n_probes": 8, "rerank_factor": 200}),
    "flann": ("flann", {"checks": 100_000}),
    "ray-shards": ("ray-shards", {}),
    "ray-shards exact": ("ray-shards", {"shard": "exact", "n_shards": 3}),
    "ray-shards ivf-4bit": (
        "ray-shards",
        {"n_shards": 2, "form": "ivf-4bit", "n_lists": 8, "n_probes": 8, "rerank_factor": 200},
    ),
    "milvus": ("milvus", {"index_type": "FLAT"}),
    "milvus cells": ("milvus", {"index_type": "FLAT", "n_cells": 5, "n_cell_probes": 5}),
}
ON_RAY = [form for form in FORMS if form.startswith("ray")]
ON_CLUSTER, ON_SERVER = "on a cluster: ", "on a server: "
REAL = [ON_CLUSTER + "ray-shards ivf-4bit", ON_SERVER + "milvus cells"]  # each test takes seconds


def vectors_and_queries(n=N, n_queries=40, n_dims=N_DIMS):
    return clustered_vectors(n, n_dims, seed=1), clustered_vectors(n_queries, n_dims, seed=2)


def ids_for(n):
    """Large, with gaps, in no order."""
    return FIRST_ID + 3 * np.random.default_rng(7).permutation(n).astype(np.int64)


def new_index(form, params=None):
    name, settings = FORMS[form]
    try:
        return make_index(name, {**settings, **(params or {})})
    except MissingExtraError as error:
        pytest.skip(str(error))


def filled(form, vectors, ids=None, params=None):
    index = new_index(form, params)
    index.add(vectors, ids_for(len(vectors)) if ids is None else ids)
    return index


def loop_search(vectors, ids, queries, n_neighbors):
    """Squared distances and ids by plain loops, equal distances in the order of the rows."""
    distances, found = [], []
    for query in queries.tolist():
        rows = []
        for row, vector in enumerate(vectors.tolist()):
            rows.append((sum((a - b) ** 2 for a, b in zip(query, vector, strict=True)), row))
        rows.sort()
        distances.append([distance for distance, _ in rows[:n_neighbors]])
        found.append([ids[row] for _, row in rows[:n_neighbors]])
    return np.array(distances), np.array(found)


def true_distances(vectors, ids, queries, found):
    row_of = {int(i): row for row, i in enumerate(ids)}
    rows = np.array([[row_of[int(i)] for i in line] for line in found])
    return ((vectors[rows].astype(float) - queries[:, None, :].astype(float)) ** 2).sum(axis=2)


@pytest.fixture(autouse=True)
def milvus(monkeypatch, tmp_path_factory):
    """A file of milvus-lite for all tests that do not start a server."""
    monkeypatch.setenv("LNBNN_MILVUS_URI", str(tmp_path_factory.getbasetemp() / "contract.db"))


@pytest.fixture(autouse=True)
def one_thread():
    """Waiting threads cost more than these small builds; the tests of threads set their own number."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


ALL_FORMS = [*sorted(FORMS), *(pytest.param(form, marks=pytest.mark.engines) for form in REAL)]


@pytest.fixture(params=ALL_FORMS)
def form(request, monkeypatch):
    """Every form; those on Ray with a Ray that is made up. ``make test-engines``: on a real cluster, a real server."""
    name = request.param.removeprefix(ON_CLUSTER).removeprefix(ON_SERVER)
    if request.param.startswith(ON_CLUSTER):
        request.getfixturevalue("ray_cluster")
    elif request.param.startswith(ON_SERVER):
        monkeypatch.setenv("LNBNN_MILVUS_URI", request.getfixturevalue("milvus_server").uri)
    elif name in ON_RAY:
        FakeRay().install(monkeypatch)
    new_index(name)  # skips the tests of a backend whose extra is not installed
    return name


# ---- the reference against loops -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_neighbors", [1, 3, 25])
def test_exact_equals_the_loop(n_neighbors):
    rng = np.random.default_rng(0)
    vectors, queries = rng.integers(0, 4, (25, 3), dtype=np.uint8), rng.integers(0, 4, (30, 3), dtype=np.uint8)
    ids = ids_for(25)
    distances, found = filled("exact", vectors, ids).search(queries, n_neighbors)
    expected, expected_ids = loop_search(vectors, ids, queries, n_neighbors)  # values 0..3: most distances are tied
    assert np.array_equal(distances, expected)
    assert np.array_equal(found, expected_ids)


def test_exact_of_extreme_values():
    vectors = np.array([[0] * 300, [255] * 300], np.uint8)
    distances, found = filled("exact", vectors, np.array([4, 9])).search(vectors, 2)
    assert distances.tolist() == [[0, 300 * 255**2], [0, 300 * 255**2]]
    assert found.tolist() == [[4, 9], [9, 4]]


def test_exact_float_vectors_equal_the_loop():
    rng = np.random.default_rng(1)
    vectors, queries = rng.normal(size=(40, 5)).astype(np.float32), rng.normal(size=(10, 5)).astype(np.float32)
    distances, found = filled("exact", vectors).search(queries, 6)
    expected, expected_ids = loop_search(vectors, ids_for(40), queries, 6)
    assert np.allclose(distances, expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(found, expected_ids)


# ---- every index -----------------------------------------------------------------------------------------------------


def test_every_registered_index_is_under_test():
    assert {name for name, _ in FORMS.values()} == set(INDEXES)


def test_shapes_types_and_order(form):
    vectors, queries = vectors_and_queries()
    index = filled(form, vectors)
    assert len(index) == N
    for n_neighbors in (1, 10):
        distances, ids = index.search(queries, n_neighbors)
        assert distances.shape == ids.shape == (40, n_neighbors)
        assert distances.dtype == np.float32
        assert ids.dtype == np.int64
        assert (np.diff(distances, axis=1) >= 0).all()
        assert all(len(set(row)) == n_neighbors for row in ids.tolist())
    assert index.name in INDEXES
    assert isinstance(index.describe(), str)
    assert index.nbytes >= vectors.nbytes


def test_equals_exact(form):
    vectors, queries = vectors_and_queries()
    distances, ids = filled(form, vectors).search(queries, 10)
    expected, _ = filled("exact", vectors).search(queries, 10)
    assert np.array_equal(distances, expected)
    assert np.array_equal(true_distances(vectors, ids_for(N), queries, ids), expected)  # ids may differ in ties


def test_a_vector_finds_itself(form):
    vectors = np.unique(vectors_and_queries()[0], axis=0)
    ids = ids_for(len(vectors))
    distances, found = filled(form, vectors, ids).search(vectors[:50], 1)
    assert not distances.any()
    assert np.array_equal(found[:, 0], ids[:50])


def test_all_neighbors_can_be_asked_for(form):
    vectors, queries = vectors_and_queries(n=60)
    _, ids = filled(form, vectors).search(queries[:5], 60)
    assert all(sorted(row) == sorted(ids_for(60)) for row in ids.tolist())


def test_no_queries(form):
    distances, ids = filled(form, vectors_and_queries()[0]).search(np.empty((0, N_DIMS), np.uint8), 3)
    assert distances.shape == ids.shape == (0, 3)


def test_one_vector(form):
    distances, ids = filled(form, np.full((1, N_DIMS), 9, np.uint8), np.array([77])).search(
        np.full((2, N_DIMS), 10, np.uint8), 1
    )
    assert distances.tolist() == [[N_DIMS], [N_DIMS]]
    assert ids.tolist() == [[77], [77]]


def test_equal_vectors(form):
    index = filled(form, np.full((50, N_DIMS), 9, np.uint8))
    distances, ids = index.search(np.full((1, N_DIMS), 9, np.uint8), 5)
    assert not distances.any()
    assert len(set(ids[0].tolist())) == 5


def test_added_in_parts_equals_added_at_once(form):
    vectors, queries = vectors_and_queries()
    ids = ids_for(N)
    parts = new_index(form)
    for start in range(0, N, 130):
        parts.add(vectors[start : start + 130], ids[start : start + 130])
    assert len(parts) == N
    for got, expected in zip(parts.search(queries, 5), filled(form, vectors, ids).search(queries, 5), strict=True):
        assert np.array_equal(got, expected)


def test_added_after_the_build_is_found(form):
    vectors, queries = vectors_and_queries()
    index = filled(form, vectors).build()
    index.search(queries, 3)
    late = np.full((2, N_DIMS), 250, np.uint8)
    late[1] = 255
    index.add(late, np.array([1, 2]))
    assert len(index) == N + 2
    distances, ids = index.search(late, 1)
    assert not distances.any()
    assert ids[:, 0].tolist() == [1, 2]
    everything = filled("exact", np.vstack([vectors, late]), np.append(ids_for(N), [1, 2]))
    assert np.array_equal(index.search(queries, 10)[0], everything.search(queries, 10)[0])


@pytest.mark.parametrize("n_removed", [5, 100, 400])
def test_removed_is_never_returned(form, n_removed):
    vectors, queries = vectors_and_queries()
    ids = ids_for(N)
    index = filled(form, vectors, ids).build()
    gone = ids[:n_removed]
    assert index.remove(gone) == n_removed
    assert len(index) == N - n_removed
    distances, found = index.search(np.vstack([vectors[:40], queries]), 20)
    assert not np.isin(found, gone).any()
    rest = filled("exact", vectors[n_removed:], ids[n_removed:])
    assert np.array_equal(distances, rest.search(np.vstack([vectors[:40], queries]), 20)[0])


def test_removing_twice_or_unknown_ids_removes_nothing(form):
    vectors, _ = vectors_and_queries()
    ids = ids_for(N)
    index = filled(form, vectors, ids).build()
    assert index.remove(ids[:3]) == 3
    assert index.remove(ids[:3]) == 0
    assert index.remove(np.array([0, 1, 2])) == 0
    assert index.remove(np.array([], np.int64)) == 0
    assert len(index) == N - 3


@pytest.mark.parametrize("n_removed", [5, 100, 400])
def test_removed_and_added_again_is_found(form, n_removed):
    """FAISS's own removal from 4-bit lists loses the rows that are added afterwards."""
    vectors, queries = vectors_and_queries()
    ids = ids_for(N)
    index = filled(form, vectors, ids).build()
    expected = index.search(queries, 10)[0]
    index.remove(ids[:n_removed])
    index.search(queries, 1)
    index.add(vectors[:n_removed], ids[:n_removed])
    assert len(index) == N
    assert not index.search(vectors[:n_removed], 1)[0].any()
    assert np.array_equal(index.search(queries, 10)[0], expected)
    assert np.isin(index.search(queries, N)[1][0], ids).all()


def test_remove_before_the_build(form):
    vectors, queries = vectors_and_queries()
    ids = ids_for(N)
    index = filled(form, vectors, ids)
    index.remove(ids[:200])
    assert not np.isin(index.search(queries, 10)[1], ids[:200]).any()


def test_everything_removed_then_filled_again(form):
    vectors, queries = vectors_and_queries(n=100)
    index = filled(form, vectors).build()
    index.remove(ids_for(100))
    assert len(index) == 0
    with pytest.raises(InvalidInputError, match="needs at least one vector"):
        index.search(queries, 1)
    index.add(vectors, np.arange(100))
    assert np.array_equal(index.search(queries, 3)[0], filled("exact", vectors).search(queries, 3)[0])


@pytest.mark.parametrize("n_removed", [0, 50, 400])
def test_save_and_load_give_the_same(form, n_removed, tmp_path):
    vectors, queries = vectors_and_queries()
    ids = ids_for(N)
    index = filled(form, vectors, ids).build()
    index.remove(ids[:n_removed])
    before = index.search(queries, 7)
    index.save(tmp_path)
    again = type(index).load(tmp_path, index.settings())
    assert len(again) == N - n_removed
    assert again.describe() == index.describe()
    for got, expected in zip(again.search(queries, 7), before, strict=True):
        assert np.array_equal(got, expected)
    again.add(np.full((1, N_DIMS), 255, np.uint8), np.array([3]))  # what was read from files can still grow
    assert again.search(np.full((1, N_DIMS), 255, np.uint8), 1)[1].tolist() == [[3]]
    assert again.remove(np.array([3])) == 1
    assert 3 not in again.search(np.full((1, N_DIMS), 255, np.uint8), 5)[1]


def test_cut_short_file_is_refused(form, tmp_path):
    index = filled(form, vectors_and_queries()[0])
    index.save(tmp_path)
    for file in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ModelFormatError, match=file.name):
            type(index).load(tmp_path, index.settings())
        file.write_bytes(whole)
    type(index).load(tmp_path, index.settings())


def test_float_vectors(form):
    vectors, queries = vectors_and_queries()
    vectors, queries = vectors / np.float32(127), queries / np.float32(127)
    distances, ids = filled(form, vectors).search(queries, 10)
    expected, _ = filled("exact", vectors).search(queries, 10)
    assert distances.dtype == np.float32
    assert np.allclose(distances, expected, rtol=1e-4, atol=1e-5)
    assert np.allclose(true_distances(vectors, ids_for(N), queries, ids), expected, rtol=1e-4, atol=1e-5)


def test_arguments_are_not_changed(form):
    vectors, queries = vectors_and_queries()
    ids = ids_for(N)
    copies = vectors.copy(), queries.copy(), ids.copy()
    for array in (vectors, queries, ids):
        array.flags.writeable = False
    index = filled(form, vectors, ids)
    index.search(queries, 3)
    index.remove(ids[:10])
    for array, copy in zip((vectors, queries, ids), copies, strict=True):
        assert np.array_equal(array, copy)


def test_vectors_are_copied_in(form):
    vectors, queries = vectors_and_queries()
    index = filled(form, vectors)
    expected = index.search(queries, 3)[0]
    vectors[:] = 0
    assert np.array_equal(index.search(queries, 3)[0], expected)


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_empty_index(form):
    index = new_index(form)
    assert len(index) == 0
    assert index.nbytes == 0
    assert index.remove(np.array([1])) == 0
    for act in (index.build, index.describe, lambda: index.search(np.zeros((1, N_DIMS), np.uint8), 1)):
        with pytest.raises(InvalidInputError, match="an index needs at least one vector"):
            act()


@pytest.mark.parametrize(
    ("vectors", "ids", "message"),
    [
        (np.zeros((3, 4), np.float64), [1, 2, 3], r"uint8 or float32 .* got float64 \(3, 4\)"),
        (np.zeros((3, 4), np.int16), [1, 2, 3], "got int16"),
        (np.zeros(4, np.uint8), [1], r"shape \(n, d\)"),
        (np.zeros((3, 4), np.uint8), [1, 2], r"one id per row; got .* ids \(2,\)"),
        (np.zeros((2, 4), np.uint8), [1, -2], "ids must be at least 0; got -2"),
    ],
)
def test_bad_additions_are_refused(form, vectors, ids, message):
    with pytest.raises(InvalidInputError, match=message):
        new_index(form).add(vectors, np.array(ids))


def test_later_additions_must_fit_the_first(form):
    index = filled(form, vectors_and_queries()[0])
    with pytest.raises(InvalidInputError, match=f"must be uint8 of length {N_DIMS}.*got uint8 of length 3"):
        index.add(np.zeros((1, 3), np.uint8), np.array([1]))
    with pytest.raises(InvalidInputError, match=f"got float32 of length {N_DIMS}"):
        index.add(np.zeros((1, N_DIMS), np.float32), np.array([1]))
    assert len(index) == N


@pytest.mark.parametrize("queries", [np.zeros((2, 3), np.uint8), np.zeros(N_DIMS, np.uint8), np.zeros((2, N_DIMS))])
def test_bad_queries_are_refused(form, queries):
    index = filled(form, vectors_and_queries()[0])
    with pytest.raises(InvalidInputError, match=rf"queries must be uint8 of shape \(n, {N_DIMS}\)"):
        index.search(queries, 1)


@pytest.mark.parametrize("n_neighbors", [0, -1, N + 1])
def test_bad_n_neighbors_is_refused(form, n_neighbors):
    index = filled(form, vectors_and_queries()[0])
    with pytest.raises(InvalidInputError, match=f"n_neighbors must be from 1 to {N}.*got {n_neighbors}"):
        index.search(vectors_and_queries()[1], n_neighbors)


def test_unknown_settings_and_names():
    with pytest.raises(InvalidInputError, match="'exact' has no setting 'speed'; its settings: none"):
        make_index("exact", {"speed": 1})
    with pytest.raises(InvalidInputError, match="'faiss' has no setting 'nprobe'; its settings: form, n_lists"):
        make_index("faiss", {"nprobe": 1})
    with pytest.raises(UnknownNameError, match="Unknown index 'annoy'; choose one of: exact, faiss, flann"):
        make_index("annoy")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"form": "hnsw"}, "form must be one of auto, flat, ivf-8bit, ivf-4bit; got 'hnsw'"),
        ({"n_lists": 0}, "n_lists must be a whole number from 1"),
        ({"n_probes": -3}, "n_probes must be a whole number from 1"),
        ({"n_probes": 1.5}, "n_probes"),
        ({"rerank_factor": 0}, "rerank_factor"),
        ({"n_lists": [3]}, r"n_lists must be a whole number .* got \[3\]"),
    ],
)
def test_bad_faiss_settings_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        make_index("faiss", settings)


@pytest.mark.parametrize("settings", [{"n_lists": "abc"}, {"n_probes": float("inf")}, {"seed": "abc"}, {"seed": -1}])
def test_faiss_settings_that_are_no_whole_numbers_are_refused(settings):
    """Text and infinities reach here from the command line's NAME=VALUE."""
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        make_index("faiss", settings)


def test_rerank_factor_cannot_be_none():
    """None stands for the default in n_lists and n_probes, but has no meaning here."""
    with pytest.raises(InvalidInputError, match="rerank_factor"):
        make_index("faiss", {"rerank_factor": None})


@pytest.mark.parametrize("settings", [{"checks": 0}, {"n_trees": 0}, {"n_trees": 2.5}, {"checks": "many"}])
def test_bad_flann_settings_are_refused(settings):
    new_index("flann")
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        make_index("flann", settings)


# ---- the forms of faiss ----------------------------------------------------------------------------------------------


def test_auto_chooses_the_form_by_size():
    assert FaissIndex()._form_for(20_000) == "flat"
    assert FaissIndex()._form_for(20_001) == "ivf-4bit"
    assert FaissIndex(form="ivf-8bit")._form_for(10) == "ivf-8bit"


def test_describe_names_the_form():
    vectors, _ = vectors_and_queries()
    assert filled("faiss", vectors).describe().startswith("flat")
    assert filled("faiss ivf-8bit", vectors).describe().startswith("ivf-8bit: 8 lists, 8 visited")
    assert filled("faiss ivf-4bit", vectors).describe().startswith("ivf-4bit: 8 lists, 8 visited")


def test_eight_lists_are_visited_by_default():
    index = filled("faiss", np.zeros((20_001, 2), np.uint8), params={"n_lists": 16})
    assert index.describe().startswith("ivf-4bit: 16 lists, 8 visited")


@pytest.mark.parametrize(("n_rows", "expected"), [(1, 1), (20_001, 128), (1_000_000, 512), (9_000_000, 4096)])
def test_number_of_lists_follows_the_size(n_rows, expected):
    """One list for 2,048 vectors, or 0.7 times the square root if that is more, to the nearest power of two."""
    assert faiss_index.default_n_lists(n_rows) == expected


def test_recall_of_the_4_bit_form():
    """Distances are exact, the candidates approximate: 4-bit codes of clustered data find most neighbors.

    With 8 of 32 lists and 20 candidates a neighbor compared again, 5 codes of 16 values each tell the 20 clusters
    apart but order the vectors of one cluster only roughly. Nine in ten is a floor well below what is measured (0.99);
    a broken code, a wrong residual or a lost list falls far below it.
    """
    vectors, queries = vectors_and_queries(n=3000, n_queries=100)
    settings = {"n_lists": 32, "n_probes": 8, "rerank_factor": 20}
    distances, ids = filled("faiss ivf-4bit", vectors, params=settings).search(queries, 10)
    _, expected = filled("exact", vectors).search(queries, 10)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids.tolist(), expected.tolist(), strict=True)])
    assert recall >= 0.9
    assert np.array_equal(distances, true_distances(vectors, ids_for(3000), queries, ids))


def test_more_probes_never_lose_neighbors():
    vectors, queries = vectors_and_queries(n=2000)
    sums = []
    for n_probes in (1, 4, 16):
        settings = {"n_lists": 16, "n_probes": n_probes}
        sums.append(filled("faiss ivf-8bit", vectors, params=settings).search(queries, 1)[0].sum())
    assert sums[0] >= sums[1] >= sums[2]
    assert sums[2] == filled("exact", vectors).search(queries, 1)[0].sum()


def test_too_few_vectors_in_the_probed_lists_leave_gaps():
    # Two far groups, one list each: the list of the query's group holds 3 vectors, so of 5 neighbors 2 are missing.
    vectors = np.vstack([np.full((3, N_DIMS), 10, np.uint8), np.full((30, N_DIMS), 250, np.uint8)])
    vectors[:, 0] += np.arange(33, dtype=np.uint8) % 4
    for form in ("faiss ivf-8bit", "faiss ivf-4bit"):
        index = filled(form, vectors, np.arange(33), {"n_lists": 2, "n_probes": 1})
        distances, ids = index.search(np.full((1, N_DIMS), 10, np.uint8), 5)
        assert sorted(ids[0, :3].tolist()) == [0, 1, 2]
        assert ids[0, 3:].tolist() == [-1, -1]
        assert np.isinf(distances[0, 3:]).all()


def test_same_for_any_number_of_threads(form):
    vectors, queries = vectors_and_queries(n=2000)
    settings = {"rerank_factor": 2} if "4bit" in form else {}
    results = []
    for n_threads in (1, 2):
        faiss.omp_set_num_threads(n_threads)
        results.append(filled(form, vectors, params=settings).search(queries, 10))
        assert faiss.omp_get_max_threads() == n_threads, "the caller's setting is kept"
    for one, two in zip(*results, strict=True):
        assert one.tobytes() == two.tobytes()


def test_another_seed_another_training():
    vectors, queries = vectors_and_queries(n=2000)
    found = [
        filled("faiss ivf-8bit", vectors, params={"n_lists": 32, "n_probes": 1, "seed": seed}).search(queries, 10)[0]
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize("n", [2, 15, 16, 17])
def test_4_bit_form_of_few_vectors(n):
    vectors, queries = vectors_and_queries(n=n)
    distances, _ = filled("faiss ivf-4bit", vectors).search(queries, 2)
    assert np.array_equal(distances, filled("exact", vectors).search(queries, 2)[0])


def test_grown_past_the_size_of_its_form_and_loaded(tmp_path):
    """A flat index that has grown beyond 20,000 vectors answers the same after it is opened again."""
    vectors, queries = vectors_and_queries(n=20_050, n_dims=4)
    index = filled("faiss", vectors[:19_990], np.arange(19_990)).build()
    index.add(vectors[19_990:], np.arange(19_990, 20_050))
    before = index.search(queries, 10)
    index.save(tmp_path)
    again = type(index).load(tmp_path, index.settings())
    assert again.describe() == index.describe()
    assert again.search(queries, 10)[0].tobytes() == before[0].tobytes()


@pytest.mark.parametrize("form", ALL_FORMS, indirect=True)
@pytest.mark.parametrize("n_removed", [0, 40])
@pytest.mark.parametrize("shuffled", [False, True])
def test_ids_left_out_count_as_absent(form, n_removed, shuffled):
    vectors, _ = vectors_and_queries()
    ids = np.arange(N) + 1000
    if shuffled:
        ids = np.random.default_rng(3).permutation(ids)
    index = filled(form, vectors, ids).build()
    index.remove(np.arange(1000, 1000 + n_removed))
    hidden = range(1100, 1300)
    kept = (ids >= 1000 + n_removed) & ~((ids >= hidden.start) & (ids < hidden.stop))
    distances, found = index.search(vectors[:60], 5, leave_out=hidden)
    assert np.isin(found[found >= 0], ids[kept]).all()
    assert np.isfinite(distances).any()
    expected = filled(form, vectors[kept], ids[kept]).search(vectors[:60], 5)[0]
    if form in ("exact", "faiss flat"):
        assert np.array_equal(distances, expected)
    plain = index.search(vectors[:60], 5)[1]
    assert np.isin(plain, np.asarray(hidden)).any(), "without leaving them out they are found"


@pytest.mark.parametrize("shuffled", [False, True])
def test_vectors_are_looked_up_by_id(shuffled):
    vectors, _ = vectors_and_queries()
    ids = np.arange(N)[::-1].copy() if shuffled else np.arange(N)
    index = filled("exact", vectors, ids)
    expected = vectors[(ids >= 20) & (ids < 25)]
    assert np.array_equal(index.vectors_of(range(20, 25)), expected)


SHORT_OF_MEMORY = """
import resource, sys
import numpy as np
from lnbnn.errors import LnbnnError
from lnbnn.indexes.faiss_index import FaissIndex

vectors = np.random.default_rng(0).integers(0, 255, (30_000, 32), dtype=np.uint8)
index = FaissIndex()
index.add(vectors, np.arange(len(vectors)))
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, ((held << 10) + (int(sys.argv[1]) << 20),) * 2)
try:
    index.build()
except LnbnnError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say what is free")
@pytest.mark.parametrize("n_free", [50, 100, 150, 200])
def test_building_with_little_memory_is_refused_in_a_line(n_free):
    ran = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY, str(n_free)], capture_output=True, text=True)
    assert ran.returncode == 1
    pattern = r"building the index takes about \d+ MiB of memory, but \d+ MiB are free; use fewer images, .*\n"
    assert re.fullmatch(pattern, ran.stderr)

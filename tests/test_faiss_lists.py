"""Inverted lists as plain files: what is written is what is searched, and nothing in a file is believed."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
from synthetic import clustered_vectors

from lnbnn.errors import ModelFormatError
from lnbnn.files.arrays import load_array, save_array
from lnbnn.indexes.faiss_index import FaissIndex
from lnbnn.indexes.faiss_lists import are_mapped, list_sizes

N = 700
FORMS = [("ivf-8bit", np.uint8), ("ivf-8bit", np.float32), ("ivf-4bit", np.uint8), ("ivf-4bit", np.float32)]


def saved(folder, form="ivf-4bit", dtype=np.uint8):
    vectors = clustered_vectors(N, 18, seed=1).astype(dtype)
    index = FaissIndex(form=form, n_lists=12, n_probes=3)
    index.add(vectors, np.arange(N))
    index.save(folder)
    return index, vectors


@pytest.mark.parametrize(("form", "dtype"), FORMS)
@pytest.mark.parametrize("can_map", [True, False])
def test_opened_lists_answer_the_same_and_can_grow(form, dtype, can_map, tmp_path, monkeypatch):
    index, vectors = saved(tmp_path, form, dtype)
    if not can_map:
        monkeypatch.delattr(faiss, "OnDiskInvertedLists")  # as on Windows
    again = FaissIndex.load(tmp_path, index.settings())
    assert are_mapped(again._structure) == can_map
    assert np.array_equal(list_sizes(again._structure), list_sizes(index._structure))
    for got, expected in zip(again.search(vectors[:90], 6), index.search(vectors[:90], 6), strict=True):
        assert got.tobytes() == expected.tobytes()
    late = clustered_vectors(50, 18, seed=5).astype(dtype)
    for grown in (index, again):
        grown.add(late, np.arange(N, N + 50))
    assert are_mapped(again._structure) == can_map, "what was added has lists of its own"
    assert (again.search(late, 6)[0] <= index.search(late, 6)[0]).all(), "two parts have more candidates, never fewer"
    (tmp_path / "grown").mkdir()
    again.save(tmp_path / "grown")
    grown = FaissIndex.load(tmp_path / "grown", index.settings())
    for got, expected in zip(grown.search(late, 6), index.search(late, 6), strict=True):
        assert got.tobytes() == expected.tobytes()


def test_lists_by_hand(tmp_path):
    """Every row number stands once, in the list whose center FAISS assigns it to, at the place the format says."""
    index, _ = saved(tmp_path, "ivf-8bit")
    sizes = load_array(tmp_path / "list_sizes.npy", ndim=1, dtypes=("int64",))
    lists = load_array(tmp_path / "lists.npy", ndim=1, dtypes=("uint8",)).tobytes()
    assert len(lists) == N * (24 + 8), "18 dimensions filled up to 24, and a row number of 8 bytes"
    found, start = [], 0
    for size in sizes.tolist():
        codes = np.frombuffer(lists[start : start + 24 * size], np.uint8).reshape(size, 24)
        rows = np.frombuffer(lists[start + 24 * size : start + 32 * size], np.int64)
        assert np.array_equal(codes[:, :18], index._table.vectors[rows])
        found += rows.tolist()
        start += 32 * size
    assert sorted(found) == list(range(N))


def change(name, do):
    def forge(folder):
        array = np.load(folder / name)
        save_array(folder / name, do(array.copy()))

    return forge


def moved(sizes):
    return np.array([1] * (len(sizes) - 1) + [sizes.sum() - len(sizes) + 1])  # eleven blocks with one vector each


def huge(sizes):
    sizes[:2] = 1 << 62, -(1 << 62)
    return sizes


def not_a_number(array):
    array.flat[3] = np.nan
    return array


FORGERIES = {
    "sizes that do not sum": ("list_sizes.npy", change("list_sizes.npy", lambda a: a + 1)),
    "negative sizes": ("list_sizes.npy", change("list_sizes.npy", lambda a: a * -1)),
    "sizes that overflow": ("list_sizes.npy", change("list_sizes.npy", huge)),
    "other sizes of the same sum": ("lists.npy", change("list_sizes.npy", moved)),
    "too few sizes": ("list_sizes.npy", change("list_sizes.npy", lambda a: a[:-1])),
    "lists cut short": ("lists.npy", change("lists.npy", lambda a: a[:-8])),
    "lists too long": ("lists.npy", change("lists.npy", lambda a: np.append(a, a[:8]))),
    "no branches": ("branch_sizes.npy", change("branch_sizes.npy", lambda a: a[:0])),
    "branch sizes that do not sum": ("branch_sizes.npy", change("branch_sizes.npy", lambda a: a + 1)),
    "an empty branch": ("branch_sizes.npy", change("branch_sizes.npy", lambda a: np.array([0, *a[:-2], a[-2:].sum()]))),
    "narrow centers": ("branch_sizes.npy", change("centers.npy", lambda a: a[:, :16].copy())),
    "centers that are no numbers": ("centers.npy", change("centers.npy", not_a_number)),
    "a narrow codebook": ("codebook.npy", change("codebook.npy", lambda a: a[:, :, :2].copy())),
    "a codebook of no numbers": ("codebook.npy", change("codebook.npy", not_a_number)),
}


@pytest.mark.parametrize("forgery", sorted(FORGERIES))
def test_forged_files_are_refused(forgery, tmp_path):
    index, _ = saved(tmp_path)
    named, forge = FORGERIES[forgery]
    forge(tmp_path)
    with pytest.raises(ModelFormatError, match=named):
        FaissIndex.load(tmp_path, index.settings())


@pytest.mark.parametrize("form", ["ivf-8bit", "ivf-4bit"])
@pytest.mark.parametrize("number", [N, 1 << 40, -1, -(1 << 40)])
def test_row_numbers_that_are_not_there_count_as_absent(form, number, tmp_path):
    """They cannot be checked without reading the whole file, so that the search passes over them."""
    index, vectors = saved(tmp_path, form)
    lists, sizes = np.load(tmp_path / "lists.npy"), np.load(tmp_path / "list_sizes.npy")
    if form == "ivf-4bit":
        room = -(-sizes // 32) * 32
        ids_at = int(room[0] * 24 // 4 // 2)  # six codes of 4 bits: 3 bytes a vector
    else:
        ids_at = int(sizes[0] * 24)
    lists[ids_at : ids_at + 8 * sizes[0]] = np.frombuffer(np.full(sizes[0], number, np.int64).tobytes(), np.uint8)
    save_array(tmp_path / "lists.npy", lists)
    again = FaissIndex.load(tmp_path, index.settings())
    ids = again.search(vectors, 5)[1]
    assert ids.max() < N
    assert ids.min() >= -1
    assert (ids >= 0).any()

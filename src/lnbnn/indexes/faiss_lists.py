"""Inverted lists as plain array files: FAISS scans them where they are mapped, and never parses a file of ours.

    branches.npy  branch_sizes.npy  centers.npy     the tree of the lists' centers
    codebook.npy                                    (codes, 16, dimensions per code) float32, of 4-bit lists only
    list_sizes.npy                                  how many vectors each list holds
    lists.npy                                       list after list: its codes, then its row numbers (int64)

4-bit codes are in FAISS's blocks of 32 vectors, so a list's codes and row numbers are padded to a multiple of 32.
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import ModelFormatError
from lnbnn.files.arrays import load_array, save_array, save_stacked
from lnbnn.indexes.faiss_kmeans import CenterTree, tree_quantizer

__all__ = ["DIMS_PER_CODE", "are_mapped", "empty_copy", "load_lists", "make_lists", "own_lists", "save_lists"]

DIMS_PER_CODE = 4
"""Dimensions behind each 4-bit code."""

_BLOCK = 32  # vectors in a block of 4-bit codes
_ID_BYTES = 8


def make_lists(form: str, tree: CenterTree, dtype: np.dtype) -> faiss.IndexIVF:
    """Empty lists around the centers; those of form ``ivf-4bit`` have no codebook yet."""
    centers = tree_quantizer(tree)
    n_lists, width = tree.centers.shape
    structure: faiss.IndexIVF
    if form == "ivf-4bit":
        structure = faiss.IndexIVFPQFastScan(centers, width, n_lists, width // DIMS_PER_CODE, 4)
    elif dtype == np.uint8:
        code = faiss.ScalarQuantizer.QT_8bit_direct
        structure = faiss.IndexIVFScalarQuantizer(centers, width, n_lists, code, faiss.METRIC_L2, False)
    else:
        structure = faiss.IndexIVFFlat(centers, width, n_lists)
    centers.this.disown()
    structure.own_fields = True
    return structure


def save_lists(folder: Path, structure: faiss.IndexIVF, tree: CenterTree) -> None:
    """Write the lists and all that a search in them needs."""
    save_array(folder / "branches.npy", tree.branches)
    save_array(folder / "branch_sizes.npy", tree.sizes)
    save_array(folder / "centers.npy", tree.centers)
    if isinstance(structure, faiss.IndexIVFPQFastScan):
        save_array(folder / "codebook.npy", _codebook(structure))
    sizes = list_sizes(structure)
    save_array(folder / "list_sizes.npy", sizes)
    save_stacked(folder / "lists.npy", _parts(structure, sizes) or [np.empty(0, np.uint8)])


def load_lists(folder: Path, n_rows: int, width: int, dtype: np.dtype) -> tuple[faiss.IndexIVF, CenterTree]:
    """Open what :func:`save_lists` wrote, checked: ``lists.npy`` stays mapped, nothing else is large."""
    tree = _load_tree(folder, width)
    form = "ivf-4bit" if (folder / "codebook.npy").exists() else "ivf-8bit"
    structure = make_lists(form, tree, dtype)
    structure.is_trained = True
    if form == "ivf-4bit":
        book = load_array(folder / "codebook.npy", ndim=3, dtypes=("float32",))
        if book.shape != _codebook(structure).shape or not np.isfinite(book).all():
            raise ModelFormatError(f"{folder / 'codebook.npy'}: does not fit centers.npy; fit the model again.")
        faiss.copy_array_to_vector(np.array(book).ravel(), structure.pq.centroids)
    sizes = np.asarray(load_array(folder / "list_sizes.npy", ndim=1, dtypes=("int64",)))
    if len(sizes) != len(tree.centers) or sizes.min() < 0 or sizes.max() > n_rows or sizes.sum() != n_rows:
        raise ModelFormatError(f"{folder / 'list_sizes.npy'}: does not fit the other files; fit the model again.")
    file = folder / "lists.npy"
    bytes_per_list = _capacities(structure, sizes) * (structure.code_size + _ID_BYTES)
    lists = load_array(file, ndim=1, dtypes=("uint8",))
    if len(lists) != bytes_per_list.sum():
        raise ModelFormatError(f"{file}: does not fit list_sizes.npy; fit the model again.")
    starts = file.stat().st_size - len(lists) + np.cumsum(bytes_per_list) - bytes_per_list
    is_utf8 = str(file).encode(errors="ignore").decode() == str(file)
    if hasattr(faiss, "OnDiskInvertedLists") and is_utf8:
        structure.replace_invlists(_mapped(file, structure, sizes, starts), True)
    else:  # on Windows, and where FAISS cannot be told the name
        room = _capacities(structure, sizes)
        cuts = np.stack([room * structure.code_size, room * _ID_BYTES], axis=1)[sizes > 0]
        _fill(structure, sizes, np.split(np.asarray(lists), np.cumsum(cuts)[:-1]))
    structure.ntotal = n_rows
    return structure, tree


def are_mapped(structure: faiss.IndexIVF) -> bool:
    """Whether the lists are those of a file, which cannot grow."""
    mapped = getattr(faiss, "OnDiskInvertedLists", ())
    return isinstance(faiss.downcast_InvertedLists(structure.invlists), mapped)


def own_lists(structure: faiss.IndexIVF, tree: CenterTree, dtype: np.dtype) -> faiss.IndexIVF:
    """A copy in memory, which can grow."""
    copy = empty_copy(structure, tree, dtype)
    sizes = list_sizes(structure)
    _fill(copy, sizes, _parts(structure, sizes))
    copy.ntotal = structure.ntotal
    return copy


def empty_copy(structure: faiss.IndexIVF, tree: CenterTree, dtype: np.dtype) -> faiss.IndexIVF:
    """Empty lists in memory, with the same centers and codes."""
    form = "ivf-4bit" if isinstance(structure, faiss.IndexIVFPQFastScan) else "ivf-8bit"
    copy = make_lists(form, tree, dtype)
    copy.is_trained = True
    if form == "ivf-4bit":
        faiss.copy_array_to_vector(_codebook(structure).ravel(), copy.pq.centroids)
    return copy


def list_sizes(structure: faiss.IndexIVF) -> NDArray[np.int64]:
    """How many vectors each list holds."""
    return np.array([structure.invlists.list_size(place) for place in range(structure.nlist)], np.int64)


def _capacities(structure: faiss.IndexIVF, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    block = _BLOCK if isinstance(structure, faiss.IndexIVFPQFastScan) else 1
    return -(-sizes // block) * block


def _parts(structure: faiss.IndexIVF, sizes: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
    """Views of each list that is not empty: codes, then row numbers; lengths as in ``lists.npy``."""
    lists = faiss.downcast_InvertedLists(structure.invlists)
    parts = []
    for place, room in enumerate(_capacities(structure, sizes).tolist()):
        if room:
            parts.append(faiss.rev_swig_ptr(lists.get_codes(place), room * structure.code_size))
            rows = np.zeros(room, np.int64)
            rows[: sizes[place]] = faiss.rev_swig_ptr(lists.get_ids(place), int(sizes[place]))
            parts.append(rows.view(np.uint8))
    return parts


def _fill(structure: faiss.IndexIVF, sizes: NDArray[np.int64], parts: list[NDArray[np.uint8]]) -> None:
    """Copy lists, given as :func:`_parts` gives them, into empty ones."""
    for place, codes, rows in zip(np.flatnonzero(sizes).tolist(), parts[::2], parts[1::2], strict=True):
        ids = np.ascontiguousarray(rows).view(np.int64)
        n_rows = int(sizes[place])
        structure.invlists.add_entries(place, n_rows, faiss.swig_ptr(ids), faiss.swig_ptr(np.ascontiguousarray(codes)))


def _mapped(
    file: Path, structure: faiss.IndexIVF, sizes: NDArray[np.int64], starts: NDArray[np.int64]
) -> faiss.InvertedLists:
    lists = faiss.OnDiskInvertedLists()
    lists.nlist, lists.code_size, lists.read_only = structure.nlist, structure.code_size, True
    lists.filename, lists.totsize = str(file), file.stat().st_size
    lists.lists.resize(structure.nlist)
    table = np.stack([sizes, _capacities(structure, sizes), starts], axis=1).astype(np.uint64)
    faiss.memcpy(lists.lists.data(), faiss.swig_ptr(table.view(np.uint8).ravel()), table.nbytes)
    lists.do_mmap()
    lists.this.disown()
    return lists


def _codebook(structure: faiss.IndexIVFPQFastScan) -> NDArray[np.float32]:
    values = faiss.vector_to_array(structure.pq.centroids)
    return values.reshape(structure.pq.M, structure.pq.ksub, structure.pq.dsub)


def _load_tree(folder: Path, width: int) -> CenterTree:
    branches, centers = (
        np.array(load_array(folder / name, ndim=2, dtypes=("float32",))) for name in ("branches.npy", "centers.npy")
    )
    sizes = np.array(load_array(folder / "branch_sizes.npy", ndim=1, dtypes=("int64",)))
    fits = branches.shape == (len(sizes), width) and centers.shape[1] == width and len(sizes) > 0
    if not (fits and sizes.min() >= 1 and sizes.max() <= len(centers) and sizes.sum() == len(centers)):
        raise ModelFormatError(f"{folder / 'branch_sizes.npy'}: does not fit the other files; fit the model again.")
    if not (np.isfinite(branches).all() and np.isfinite(centers).all()):
        raise ModelFormatError(f"{folder / 'centers.npy'}: holds values that are no numbers; fit the model again.")
    return CenterTree(branches, centers, sizes)

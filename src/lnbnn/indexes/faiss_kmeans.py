"""FAISS k-means: centers of vectors (lists of an index, words of a codebook) in one level or two; those nearest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import faiss
import numpy as np
from numpy.typing import NDArray

from lnbnn.indexes.free_memory import check_free

__all__ = [
    "CenterTree",
    "check_memory",
    "grow_tree",
    "kmeans_centers",
    "nearest_centers",
    "one_thread",
    "tree_quantizer",
]

# Measured: what the threads of FAISS reserve, though they use little of it.
_ADDRESS_BYTES = 128 << 20
_ADDRESS_BYTES_PER_THREAD = 192 << 20

# Branches of a tree looked into for each vector that is added: as good as 4 for the neighbors found later, and the
# larger part of the time that building takes.
_BRANCHES_TO_ADD = 2


def kmeans_centers(
    vectors: NDArray[np.float32],
    n_centers: int,
    *,
    n_iterations: int,
    seed: int,
    whole_numbers: bool = False,
    max_vectors_per_center: int = 256,
) -> NDArray[np.float32]:
    """Centers that lower the sum of squared distances from each vector to its nearest center (Lloyd's algorithm).

    Parameters
    ----------
    vectors : ndarray of shape (n_vectors, d)
    n_centers : int
        At most ``n_vectors``; as many centers as vectors are the vectors themselves.
    n_iterations : int
        Rounds of assigning the vectors and averaging those of a center.
    seed : int
        Of the first centers, and of the choice of vectors when there are too many.
    whole_numbers : bool, default=False
        Round the centers to whole numbers after each round. With vectors of whole numbers up to 255 all distances are
        then exact, and the centers are the same for any number of threads, so that all cores are used. Otherwise one
        thread does the work, for the same reason.
    max_vectors_per_center : int, default=256
        With more vectors than this times ``n_centers``, a random choice of so many is used.

    Returns
    -------
    ndarray of shape (n_centers, d)

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[0, 0], [0, 2], [9, 9], [9, 7]], np.float32)
    >>> sorted(kmeans_centers(points, 2, n_iterations=5, seed=0).tolist())
    [[0.0, 1.0], [9.0, 8.0]]
    """
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        n_centers,
        niter=n_iterations,
        seed=seed,
        int_centroids=whole_numbers,
        min_points_per_centroid=1,
        max_points_per_centroid=max_vectors_per_center,
    )
    with nullcontext() if whole_numbers else one_thread():
        kmeans.train(np.ascontiguousarray(vectors, np.float32))
    return np.asarray(kmeans.centroids, np.float32)


def nearest_centers(
    vectors: NDArray[np.float32], centers: NDArray[np.float32], n_nearest: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The ``n_nearest`` centers of each vector by comparing with all of them, nearest first; the work of one thread.

    Returns
    -------
    squared : ndarray of shape (n_vectors, n_nearest)
        Squared distances, computed as ``|x|^2 - 2 x.c + |c|^2``: exact for whole numbers up to 255 in up to 128
        dimensions, as float32 holds every sum.
    rows : ndarray of shape (n_vectors, n_nearest)
        The rows of these centers; of equal distances the lower row first.
    """
    index = faiss.IndexFlatL2(centers.shape[1])
    index.add(np.ascontiguousarray(centers, np.float32))
    with one_thread():
        squared, rows = index.search(np.ascontiguousarray(vectors, np.float32), n_nearest)
    return np.maximum(squared, 0.0), rows


def check_memory(what: str, n_bytes: int) -> None:
    """Raise :class:`~lnbnn.errors.LnbnnError` unless there is memory to train on so many bytes, copies included."""
    reserved = _ADDRESS_BYTES + faiss.omp_get_max_threads() * _ADDRESS_BYTES_PER_THREAD
    check_free(what, n_bytes, n_bytes + reserved)


@contextmanager
def one_thread() -> Iterator[None]:
    """FAISS on one thread for the calling thread: images are worked on side by side instead."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@dataclass(frozen=True, eq=False)
class CenterTree:
    """Centers of lists, those of one branch side by side.

    Parameters
    ----------
    branches : ndarray of shape (n_branches, d), float32
        The centers of the first level.
    centers : ndarray of shape (n_centers, d), float32
        The centers of the second level, branch after branch.
    sizes : ndarray of shape (n_branches,), int64
        How many centers each branch has, at least 1.
    """

    branches: NDArray[np.float32]
    centers: NDArray[np.float32]
    sizes: NDArray[np.int64]


def grow_tree(vectors: NDArray[np.float32], n_centers: int, *, seed: int, whole_numbers: bool) -> CenterTree:
    """K-means in two levels: the square root of ``n_centers`` branches, each split in proportion to its vectors.

    For whole-number vectors (see :func:`kmeans_centers`) the tree is the same for any
    number of threads on all cores; for others, one thread grows it.
    """
    kmeans = partial(kmeans_centers, n_iterations=8, seed=seed, whole_numbers=whole_numbers)
    branches = kmeans(vectors, max(1, round(math.sqrt(n_centers))))
    branch_of = nearest_centers(vectors, branches, 1)[1][:, 0]
    counts = np.bincount(branch_of, minlength=len(branches))
    sizes = np.diff(np.rint(np.cumsum(counts) * (n_centers / len(vectors))).astype(np.int64), prepend=0)
    used = np.flatnonzero(sizes)
    parts = [kmeans(vectors[branch_of == branch], int(sizes[branch])) for branch in used]
    return CenterTree(branches[used], np.concatenate(parts), sizes[used])


def tree_quantizer(tree: CenterTree) -> faiss.IndexIVFFlat:
    """The tree as FAISS asks for it: an index of the centers, whose inverted lists are the branches."""
    n_dims = tree.branches.shape[1]
    branches = faiss.IndexFlatL2(n_dims)
    branches.add(np.ascontiguousarray(tree.branches))
    quantizer = faiss.IndexIVFFlat(branches, n_dims, len(tree.branches))
    branches.this.disown()
    quantizer.own_fields = True
    quantizer.is_trained = True
    ends = np.cumsum(tree.sizes)
    for branch, (end, size) in enumerate(zip(ends.tolist(), tree.sizes.tolist(), strict=True)):
        ids = np.arange(end - size, end, dtype=np.int64)
        rows = np.ascontiguousarray(tree.centers[end - size : end], np.float32)
        quantizer.invlists.add_entries(branch, size, faiss.swig_ptr(ids), faiss.swig_ptr(rows.view(np.uint8)))
    quantizer.ntotal = len(tree.centers)
    quantizer.nprobe = _BRANCHES_TO_ADD
    return quantizer

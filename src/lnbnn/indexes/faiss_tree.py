"""Centers in two levels: each of a few branches has centers of its own, so that finding near ones costs little."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import faiss
import numpy as np
from numpy.typing import NDArray

from lnbnn.indexes.faiss_kmeans import kmeans_centers, nearest_centers

__all__ = ["BRANCHES_TO_ADD", "CenterTree", "grow_tree", "tree_quantizer"]

BRANCHES_TO_ADD = 2
"""Branches of the tree looked into for each vector that is added: as good as 4 for the neighbours found later, and the
larger part of the time that building takes."""


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

    For whole-number vectors (see :func:`~lnbnn.indexes.faiss_kmeans.kmeans_centers`) the tree is the same for any
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
    quantizer.nprobe = BRANCHES_TO_ADD
    return quantizer

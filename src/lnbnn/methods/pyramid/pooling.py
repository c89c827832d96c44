"""Pooling: the codes of an image's descriptors, gathered in the cells of a spatial pyramid, as one vector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lnbnn.compiled import compiled
from lnbnn.methods.pyramid.codebook import Codes

__all__ = ["NORMS", "POOLINGS", "cells_of", "level_weights", "n_cells", "normalize", "pool"]

POOLINGS = ("average", "max")
NORMS = ("l1", "l2", "none")


def n_cells(n_levels: int) -> int:
    """Cells of a pyramid: 1 + 4 + 16 = 21 with three levels."""
    return (4**n_levels - 1) // 3


def cells_of(xy: NDArray[np.float32], level: int) -> NDArray[np.int64]:
    """The cell of each place on a level of 2^level x 2^level cells, row by row; the far border is in the last cell."""
    side = 1 << level
    columns, rows = np.minimum((xy * np.float32(side)).astype(np.int64), side - 1).T
    return rows * side + columns


def level_weights(n_levels: int) -> NDArray[np.float32]:
    """Weights of the levels, coarsest first, of pyramid matching: 1/4, 1/4, 1/2 for three levels.

    Notes
    -----
    With L the finest level, ``w_0 = 1 / 2^L`` and ``w_l = 1 / 2^(L - l + 1)``: a match in a small cell counts more
    (Lazebnik et al. 2006, Equation 3).
    """
    finest = n_levels - 1
    return np.array([2.0**-finest] + [2.0 ** (level - finest - 1) for level in range(1, n_levels)], np.float32)


def pool(
    codes: Codes,
    xy: NDArray[np.float32],
    *,
    pooling: str,
    n_levels: int,
    weights: Sequence[float] | NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """The pyramid of an image.

    Parameters
    ----------
    codes : Codes
        Codes of the descriptors, at least one.
    xy : ndarray of shape (n_descriptors, 2)
        Their places as fractions of the image's width and height.
    pooling : {"average", "max"}
        ``average``: the sum of a word's weights in a cell, divided by the number of descriptors in the image.
        ``max``: the largest of a word's weights in a cell.
    n_levels : int
        Levels of 1 x 1, 2 x 2, 4 x 4, ... cells.
    weights : sequence of float, optional
        What each level is multiplied by; by default 1.

    Returns
    -------
    ndarray of shape (n_cells(n_levels) * n_words,)
        Levels from the coarsest, cells row by row, words in the order of the codebook.

    Notes
    -----
    Only the finest level is pooled from the descriptors. A cell of a coarser one is the sum, or the largest, of its
    four cells.
    """
    side = 1 << (n_levels - 1)
    finest = _pool_cells(
        codes.words, codes.weights, cells_of(xy, n_levels - 1), side * side, codes.n_words, pooling == "max"
    )
    if pooling == "average":
        finest /= np.float32(len(xy))
    levels = [finest.reshape(side, side, codes.n_words)]
    while side > 1:
        side //= 2
        four = levels[-1].reshape(side, 2, side, 2, codes.n_words)
        levels.append(four.max(axis=(1, 3)) if pooling == "max" else four.sum(axis=(1, 3)))
    factors = np.ones(n_levels, np.float32) if weights is None else np.asarray(weights, np.float32)
    return np.concatenate([(level * factor).ravel() for level, factor in zip(levels[::-1], factors, strict=True)])


def normalize(pyramid: NDArray[np.float32], norm: str) -> NDArray[np.float32]:
    """A pyramid scaled to sum 1 ("l1") or to unit length ("l2"), or as it is ("none"); zeros stay zeros."""
    if norm == "none":
        return pyramid
    values = pyramid.astype(np.float64)
    size = values.sum() if norm == "l1" else np.sqrt((values * values).sum())
    return (values / size).astype(np.float32) if size > 0 else pyramid


@compiled()
def _pool_cells(words, weights, cells, n_cells, n_words, is_max):  # type: ignore[no-untyped-def]
    pooled = np.zeros((n_cells, n_words), np.float32)
    for row in range(words.shape[0]):
        of_cell = pooled[cells[row]]
        for place in range(words.shape[1]):
            word, weight = words[row, place], weights[row, place]
            of_cell[word] = max(of_cell[word], weight) if is_max else of_cell[word] + weight
    return pooled

"""Selecting the nearest few: compiled loops shared by the backends. Ties are broken by row number, lowest first."""

from __future__ import annotations

import numpy as np

from lnbnn.compiled import compiled, overload, types

__all__ = ["rerank", "select_smallest"]


@compiled
def _insert(best, best_rows, n_kept, distance, row):  # type: ignore[no-untyped-def]
    """Insert into arrays sorted by (distance, row) that hold ``n_kept`` entries; returns the new number of entries."""
    size = len(best)
    if n_kept == size:
        last = size - 1
        if distance > best[last] or (distance == best[last] and row > best_rows[last]):
            return n_kept
        n_kept = last
    place = n_kept
    while place > 0 and (distance < best[place - 1] or (distance == best[place - 1] and row < best_rows[place - 1])):
        best[place] = best[place - 1]
        best_rows[place] = best_rows[place - 1]
        place -= 1
    best[place] = distance
    best_rows[place] = row
    return n_kept + 1


@compiled
def select_smallest(squared, n_neighbors):  # type: ignore[no-untyped-def]
    """The smallest entries of each row of a matrix of distances, and their columns."""
    n_queries, n_rows = squared.shape
    distances = np.empty((n_queries, n_neighbors), np.float32)
    rows = np.empty((n_queries, n_neighbors), np.int64)
    best = np.empty(n_neighbors, squared.dtype)
    for query in range(n_queries):
        n_kept = 0
        for row in range(n_rows):
            value = squared[query, row]
            if n_kept < n_neighbors or value < best[n_neighbors - 1]:
                n_kept = _insert(best, rows[query], n_kept, value, row)
        for place in range(n_neighbors):
            distances[query, place] = best[place]
    return distances, rows


def _squared_distance(one, other):  # type: ignore[no-untyped-def]
    """Squared Euclidean distance of two rows: exact for 8-bit rows, compiled below."""
    raise NotImplementedError


@overload(_squared_distance, jit_options={"fastmath": True})  # sums of float rows in any order: vector instructions
def _compile_squared_distance(one, other):  # type: ignore[no-untyped-def]
    kind = np.int32 if other.dtype == types.uint8 else np.float32

    def squared_distance(one, other):  # type: ignore[no-untyped-def]
        total = kind(0)
        for d in range(len(one)):
            difference = kind(one[d]) - kind(other[d])
            total += kind(difference * difference)
        return np.float32(total)

    return squared_distance


@compiled
def rerank(queries, stored, added, candidates, n_neighbors):  # type: ignore[no-untyped-def]
    """Exact squared distances to candidate rows, of which the nearest are kept; (inf, -1) where too few.

    Row numbers count the stored vectors, then the added ones; -1, or a row that is not there, is no candidate.
    """
    n_queries, n_candidates = candidates.shape
    n_stored = len(stored)
    distances = np.empty((n_queries, n_neighbors), np.float32)
    rows = np.empty((n_queries, n_neighbors), np.int64)
    for query in range(n_queries):
        n_kept = 0
        for place in range(n_candidates):
            row = candidates[query, place]
            if row < 0 or row >= n_stored + len(added):
                continue
            if row < n_stored:
                distance = _squared_distance(queries[query], stored[row])
            else:
                distance = _squared_distance(queries[query], added[row - n_stored])
            n_kept = _insert(distances[query], rows[query], n_kept, distance, row)
        distances[query, n_kept:] = np.inf
        rows[query, n_kept:] = -1
    return distances, rows

"""Pooling: cells, levels and norms by hand, and against a loop over descriptors."""

from __future__ import annotations

import numpy as np
import pytest

from lnbnn.methods.pyramid.codebook import Codes
from lnbnn.methods.pyramid.pooling import cells_of, level_weights, n_cells, normalize, pool


def random_codes(n=200, n_nearest=3, n_words=7, seed=0):
    rng = np.random.default_rng(seed)
    words = np.array([rng.permutation(n_words)[:n_nearest] for _ in range(n)])
    xy = rng.uniform(0, 1, (n, 2)).astype(np.float32)
    return Codes(words, rng.dirichlet(np.ones(n_nearest), n).astype(np.float32), n_words), xy


def test_cells_by_hand():
    xy = np.array([[0, 0], [0.49, 0.1], [0.5, 0.1], [0.1, 0.5], [1, 1], [0.26, 0.74]], np.float32)
    assert cells_of(xy, 0).tolist() == [0, 0, 0, 0, 0, 0]
    assert cells_of(xy, 1).tolist() == [0, 0, 1, 2, 3, 2]
    assert cells_of(xy, 2).tolist() == [0, 1, 2, 8, 15, 9]
    assert [n_cells(n) for n in (1, 2, 3, 4)] == [1, 5, 21, 85]


def test_level_weights_by_hand():
    assert level_weights(3).tolist() == [0.25, 0.25, 0.5]
    assert level_weights(1).tolist() == [1.0]
    assert level_weights(4).tolist() == [0.125, 0.125, 0.25, 0.5]


def test_pyramid_by_hand():
    # Two words, two levels. Three descriptors: two in the top left cell, one in the bottom right.
    codes = Codes(np.array([[0, 1], [1, 0], [1, 0]]), np.array([[0.75, 0.25], [1, 0], [0.5, 0.5]], np.float32), 2)
    xy = np.array([[0.1, 0.1], [0.2, 0.4], [0.9, 0.8]], np.float32)
    # The whole: word 0 gets 0.75 + 0 + 0.5, word 1 gets 0.25 + 1 + 0.5; the cells: (0.75, 1.25), 0, 0, (0.5, 0.5).
    average = pool(codes, xy, pooling="average", n_levels=2)
    assert np.allclose(3 * average, [1.25, 1.75, 0.75, 1.25, 0, 0, 0, 0, 0.5, 0.5])
    largest = pool(codes, xy, pooling="max", n_levels=2)
    assert largest.tolist() == [0.75, 1.0, 0.75, 1.0, 0, 0, 0, 0, 0.5, 0.5]
    weighted = pool(codes, xy, pooling="max", n_levels=2, weights=[2.0, 4.0])
    assert weighted.tolist() == [1.5, 2.0, 3.0, 4.0, 0, 0, 0, 0, 2.0, 2.0]


@pytest.mark.parametrize("pooling", ["average", "max"])
@pytest.mark.parametrize("n_levels", [1, 2, 3, 4])
def test_pyramid_equals_a_loop(pooling, n_levels):
    codes, xy = random_codes()
    weights = level_weights(n_levels)
    expected = []
    for level in range(n_levels):
        side = 2**level
        for row in range(side):
            for column in range(side):
                cell = np.zeros(codes.n_words)
                for place in range(len(xy)):
                    x, y = float(xy[place, 0]), float(xy[place, 1])
                    if min(int(x * side), side - 1) == column and min(int(y * side), side - 1) == row:
                        for word, weight in zip(codes.words[place], codes.weights[place], strict=True):
                            cell[word] = max(cell[word], weight) if pooling == "max" else cell[word] + weight / len(xy)
                expected.append(weights[level] * cell)
    found = pool(codes, xy, pooling=pooling, n_levels=n_levels, weights=weights)
    assert found.dtype == np.float32
    assert np.allclose(found, np.concatenate(expected), rtol=1e-5, atol=1e-7)


def test_average_pyramid_with_level_weights_sums_to_one():
    codes, xy = random_codes()
    assert pool(codes, xy, pooling="average", n_levels=3, weights=level_weights(3)).sum() == pytest.approx(
        1.0, rel=1e-5
    )


def test_order_of_the_descriptors_does_not_matter_to_max():
    codes, xy = random_codes()
    order = np.random.default_rng(1).permutation(len(xy))
    turned = Codes(codes.words[order], codes.weights[order], codes.n_words)
    assert np.array_equal(
        pool(turned, xy[order], pooling="max", n_levels=3), pool(codes, xy, pooling="max", n_levels=3)
    )


def test_norms_by_hand():
    pyramid = np.array([3, 0, 4], np.float32)
    assert np.allclose(normalize(pyramid, "l1"), [3 / 7, 0, 4 / 7])
    assert np.allclose(normalize(pyramid, "l2"), [0.6, 0, 0.8])
    assert normalize(pyramid, "none").tolist() == [3, 0, 4]
    assert pyramid.tolist() == [3, 0, 4]
    for norm in ("l1", "l2", "none"):
        assert normalize(np.zeros(3, np.float32), norm).tolist() == [0, 0, 0]

"""Codes: by hand, and against the formula written as a loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from synthetic import clustered_vectors

from lnbnn.methods.pyramid.codebook import Codebook
from lnbnn.methods.pyramid.coding import hard_codes, local_soft_codes, soft_weights


def unit_codebook(words):
    return Codebook(np.array(words, np.float32), np.dtype(np.float32))


def test_hard_codes_by_hand():
    codebook = unit_codebook([[0, 0], [1, 0], [0, 1]])
    codes = hard_codes(np.array([[0.9, 0.2], [0.1, 0.1]], np.float32), codebook)
    assert codes.words.tolist() == [[1], [0]]
    assert codes.weights.tolist() == [[1.0], [1.0]]
    assert codes.n_words == 3


def test_soft_codes_by_hand():
    # Words 0, 1, 3 and 10 on a line, x = 1: squared distances 1, 0, 4, 81. The three nearest are 1, 0, 3. With
    # beta = ln 2 the shares are 2^-0, 2^-1, 2^-4 = 16/16, 8/16, 1/16, of a sum of 25/16: 16/25, 8/25, 1/25.
    codebook = unit_codebook([[0], [1], [3], [10]])
    codes = local_soft_codes(np.array([[1.0]], np.float32), codebook, n_nearest=3, beta=math.log(2))
    assert codes.words.tolist() == [[1, 0, 2]]
    assert np.allclose(codes.weights, [[16 / 25, 8 / 25, 1 / 25]], rtol=1e-6)


def test_soft_codes_equal_a_loop():
    words = clustered_vectors(25, 12, seed=1).astype(np.float32)
    descriptors = clustered_vectors(60, 12, seed=2)
    beta, n_nearest = 0.7, 5
    codes = local_soft_codes(descriptors, Codebook(words, np.dtype(np.uint8)), n_nearest=n_nearest, beta=beta)
    for row, descriptor in enumerate(descriptors.astype(float) / 127):
        squared = [sum((a - b) ** 2 for a, b in zip(descriptor, word, strict=True)) for word in words / 127.0]
        nearest = sorted(range(25), key=lambda place: squared[place])[:n_nearest]
        shares = {place: math.exp(-beta * squared[place]) for place in nearest}
        expected = [shares[place] / sum(shares.values()) for place in nearest]
        assert codes.words[row].tolist() == nearest
        assert np.allclose(codes.weights[row], expected, rtol=1e-4, atol=1e-7)


def test_one_nearest_word_is_hard_assignment():
    codebook = Codebook(clustered_vectors(25, 12, seed=1).astype(np.float32), np.dtype(np.uint8))
    descriptors = clustered_vectors(60, 12, seed=2)
    hard, soft = hard_codes(descriptors, codebook), local_soft_codes(descriptors, codebook, n_nearest=1, beta=5.0)
    assert np.array_equal(hard.words, soft.words)
    assert np.array_equal(hard.weights, soft.weights)


@pytest.mark.parametrize("beta", [1e-6, 1.0, 1e6])
def test_weights_fall_and_sum_to_one(beta):
    squared = np.sort(np.random.default_rng(0).uniform(0, 4, (50, 10)), axis=1).astype(np.float32)
    weights = soft_weights(squared, beta)
    assert weights.dtype == np.float32
    assert np.allclose(weights.sum(axis=1), 1.0)
    assert (np.diff(weights, axis=1) <= 0).all()


def test_far_words_and_large_beta_stay_finite():
    assert soft_weights(np.array([[1e6, 2e6]], np.float32), 1e3).tolist() == [[1.0, 0.0]]


def test_fewer_words_than_asked_for():
    codes = local_soft_codes(np.array([[1.0]], np.float32), unit_codebook([[0], [1], [3]]), n_nearest=10, beta=1.0)
    assert codes.words.shape == (1, 3)

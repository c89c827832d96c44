"""The codebook: an even sample, words, the words nearest to a descriptor, and its codes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from synthetic import clustered_vectors, make_features

from lnbnn.errors import InvalidInputError
from lnbnn.methods.pyramid import codebook as module
from lnbnn.methods.pyramid.codebook import Codebook, sample_descriptors, soft_weights


def images(*sizes, n_dims=8):
    return [make_features(clustered_vectors(n, n_dims, seed=seed)) for seed, n in enumerate(sizes)]


def make_codebook(features, n_words, seed=0):
    return module.make_codebook(features, n_words, n_samples=100_000, seed=seed)


def test_assign_by_hand():
    # Words (0, 0), (127, 0), (0, 127). For x = (100, 20):
    #   10000 + 400 = 10400,   27^2 + 400 = 1129,   10000 + 107^2 = 21449;   in unit vectors divided by 127^2.
    codebook = Codebook(np.array([[0, 0], [127, 0], [0, 127]], np.float32), np.dtype(np.uint8))
    squared, words = codebook.assign(np.array([[100, 20]], np.uint8), 3)
    assert words.tolist() == [[1, 0, 2]]
    assert np.allclose(squared * 127**2, [[1129, 10400, 21449]], rtol=1e-6)
    _, nearest = codebook.assign(np.array([[100, 20], [1, 9]], np.uint8))
    assert nearest.tolist() == [[1], [0]]


def test_equal_distances_go_to_the_first_word():
    codebook = Codebook(np.array([[4, 0], [0, 0], [2, 2]], np.float32), np.dtype(np.uint8))
    for n in (1, 100):  # FAISS has one way for few and one for many
        assert codebook.assign(np.array([[2, 0]] * n, np.uint8), 3)[1].tolist() == [[0, 1, 2]] * n
        assert codebook.assign(np.array([[2, 0]] * n, np.uint8))[1].tolist() == [[0]] * n


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_assign_equals_a_loop(dtype):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 200, (30, 12)).astype(np.float32)
    descriptors = rng.integers(0, 200, (700, 12)).astype(dtype)
    squared, nearest = Codebook(words, np.dtype(dtype)).assign(descriptors, 4)
    unit = 127.0**2 if dtype is np.uint8 else 1.0
    for row, descriptor in enumerate(descriptors.astype(float)):
        distances = [((descriptor - word) ** 2).sum() / unit for word in words.astype(float)]
        order = np.argsort(distances, kind="stable")[:4]
        assert nearest[row].tolist() == order.tolist()
        assert np.allclose(squared[row], np.array(distances)[order], rtol=1e-6)


def test_distance_to_itself_is_zero():
    words = np.random.default_rng(1).normal(size=(20, 16)).astype(np.float32)
    squared, nearest = Codebook(words, np.dtype(np.float32)).assign(words)
    assert nearest[:, 0].tolist() == list(range(20))
    assert (squared >= 0).all()
    assert squared.max() < 1e-4


def test_wrong_descriptors_are_refused():
    codebook = make_codebook(images(50), 4)
    for wrong in (np.zeros((3, 8), np.float32), np.zeros((3, 9), np.uint8)):
        with pytest.raises(InvalidInputError, match=r"queries must be uint8 of shape \(n, 8\)"):
            codebook.assign(wrong)


def test_sample_is_even_and_seeded():
    features = images(100, 60, 5)
    sample = sample_descriptors(features, 60, seed=0)
    assert sample.shape == (20 + 20 + 5, 8)
    for start, stop, image in ((0, 20, features[0]), (20, 40, features[1]), (40, 45, features[2])):
        own = {tuple(row) for row in image.descriptors.tolist()}
        assert {tuple(row) for row in sample[start:stop].tolist()} <= own
    assert np.array_equal(sample, sample_descriptors(features, 60, seed=0))
    assert not np.array_equal(sample, sample_descriptors(features, 60, seed=1))
    assert len(sample_descriptors(features, 10_000, seed=0)) == 165


def test_mixed_descriptors_are_refused():
    with pytest.raises(InvalidInputError, match="one type and length; got uint8 of length 8, uint8 of length 9"):
        sample_descriptors([*images(5), *images(5, n_dims=9)], 10, seed=0)


def test_words_of_8_bit_descriptors_are_whole_numbers():
    codebook = make_codebook(images(300, 200), 20)
    assert len(codebook) == 20
    assert codebook.dtype == np.uint8
    assert np.array_equal(codebook.words, np.rint(codebook.words))
    as_float = [make_features(image.descriptors.astype(np.float32)) for image in images(300, 200)]
    assert make_codebook(as_float, 20).dtype == np.float32


def test_words_find_the_clusters():
    # Of 60 words around 20 clusters each cluster gets some: the nearest word is about as near as the cluster's center.
    new = clustered_vectors(200, 8, seed=9)
    centers = np.random.default_rng(12345).uniform(20, 200, (20, 8)).astype(np.float32)  # those of clustered_vectors
    found, best = make_codebook(images(600, 600), 60), Codebook(centers, np.dtype(np.uint8))
    assert found.assign(new)[0].mean() < 1.2 * best.assign(new)[0].mean()


@pytest.mark.parametrize("seed", [0, 5, (1 << 32) - 1])
def test_fewer_descriptors_than_words(seed):
    assert len(make_codebook(images(6, 5), 1024, seed=seed)) == 11


def unit_codebook(words):
    return Codebook(np.array(words, np.float32), np.dtype(np.float32))


def test_hard_codes_by_hand():
    codebook = unit_codebook([[0, 0], [1, 0], [0, 1]])
    codes = codebook.codes(np.array([[0.9, 0.2], [0.1, 0.1]], np.float32), 1, 5.0)
    assert codes.words.tolist() == [[1], [0]]
    assert codes.weights.tolist() == [[1.0], [1.0]]
    assert codes.n_words == 3


def test_soft_codes_by_hand():
    # Words 0, 1, 3 and 10 on a line, x = 1: squared distances 1, 0, 4, 81. The three nearest are 1, 0, 3. With
    # beta = ln 2 the shares are 2^-0, 2^-1, 2^-4 = 16/16, 8/16, 1/16, of a sum of 25/16: 16/25, 8/25, 1/25.
    codebook = unit_codebook([[0], [1], [3], [10]])
    codes = codebook.codes(np.array([[1.0]], np.float32), 3, math.log(2))
    assert codes.words.tolist() == [[1, 0, 2]]
    assert np.allclose(codes.weights, [[16 / 25, 8 / 25, 1 / 25]], rtol=1e-6)


def test_soft_codes_equal_a_loop():
    words = clustered_vectors(25, 12, seed=1).astype(np.float32)
    descriptors = clustered_vectors(60, 12, seed=2)
    beta, n_nearest = 0.7, 5
    codes = Codebook(words, np.dtype(np.uint8)).codes(descriptors, n_nearest, beta)
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
    codes = codebook.codes(descriptors, 1, 5.0)
    assert np.array_equal(codes.words, codebook.assign(descriptors)[1])
    assert (codes.weights == 1.0).all()


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
    codes = unit_codebook([[0], [1], [3]]).codes(np.array([[1.0]], np.float32), 10, 1.0)
    assert codes.words.shape == (1, 3)

"""Spatially Local Coding: codes worked by hand, and evidence that sums to the score."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from test_coded_ridge import a_set, image

from lnbnn import ImageFeatures
from lnbnn.classifiers.local_coding import SpatiallyLocalCoding
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.methods.local_coding import LocalCoding, with_location
from lnbnn.methods.pyramid.codebook import Codebook


def quick(**changes):
    return SpatiallyLocalCoding(**{"n_words": 6, "n_nearest_words": 3, "alpha": 0.1, "n_jobs": 1, **changes})


def by_hand():
    """Words 0 and 127 on a line, without place; (0, x=0, y=0) and (0, x=127, y=0) with the place at weight 1."""
    settings = SimpleNamespace(
        location_weights=[0.0, 1.0], n_levels=1, max_descriptors=None, n_nearest_words=2, beta=math.log(3.0)
    )
    method = LocalCoding(settings)
    method.codebooks = [
        Codebook(np.array(words, np.float32), np.dtype(np.float32))
        for words in ([[0], [127]], [[0, 0, 0], [0, 127, 0]])
    ]
    return method


def test_codes_by_hand():
    # beta = log 3, so a share falls to a third per unit of squared distance. Descriptors 0 and 127 at (0, 0), (1, 0).
    # Without place: distances (0, 1) and (1, 0): shares (3/4, 1/4) and (1/4, 3/4); the largest are (3/4, 3/4).
    # With it, the first: (0, 1), shares (3/4, 1/4). The second: (2, 1), shares (1/4, 3/4).
    features = ImageFeatures(np.array([[0], [127]], np.uint8), [[0, 0], [1, 0]], [16, 16], (10, 10))
    without, with_place = by_hand().codes(features)
    assert without.words.tolist() == [[0, 1], [1, 0]]
    assert np.allclose(without.weights, [[0.75, 0.25], [0.75, 0.25]])
    assert with_place.words.tolist() == [[0, 1], [1, 0]]
    assert np.allclose(with_place.weights, [[0.75, 0.25], [0.75, 0.25]])
    assert np.allclose(by_hand().vector_of(features), [0.5, 0.5, 0.5, 0.5], atol=1e-6)


def test_the_place_changes_the_codes_with_a_weight_only():
    # One descriptor 0. At (0, 0) the words with place are at distances (0, 1), at (1/2, 0) both at 1/4 (63.5 -> 64).
    # sizes: (3/4, 1/4, 3/4, 1/4) has the length sqrt(20)/4; (3/4, 1/4, 1/2, 1/2) the length sqrt(18)/4
    vectors = [
        by_hand().vector_of(ImageFeatures(np.array([[0]], np.uint8), [[x, 0]], [16], (10, 10))) for x in (0.0, 0.5)
    ]
    assert np.allclose(vectors[0], np.array([3, 1, 3, 1]) / math.sqrt(20), atol=1e-6)
    assert np.allclose(vectors[1], np.array([3, 1, 2, 2]) / math.sqrt(18), atol=5e-3)


def test_what_a_descriptor_adds_by_hand():
    # Descriptors 0 and 127 at one place (0, 0). Without place each is the strongest of its word, 3/4. With it both are
    # at equal distances of the words, less one: (0, 1) and (1, 2), shares (3/4, 1/4) of both: the first counts.
    method = by_hand()
    method.coef, method.intercept = np.array([[1.0, 10.0, 100.0, 1000.0]]), np.array([4.0])
    features = ImageFeatures(np.array([[0], [127]], np.uint8), [[0, 0], [0, 0]], [16, 16], (10, 10))
    length = math.sqrt(9 + 9 + 9 + 1)
    assert np.allclose(
        method.patch_scores(features), [[2 + (3 * 1 + 3 * 100 + 1 * 1000) / length], [2 + 3 * 10 / length]], atol=1e-2
    )


def test_cells_by_hand():
    # Two levels, place ignored: descriptor 0 in the upper left quarter, 127 in the lower right. The whole image has
    # (3/4, 3/4), its quarters (3/4, 1/4), nothing, nothing, (1/4, 3/4): length sqrt(18 + 20) / 4.
    method = by_hand()
    method.codebooks, method.settings.location_weights, method.settings.n_levels = method.codebooks[:1], [0.0], 2
    features = ImageFeatures(np.array([[0], [127]], np.uint8), [[0.1, 0.1], [0.9, 0.9]], [16, 16], (10, 10))
    expected = np.array([3, 3, 3, 1, 0, 0, 0, 0, 1, 3]) / math.sqrt(38)
    assert np.allclose(method.vector_of(features), expected, atol=1e-6)
    method.coef, method.intercept = 10.0 ** np.arange(10)[None], np.zeros(1)
    first = 3 + 3 * 10**2 + 10**3  # its word in the image, both words in its quarter
    second = 3 * 10 + 10**8 + 3 * 10**9
    assert np.allclose(method.patch_scores(features) * math.sqrt(38), [[first], [second]], rtol=1e-5)


@pytest.mark.parametrize("n_levels", [1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_scores_are_the_sum_of_what_each_patch_says(dtype, n_levels):
    images, labels = a_set(dtype=dtype)
    model = quick(n_levels=n_levels).fit(images, labels)
    patches = model.method_.patch_scores(model.method_.prepare(images[2], model.model_.normalizer))
    assert patches.shape == (12, 3)
    assert np.allclose(patches.sum(axis=0), model.decision_function(images[2:3])[0], atol=1e-12)


def test_an_even_choice_of_the_descriptors_is_coded():
    images, labels = a_set()
    model = quick(max_descriptors=4).fit(images, labels)
    assert model.method_.coded_rows(12).tolist() == [1, 4, 7, 10]
    assert model.method_.coded_rows(3).tolist() == [0, 1, 2]
    chosen = images[2].take(np.array([1, 4, 7, 10]))
    assert np.array_equal(model.decision_function([images[2]]), model.decision_function([chosen]))
    patches = model.method_.patch_scores(images[2])
    assert np.allclose(patches.sum(axis=0), model.decision_function(images[2:3])[0], atol=1e-12)
    assert np.allclose(patches[[0, 2, 3, 11]], model.method_.intercept / 12)  # they only share the intercept


def test_places_are_whole_numbers_beside_8_bits():
    features = ImageFeatures(np.array([[5, 6]], np.uint8), [[0.25, 1.0]], [16], (10, 10))
    assert with_location(features, 3.0).tolist() == [[5, 6, 95, 381]]  # 0.25 * 3 * 127 = 95.25
    assert with_location(features, 0.0).tolist() == [[5, 6]]
    floats = ImageFeatures(np.array([[5, 6]], np.float16), [[0.25, 1.0]], [16], (10, 10))
    assert with_location(floats, 3.0).tolist() == [[5, 6, 0.75, 3.0]]
    assert with_location(floats, 0.0).dtype == np.float32


def test_vectors_have_unit_length():
    images, labels = a_set()
    vectors = quick().fit(images, labels).method_.vectors
    assert vectors.shape == (12, 24)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_words": 0}, "n_words must be a whole number from 1"),
        ({"n_samples": 1.5}, "n_samples must be a whole number"),
        ({"n_nearest_words": 0}, "n_nearest_words must be a whole number"),
        ({"n_levels": 5}, "n_levels must be a whole number from 1 to 4; got 5"),
        ({"max_descriptors": 0}, "max_descriptors must be a whole number from 1"),
        ({"beta": -1}, "beta must be a number above 0; got -1"),
        ({"location_weights": []}, r"location_weights must be 1 to 16 numbers; got \[\]"),
        ({"location_weights": 1.5}, "location_weights must be 1 to 16 numbers; got 1.5"),
        ({"location_weights": (0, -1)}, "location_weights must be a number above 0; got -1"),
        ({"location_weights": (0, "x")}, "location_weights must be a number above 0; got 'x'"),
        ({"alpha": 0}, "alpha must be a number above 0; got 0"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        quick(**changes).fit(*a_set())


def test_other_descriptors_are_refused():
    images, labels = a_set()
    with pytest.raises(InvalidInputError, match="must be float32 of shape"):
        quick().fit(images, labels).predict([image(0, 0, n_dims=9)])


@pytest.mark.parametrize("wrong", [np.zeros((6, 9), "f4"), np.zeros((5, 8), "f4"), np.full((6, 8), np.nan, "f4")])
def test_damaged_words_are_refused(wrong, tmp_path):
    images, labels = a_set()
    method = quick().fit(images, labels).method_
    method.save(tmp_path)
    np.save(tmp_path / "words_0.npy", wrong)
    with pytest.raises(ModelFormatError, match="fit the model again"):
        LocalCoding(quick()).load(tmp_path, method.references)

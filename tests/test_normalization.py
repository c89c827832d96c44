"""What a model learns about float descriptors: by hand first, then its promises."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import make_features

from lnbnn.descriptors.normalization import Normalization, Normalizer, _product
from lnbnn.errors import InvalidInputError, ModelFormatError


def cells(*rows):
    return make_features(np.array(rows, np.float16))


def random_images(n=6, n_dims=5):
    rng = np.random.default_rng(3)
    turn = rng.normal(size=(n_dims, n_dims))
    return [make_features((rng.normal(size=(9, n_dims)) @ turn + 4).astype(np.float16)) for _ in range(n)]


def test_centered_and_scaled_to_unit_length_by_hand():
    # The mean of the four cells is (1, 2): what is left is (3, 4), (-3, -4), (0, 1), (0, -1).
    normalizer = Normalization(None, 0.0).learn([cells([4, 6], [-2, -2]), cells([1, 3], [1, 1])])
    assert normalizer.mean.tolist() == [1, 2]
    codes = normalizer.apply(cells([4, 6], [1, 3], [1, 2])).descriptors
    # 0.6 * 127 + 128 = 204.2; 0.8 * 127 + 128 = 229.6; a cell at the center has no direction.
    assert codes.tolist() == [[204, 230], [128, 255], [128, 128]]
    assert codes.dtype == np.uint8


def test_the_first_component_is_the_longest_direction():
    # Spread along (1, 1) only, about (0, 0): one component says it all, up to its sign.
    normalizer = Normalization(1, 0.0).learn([cells([1, 1], [-1, -1], [2, 2], [-2, -2])])
    codes = normalizer.apply(cells([3, 3], [-3, -3])).descriptors
    assert sorted(codes.ravel().tolist()) == [1, 255]


def test_whitening_gives_all_components_the_same_spread():
    images = random_images()
    everything = np.concatenate([image.descriptors for image in images]).astype(np.float64)
    for power, spread_is_equal in ((0.0, False), (1.0, True)):
        normalizer = Normalization(5, power).learn(images)
        spread = ((everything - normalizer.mean) @ normalizer.components).std(axis=0)
        assert np.allclose(spread, spread[0], rtol=1e-3) is spread_is_equal


def test_all_components_keep_the_distances():
    images = random_images()
    plain, turned = (Normalization(n, 0.0).learn(images) for n in (None, 5))
    a, b = (n.apply(images[0]).descriptors.astype(np.float64) for n in (plain, turned))
    expected, found = (((rows[:, None] - rows[None]) ** 2).sum(-1) / 127**2 for rows in (a, b))
    assert np.allclose(expected, found, atol=0.05)


def test_the_product_is_the_matrix_product():
    rng = np.random.default_rng(0)
    rows, matrix = rng.normal(size=(7, 33)).astype(np.float32), rng.normal(size=(33, 5)).astype(np.float32)
    assert np.allclose(_product(rows, matrix), rows @ matrix, atol=1e-5)


def test_codes_are_unit_vectors_of_127():
    for image in random_images():
        codes = Normalization(4, 0.0).learn(random_images()).apply(image).descriptors.astype(np.float64) - 128
        assert np.allclose(np.linalg.norm(codes, axis=1), 127, atol=1.5)


def test_the_order_of_the_images_does_not_matter():
    images = random_images()
    straight, reverse = (Normalization(3, 0.5).learn(given) for given in (images, images[::-1]))
    assert np.array_equal(straight.mean, reverse.mean)
    assert np.array_equal(straight.components, reverse.components)


def test_many_descriptors_are_learned_from_an_even_choice(monkeypatch):
    images = random_images(n=40)
    everything = Normalization(3, 0.0).learn(images)
    monkeypatch.setattr("lnbnn.descriptors.normalization._MAX_ROWS", 100)
    some, reverse = (Normalization(3, 0.0).learn(given) for given in (images, images[::-1]))
    assert np.array_equal(some.components, reverse.components)
    assert not np.array_equal(some.mean, everything.mean)
    assert np.abs(some.mean - everything.mean).max() < 1.0


def test_more_components_than_there_are():
    assert Normalization(99, 0.0).learn(random_images()).components.shape == (5, 5)
    assert Normalization(99, 0.0).learn([cells([1, 2, 3], [2, 3, 4])]).components.shape == (3, 2)


def test_constant_cells_have_no_direction():
    normalizer = Normalization(2, 1.0).learn([cells([1, 2], [1, 2])])
    assert normalizer.apply(cells([1, 2])).descriptors.tolist() == [[128, 128]]


def test_8_bit_descriptors_pass_as_they_are():
    features = make_features(np.full((2, 7), 9, np.uint8))
    assert Normalization(None, 0.0).learn(random_images()).apply(features) is features


def test_other_lengths_are_refused():
    normalizer = Normalization(2, 0.0).learn(random_images())
    with pytest.raises(InvalidInputError, match="must have the length 5, as those the model was fitted on; got 2"):
        normalizer.apply(cells([1, 2]))
    with pytest.raises(InvalidInputError, match="must all have the same length; got 1, 2"):
        Normalization(2, 0.0).learn([cells([1, 2]), cells([1])])


@pytest.mark.parametrize("n_components", [None, 3])
def test_round_trip(tmp_path, n_components):
    normalizer = Normalization(n_components, 0.0).learn(random_images())
    normalizer.save(tmp_path)
    again = Normalizer.load(tmp_path)
    image = random_images()[0]
    assert np.array_equal(again.apply(image).descriptors, normalizer.apply(image).descriptors)
    assert again.nbytes == normalizer.nbytes


def test_a_folder_without_one(tmp_path):
    assert Normalizer.load(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("normalizer_mean.npy", np.array([np.nan] * 5, np.float32)),
        ("normalizer_mean.npy", np.array([0.0] * 4, np.float32)),
        ("normalizer_mean.npy", np.zeros(5)),
        ("normalizer_components.npy", np.full((5, 3), np.inf, np.float32)),
    ],
)
def test_damaged_arrays_are_refused(tmp_path, name, array):
    Normalization(3, 0.0).learn(random_images()).save(tmp_path)
    np.save(tmp_path / name, array)
    with pytest.raises(ModelFormatError, match="normalizer_"):
        Normalizer.load(tmp_path)

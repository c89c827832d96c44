"""ImageFeatures: checked once, read-only afterwards; place and size of a patch are three more dimensions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from synthetic import make_features

from lnbnn import ImageFeatures
from lnbnn.errors import InvalidInputError
from lnbnn.features import MAX_LOCATION_WEIGHT, MAX_SCALE_WEIGHT, append_location, check_weight


def valid(**changes):
    arguments = {
        "descriptors": np.arange(12, dtype=np.uint8).reshape(3, 4),
        "xy": np.array([[0.0, 0.0], [0.5, 0.25], [1.0, 1.0]]),
        "scale": np.array([16, 24, 36]),
        "size": (300, 200),
    }
    return {**arguments, **changes}


def test_keeps_what_it_is_given():
    features = ImageFeatures(**valid())
    assert len(features) == 3
    assert features.n_dims == 4
    assert features.size == (300, 200)
    assert features.descriptors.dtype == np.uint8
    assert features.xy.dtype == features.scale.dtype == np.float32
    assert features.descriptors.tolist() == valid()["descriptors"].tolist()
    assert features.xy.tolist() == valid()["xy"].tolist()


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint16])
def test_other_numbers_become_float32(dtype):
    features = ImageFeatures(**valid(descriptors=np.array([[1, 2], [3, 4], [5, 6]], dtype)))
    assert features.descriptors.dtype == np.float32
    assert features.descriptors.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_16_bit_floats_stay_as_they_are():
    features = ImageFeatures(**valid(descriptors=np.array([[1, 2], [3, 4], [5, 6]], np.float16)))
    assert features.descriptors.dtype == np.float16
    with pytest.raises(InvalidInputError, match="must be finite"):
        ImageFeatures(**valid(descriptors=np.array([[1, 2], [3, np.inf], [5, 6]], np.float16)))


def test_lists_are_taken():
    features = ImageFeatures([[1.5, 2.0]], [[0.5, 0.5]], [16], [30, 20])
    assert features.descriptors.tolist() == [[1.5, 2.0]]
    assert features.size == (30, 20)


def test_no_descriptors_are_valid():
    features = ImageFeatures(np.empty((0, 128), np.uint8), np.empty((0, 2)), np.empty(0), (5, 5))
    assert len(features) == 0
    assert features.n_dims == 128


def test_arrays_and_fields_are_read_only():
    features = ImageFeatures(**valid())
    for array in (features.descriptors, features.xy, features.scale):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        features.size = (1, 1)


def test_the_callers_arrays_stay_writable():
    arguments = valid()
    ImageFeatures(**arguments)
    assert arguments["descriptors"].flags.writeable


def test_take():
    features = ImageFeatures(**valid()).take(np.array([2, 0]))
    assert features.descriptors.tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    assert features.xy.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert features.scale.tolist() == [36, 16]
    assert features.size == (300, 200)
    assert len(features.take(np.array([], np.intp))) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"descriptors": np.zeros(4)}, r"descriptors must have shape \(n_descriptors, d\).*got \(4,\)"),
        ({"descriptors": np.zeros((3, 0))}, "d at least 1"),
        ({"descriptors": np.zeros((3, 2, 2))}, "descriptors must have shape"),
        ({"descriptors": np.array([["a"], ["b"], ["c"]])}, "descriptors must be numbers; got dtype <U1"),
        ({"descriptors": np.full((3, 2), np.nan)}, "descriptors must be finite"),
        ({"descriptors": np.full((3, 2), np.inf)}, "descriptors must be finite"),
        ({"xy": np.zeros((2, 2))}, r"shapes \(3, 2\) and \(3,\), one row per descriptor; got \(2, 2\)"),
        ({"xy": np.zeros((3, 3))}, "one row per descriptor"),
        ({"scale": np.zeros((3, 1))}, r"got \(3, 2\) and \(3, 1\)"),
        ({"xy": np.full((3, 2), 1.01)}, r"fractions of width and height in \[0, 1\]"),
        ({"xy": np.full((3, 2), -0.01)}, "fractions"),
        ({"xy": np.full((3, 2), np.nan)}, "fractions"),
        ({"scale": np.full(3, np.inf)}, "scale finite"),
        ({"size": (0, 10)}, r"size must be \(width, height\) in pixels, both at least 1; got \(0, 10\)"),
        ({"size": (10, -1)}, "both at least 1"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        ImageFeatures(**valid(**changes))


# ---- location and size -----------------------------------------------------------------------------------------------


def features_at(xy, descriptors):
    return ImageFeatures(descriptors, xy, np.full(len(descriptors), 16), (300, 200))


def test_8_bit_locations_by_hand():
    # int(fraction * 127 * 1.6 + 0.5):  0 -> 0;  0.5 -> int(102.1) = 102;  1 -> int(203.7) = 203;  0.25 -> 51
    features = features_at([[0.0, 0.5], [1.0, 0.25]], np.array([[1, 2], [3, 4]], np.uint8))
    vectors = append_location(features, 1.6)
    assert vectors.dtype == np.uint8
    assert vectors.tolist() == [[1, 2, 0, 102], [3, 4, 203, 51]]


def test_float_locations_keep_their_unit():
    features = features_at([[0.5, 0.25]], np.array([[0.1, 0.2]], np.float32))
    vectors = append_location(features, 1.6)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, [[0.1, 0.2, 0.8, 0.4]])


def test_one_distance_is_the_sum_of_both():
    rng = np.random.default_rng(0)
    features = features_at(rng.uniform(0, 1, (2, 2)), rng.normal(size=(2, 8)).astype(np.float32))
    first, second = append_location(features, 1.3)
    appearance = ((features.descriptors[0] - features.descriptors[1]) ** 2).sum()
    place = ((features.xy[0] - features.xy[1]) ** 2).sum()
    assert np.isclose(((first - second) ** 2).sum(), appearance + 1.3**2 * place, rtol=1e-5)


def sized(scale, dtype=np.uint8):
    """Patches of these sides at (0.5, 0.25) of an image of 300 x 200 pixels."""
    n = len(scale)
    return ImageFeatures(np.full((n, 1), 7, dtype), np.tile([0.5, 0.25], (n, 1)), np.array(scale), (300, 200))


def test_8_bit_octaves_by_hand():
    # 300 -> 0 halvings; 75 -> 2, int(2 * 0.25 * 127 + 0.5) = 64; 16 -> log2(18.75) = 4.2288, int(134.76) = 134
    vectors = append_location(sized([300, 75, 16]), 1.6, 0.25)
    assert vectors.dtype == np.uint8
    assert vectors.tolist() == [[7, 0, 102, 51], [7, 64, 102, 51], [7, 134, 102, 51]]


@pytest.mark.parametrize("size", [(100, 50), (50, 100)])
def test_octaves_are_of_the_longest_side(size):
    features = ImageFeatures(np.zeros((1, 2), np.float32), [[0.5, 0.5]], [25.0], size)
    assert append_location(features, 0.0, 0.25).tolist() == [[0.0, 0.0, 0.5]]  # 100 / 25: two octaves


def test_float_octaves_keep_their_unit_and_need_no_location():
    vectors = append_location(sized([150, 75], np.float32), 0.0, 0.3)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, [[7, 0.3], [7, 0.6]])


def test_octaves_end_at_the_whole_image_and_at_five_halvings():
    # 600 px is larger than the image; 300 / 2**5 = 9.375; the largest weight of 5 octaves is int(0.4 * 5 * 127 + 0.5)
    vectors = append_location(sized([600, 9.375, 4, 0]), 0.0, MAX_SCALE_WEIGHT)
    assert vectors[:, 1].tolist() == [0, 254, 254, 254]


def test_weight_zero_leaves_the_descriptors_as_they_are():
    features = features_at([[0.5, 0.5]], np.array([[1, 2, 3]], np.uint8))
    assert append_location(features, 0.0).tolist() == [[1, 2, 3]]


def test_the_largest_weight_still_fits_8_bits():
    features = features_at([[1.0, 1.0]], np.zeros((1, 1), np.uint8))
    assert append_location(features, MAX_LOCATION_WEIGHT).tolist() == [[0, 254, 254]]


def test_no_descriptors():
    features = features_at(np.empty((0, 2)), np.empty((0, 128), np.uint8))
    assert append_location(features, 1.6).shape == (0, 130)


def test_features_are_not_changed():
    features = features_at([[0.5, 0.5]], np.array([[1, 2, 3]], np.uint8))
    append_location(features, 1.6)
    assert features.descriptors.tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("weight", [0, 0.5, 1.6, 2.0])
def test_good_weights(weight):
    check_weight("location_weight", weight)


@pytest.mark.parametrize("weight", [-0.1, 2.01, math.nan, math.inf])
def test_bad_weights(weight):
    with pytest.raises(InvalidInputError, match=f"location_weight must be from 0 .* to 2; got {weight}"):
        check_weight("location_weight", weight)


@pytest.mark.parametrize("weight", ["heavy", None])
def test_weights_that_are_no_numbers(weight):
    with pytest.raises(InvalidInputError, match="location_weight"):
        check_weight("location_weight", weight)


@pytest.mark.parametrize("weight", [0, 0.25, 0.4])
def test_good_scale_weights(weight):
    check_weight("scale_weight", weight)


@pytest.mark.parametrize("weight", [-0.1, 0.41, math.nan, "heavy"])
def test_bad_scale_weights(weight):
    with pytest.raises(InvalidInputError, match=f"scale_weight must be from 0 .size ignored. to 0.4; got {weight!r}"):
        check_weight("scale_weight", weight)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_16_bit_floats_become_32(weight):
    found = append_location(make_features(np.array([[1, 2], [3, 4]], np.float16)), weight)
    assert found.dtype == np.float32
    assert found[:, :2].tolist() == [[1, 2], [3, 4]]

"""ImageFeatures: checked once, read-only afterwards."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lnbnn import ImageFeatures
from lnbnn.errors import InvalidInputError


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
        ({"xy": np.zeros((2, 2))}, r"shapes \(3, 2\) and \(3,\), one row a descriptor; got \(2, 2\)"),
        ({"xy": np.zeros((3, 3))}, "one row a descriptor"),
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

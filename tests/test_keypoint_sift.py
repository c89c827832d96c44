"""SIFT at keypoints: found again when a picture is turned or shrunk."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from synthetic import flat_image, noise_image

from lnbnn.descriptors.keypoint_sift import KeypointSIFT
from lnbnn.errors import InvalidInputError


def blobs(side=200, seed=0):
    """Smooth random blobs: keypoints of many sizes."""
    return cv2.GaussianBlur(cv2.resize(noise_image(25, 25, seed=seed), (side, side)), (0, 0), 2)


def share_matched(a, b):
    """Share of the descriptors of ``a`` whose nearest in ``b`` is much nearer than the second (Lowe's ratio)."""
    distances = ((a.astype(float)[:, None] - b.astype(float)[None]) ** 2).sum(-1)
    nearest = np.sort(distances, axis=1)
    return np.mean(nearest[:, 0] < 0.5 * nearest[:, 1])


def test_descriptors_are_unit_vectors_of_127():
    features = KeypointSIFT(longest_side=200).extract(blobs())
    assert features.descriptors.dtype == np.uint8
    assert np.allclose(np.linalg.norm(features.descriptors.astype(float), axis=1), 127, atol=3)
    assert features.size == (200, 200)


def test_a_turned_picture_has_the_same_descriptors():
    plain = KeypointSIFT(longest_side=200).extract(blobs())
    turned = KeypointSIFT(longest_side=200).extract(np.rot90(blobs()).copy())
    other = KeypointSIFT(longest_side=200).extract(blobs(seed=9))
    assert share_matched(plain.descriptors, turned.descriptors) > 0.8
    assert share_matched(plain.descriptors, other.descriptors) < 0.1


def test_a_keypoint_lies_where_the_spot_is():
    image = np.zeros((100, 200), np.uint8)
    cv2.circle(image, (150, 40), 8, 255, -1)
    features = KeypointSIFT(longest_side=200).extract(image)
    x, y = features.xy[0] * (200, 100)
    assert (x, y) == pytest.approx((150, 40), abs=2)
    assert 20 < features.scale[0] < 120


def test_the_strongest_are_kept_and_in_order():
    everything = KeypointSIFT(longest_side=200).extract(blobs())
    few = KeypointSIFT(longest_side=200, max_keypoints=5).extract(blobs())
    assert len(everything) > 20
    assert np.array_equal(few.descriptors, everything.descriptors[:5])
    assert np.array_equal(few.xy, everything.xy[:5])


def test_a_flat_picture_has_none():
    features = KeypointSIFT().extract(flat_image())
    assert len(features) == 0
    assert features.n_dims == 128


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_keypoints": 0}, "max_keypoints must be a whole number from 1"),
        ({"min_contrast": -1.0}, "min_contrast must be a number, at least 0; got -1"),
        ({"longest_side": 3}, "longest_side must be a whole number from 8"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        KeypointSIFT.from_params(settings)

"""RootSIFT by hand, and beside the dense SIFT it is made of."""

import numpy as np
from synthetic import noise_image, small_sift

from lnbnn.descriptors import make_descriptor
from lnbnn.descriptors.root_sift import RootSIFT


def test_is_the_root_of_the_shares():
    image = noise_image(48, 48)
    plain = small_sift().extract(image)
    root = RootSIFT(**small_sift().settings()).extract(image)
    assert np.array_equal(root.xy, plain.xy)
    shares = plain.descriptors / plain.descriptors.sum(axis=1, keepdims=True).astype(float)
    assert np.abs(root.descriptors - 127 * np.sqrt(shares)).max() <= 0.51


def test_unit_length_and_name():
    root = RootSIFT(**small_sift().settings())
    lengths = np.linalg.norm(root.extract(noise_image(48, 48)).descriptors.astype(float), axis=1)
    assert np.abs(lengths - 127).max() < 3
    assert make_descriptor("root-sift", root.settings()).settings() == root.settings()


def test_flat_image_has_none():
    assert len(RootSIFT().extract(np.full((60, 60), 9, np.uint8))) == 0

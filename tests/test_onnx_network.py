"""Network files as descriptors: by hand on one that averages pixels, then files that are not what they should be."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import onnx
import pytest
from forged import data_file, forge_checksums, forge_manifest
from networks import CONFIG, make_model, mean_network, token_network, value, write_network
from onnx import TensorProto, helper, numpy_helper
from sklearn.base import clone
from synthetic import noise_image

import lnbnn
from lnbnn.descriptors import make_descriptor
from lnbnn.descriptors.onnx_file import with_config
from lnbnn.errors import InvalidInputError, ModelFormatError, UntrustedNetworkError
from lnbnn.model.changes import calibrate, check_model, compact, edit, merge


@pytest.fixture
def place(tmp_path):
    """``place(model, **config)``: the registry name of a written network."""

    def write(model, **config):
        return f"onnx:{write_network(tmp_path / 'net.onnx', model, **config)}"

    return write


def quarters():
    """32 x 32 pixels: red, green, blue and white quarters."""
    image = np.zeros((32, 32, 3), np.uint8)
    image[:16, :16, 0] = image[:16, 16:, 1] = image[16:, :16, 2] = 255
    image[16:, 16:] = 255
    return image


def test_cells_by_hand(place):
    # Values 0 and 255 become -1 and 1 with mean 0.5 and std 0.5.
    features = make_descriptor(place(mean_network()), {"longest_side": 32}).extract(quarters())
    assert features.descriptors.tolist() == [
        [1, -1, -1, -1, 1, 1],
        [-1, 1, -1, 1, -1, 1],
        [-1, -1, 1, 1, 1, -1],
        [1, 1, 1, -1, -1, -1],
    ]
    assert features.xy.tolist() == [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]]
    assert features.scale.tolist() == [16] * 4
    assert features.size == (32, 32)
    assert features.descriptors.dtype == np.float16


@pytest.mark.parametrize("n_prefix", [0, 1, 5])
def test_patch_tokens_by_hand(place, n_prefix):
    features = make_descriptor(place(token_network(n_prefix)), {"longest_side": 32}).extract(quarters())
    assert features.descriptors.tolist() == [[1, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, 1]]


def test_colors_may_come_last(place):
    nodes = [
        helper.make_node("Transpose", ["image"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("AveragePool", ["planes"], ["means"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Transpose", ["means"], ["map"], perm=[0, 2, 3, 1]),
    ]
    model = make_model(nodes, [value("image", [1, "h", "w", 3])], [value("map", [1, "r", "c", 3])], [])
    features = make_descriptor(place(model), {"longest_side": 32}).extract(quarters())
    assert features.descriptors.tolist() == [[1, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, 1]]


def test_size_mean_and_scale_are_those_of_the_file(place):
    config = {"mean": [0.0, 0.5, 1.0], "std": [1.0, 0.5, 0.25], "longest_side": 48, "stride": 16}
    features = make_descriptor(place(mean_network(), **config)).extract(np.full((20, 40, 3), 255, np.uint8))
    assert features.size == (48, 32)  # 48 x 24, rounded to whole cells
    assert features.descriptors[0, :3].tolist() == [1.0, 1.0, 0.0]


def test_the_users_settings_come_first(place):
    name = place(mean_network())
    features = make_descriptor(name, {"mean": 0.0, "std": [1.0, 2.0, 4.0], "longest_side": 16}).extract(
        np.full((16, 16, 3), 255, np.uint8)
    )
    assert features.descriptors[0, :3].tolist() == [1.0, 0.5, 0.25]


def test_a_fixed_size_is_stretched_to(place):
    name = place(mean_network(sides=(32, 64)))
    assert make_descriptor(name).extract(noise_image(90, 50)).size == (64, 32)
    with pytest.raises(InvalidInputError, match="takes pictures of 64 x 32 pixels only; drop longest_side"):
        make_descriptor(name, {"longest_side": 99})


def test_a_value_inside_the_network_can_be_named(place):
    name = place(mean_network())
    assert make_descriptor(f"{name}@means").n_dims == 3
    assert make_descriptor(f"{name}@map").n_dims == 6
    with pytest.raises(InvalidInputError, match=r"no value 'heads'; its outputs: map, pooled; its last values: .*map"):
        make_descriptor(f"{name}@heads")
    with pytest.raises(InvalidInputError, match=r"no usable output.*got pooled \(1, 6\)"):
        make_descriptor(f"{name}@pooled")


def test_a_path_may_hold_the_sign_of_an_output(tmp_path):
    path = write_network(tmp_path / "net@home.onnx", mean_network())
    assert make_descriptor(f"onnx:{path}").n_dims == 6
    assert make_descriptor(f"onnx:{path}@means").n_dims == 3


def test_a_model_remembers_the_weights(place, tmp_path):
    descriptor = make_descriptor(place(mean_network()))
    digest = descriptor.settings()["sha256"]
    place(mean_network(stride=8), **CONFIG | {"stride": 8})
    with pytest.raises(InvalidInputError, match=r"weights are not those the model was made with .*use the same file"):
        make_descriptor(descriptor.name, {"sha256": digest})


def test_a_silent_file_wants_settings(place, tmp_path):
    (tmp_path / "net.onnx").write_bytes(mean_network().SerializeToString())
    name = f"onnx:{tmp_path / 'net.onnx'}"
    with pytest.raises(InvalidInputError, match="does not say how its input is scaled; give mean and std"):
        make_descriptor(name)
    with pytest.raises(InvalidInputError, match="does not say the size of its pictures; give -D longest_side"):
        make_descriptor(name, {"mean": 0.5, "std": 0.5})
    assert make_descriptor(name, {"mean": 0.5, "std": 0.5, "longest_side": 32}).extract(quarters()).n_dims == 6


def unusable():
    """Networks that say no clear thing, each with what is said about it."""
    pool = helper.make_node("GlobalAveragePool", ["image"], ["y"])
    image = value("image", [1, 3, "h", "w"])
    yield (
        "classifier",
        make_model([pool], [image], [value("y", [1, 3, 1, 1])], []),
        r"no usable output.*y \(1, 3, 1, 1\)",
    )
    two = [image, value("other", [1, 3, "h", "w"])]
    add = helper.make_node("Add", ["image", "other"], ["y"])
    yield "two inputs", make_model([add], two, [value("y", [1, 3, "h", "w"])], []), "expected one input of floats"
    gray = value("image", [1, 1, "h", "w"])
    yield "gray", make_model([pool], [gray], [value("y", [1, 1, 1, 1])], []), "expected an input of three colors"
    batch = value("image", [8, 3, 32, 32])
    yield "batch", make_model([pool], [batch], [value("y", [8, 3, 1, 1])], []), r"expected one input.*got image \(8, 3"
    whole = value("image", [1, 3, "h", "w"], TensorProto.INT64)
    same = helper.make_node("Identity", ["image"], ["y"])
    yield "integers", make_model([same], [whole], [value("y", [1, 3, "h", "w"], TensorProto.INT64)], []), "of floats"
    vast = value("image", [1, 3, 1 << 20, 1 << 20])
    yield "vast", make_model([same], [vast], [value("y", [1, 3, "h", "w"])], []), "too large"
    strange = helper.make_node("FireMissiles", ["image"], ["y"])
    yield "unknown", make_model([strange], [image], [value("y", [1, 3, "h", "w"])], []), "FireMissiles"
    away = helper.make_node("Identity", ["image"], ["elsewhere"])
    yield "loose end", make_model([away], [image], [value("y", [1, 3, "h", "w"])], []), "not a usable ONNX file"
    shape = numpy_helper.from_array(np.array([1, 3, 7, 11]), "shape")
    fold = helper.make_node("Reshape", ["image", "shape"], ["y"])
    yield "fails", make_model([fold], [image], [value("y", [1, 3, 7, 11])], [shape]), "the network failed on a picture"


@pytest.mark.parametrize(("model", "message"), [p[1:] for p in unusable()], ids=[p[0] for p in unusable()])
def test_networks_that_cannot_be_used(place, model, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        make_descriptor(place(model))
    assert "\n" not in str(caught.value)
    assert "net.onnx" in str(caught.value)


@pytest.mark.parametrize("level", ["graph", "node", "function-like"])
def test_weights_in_other_files_are_refused(tmp_path, level):
    secret = tmp_path / "secret"
    secret.write_bytes(b"\0" * 12)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../secret")
    image, out = value("image", [1, 3, "h", "w"]), value("y", [1, 3, "h", "w"])
    if level == "graph":
        model = make_model([helper.make_node("Add", ["image", "w"], ["y"])], [image], [out], [tensor])
    else:
        constant = helper.make_node("Constant", [], ["w"], value=tensor)
        nodes = [constant, helper.make_node("Add", ["image", "w"], ["y"])]
        if level == "function-like":  # hidden in a branch of an If
            inner = helper.make_graph(nodes, "inner", [], [out])
            condition = numpy_helper.from_array(np.array(True), "yes")
            choose = helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner)
            model = make_model([choose], [image], [out], [condition])
        else:
            model = make_model(nodes, [image], [out], [])
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidInputError, match="keeps weights in other files, which are not followed"):
        make_descriptor(f"onnx:{path}")


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"not a network at all", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"\x08"]
)
def test_other_files_are_refused(tmp_path, data):
    (tmp_path / "net.onnx").write_bytes(data)
    with pytest.raises(InvalidInputError, match=r"net\.onnx: not a usable ONNX file") as caught:
        make_descriptor(f"onnx:{tmp_path / 'net.onnx'}")
    assert "\n" not in str(caught.value)


def test_a_file_cut_anywhere_is_refused_or_whole(tmp_path):
    """Protobuf has no end mark: what a cut leaves is refused unless it is the same network without its last words."""
    whole = with_config(token_network(1), **CONFIG)
    settings = {"longest_side": 32, "mean": 0.5, "std": 0.5}
    n_refused = 0
    for length in range(0, len(whole), 7):
        path = tmp_path / f"{length}.onnx"
        path.write_bytes(whole[:length])
        try:
            cells = make_descriptor(f"onnx:{path}", settings).extract(quarters()).descriptors
            assert cells.tolist() == [[1, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, 1]]
        except InvalidInputError:
            n_refused += 1
    assert n_refused > len(whole) / 7 / 2


def test_no_such_file(tmp_path):
    with pytest.raises(InvalidInputError, match="no such network file"):
        make_descriptor(f"onnx:{tmp_path / 'nothing.onnx'}")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        make_descriptor(f"onnx:{tmp_path}")


@pytest.mark.parametrize(
    "config",
    [
        {"mean": [0.5]},
        {"std": ["a", "b", "c"]},
        {"longest_side": 10**9},
        {"stride": -3},
        {"n_prefix": "x"},
        {"mean": 3},
        {"mean": {"a": 1, "b": 2, "c": 3}},
        {"mean": [True, True, True]},
        {"mean": [10**400, 0, 0]},
        {"std": [1.0, float("nan"), 1.0]},
        {"std": "abc"},
        {"longest_side": "224"},
        {"longest_side": 224.5},
        {"longest_side": float("inf")},
        {"longest_side": [224]},
        {"stride": True},
        {"stride": 10**400},
        {"n_prefix": 1.0},
    ],
)
def test_metadata_that_makes_no_sense_is_refused(place, config):
    with pytest.raises(InvalidInputError, match="its metadata 'lnbnn' cannot be used"):
        make_descriptor(place(mean_network(), **config))


@pytest.mark.parametrize("text", ["[" * 100_000, "", "[]", "5", '"x"', "null", '{"stride": ' + "9" * 5000 + "}"])
def test_metadata_that_is_no_json_is_refused(tmp_path, text):
    model = mean_network()
    onnx.helper.set_model_props(model, {"lnbnn": text})
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InvalidInputError, match="its metadata 'lnbnn' cannot be used"):
        make_descriptor(f"onnx:{tmp_path / 'net.onnx'}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": [0.1, 0.2]}, r"mean must be one number or three, one per color; got \[0.1, 0.2\]"),
        ({"std": 0.0}, "std must be one number or three"),
        ({"longest_side": 3}, "longest_side must be a whole number from 8"),
        ({"n_components": 0}, "n_components must be a whole number from 1"),
        ({"whitening": 2}, "whitening must be from 0 to 1; got 2"),
    ],
)
def test_bad_settings_are_refused(place, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        make_descriptor(place(mean_network()), settings)


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/mem", "pipe"])
def test_only_regular_files_are_read(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(InvalidInputError, match=r"cannot be read|not a usable ONNX file"):
        make_descriptor(f"onnx:{path}")


# ---- the network of a model -----------------------------------------------------------------------------------------

IMAGES = [noise_image(64, 48, seed=seed) for seed in range(6)]


def write_model(folder, name):
    lnbnn.LocalNBNN(3, descriptor=name, index="exact", n_jobs=1).fit(IMAGES, list("aabbcc")).save(folder)
    return folder


def without_network(model):
    """The model as one made before models kept their networks."""
    data_file(model, "network.onnx").unlink()
    manifest = json.loads((model / "manifest.json").read_bytes())
    files = {name: entry for name, entry in manifest["files"].items() if not name.endswith("network.onnx")}
    forge_manifest(model, without=["network"], files=files)


@pytest.mark.parametrize("output", ["", "@means"])
def test_a_model_keeps_its_network(place, tmp_path, output):
    name = place(mean_network()) + output
    model = write_model(tmp_path / "model", name)
    expected = lnbnn.load(model).decision_function(IMAGES)
    (tmp_path / "net.onnx").unlink()
    again = lnbnn.load(model)
    assert np.array_equal(again.decision_function(IMAGES), expected)
    assert again.plain_params()["descriptor"] == name
    assert pickle.loads(pickle.dumps(again.descriptor_)).n_dims == again.descriptor_.n_dims
    assert np.array_equal(clone(again).fit(IMAGES, list("aabbcc")).decision_function(IMAGES), expected)
    with edit(model) as editor:
        editor.add([noise_image(64, 48, seed=9)], ["a"])
    compact(model)
    again.refresh()
    assert len(again.images_) == 7
    assert data_file(model, "network.onnx").is_file()
    assert check_model(model).problems == ()
    merge(model, model, tmp_path / "merged")
    merged = lnbnn.load(tmp_path / "merged")
    assert np.array_equal(merged.decision_function(IMAGES), lnbnn.load(model).decision_function(IMAGES))


def test_a_path_with_the_sign_of_an_output_is_kept_too(tmp_path):
    path = write_network(tmp_path / "net@home.onnx", mean_network())
    model = write_model(tmp_path / "model", f"onnx:{path}")
    path.unlink()
    assert lnbnn.load(model).descriptor_.n_dims == 6


def test_another_network_in_the_folder_is_refused(place, tmp_path):
    model = write_model(tmp_path / "model", place(mean_network()))
    write_network(data_file(model, "network.onnx"), mean_network(stride=8), **CONFIG | {"stride": 8})
    forge_checksums(model)
    with pytest.raises(ModelFormatError, match="weights are not those the model was made with"):
        lnbnn.load(model)


def test_a_network_outside_the_folder_needs_the_users_word(place, tmp_path, run_main, save_texture):
    model = write_model(tmp_path / "model", place(mean_network()))
    photo = save_texture(tmp_path / "a.png", "rows")
    without_network(model)
    before = (model / "manifest.json").read_bytes()
    for use in (lnbnn.load, compact, calibrate, lambda path: merge(path, path, tmp_path / "merged")):
        with pytest.raises(UntrustedNetworkError, match=r"outside its folder, 'onnx:.*net\.onnx'.*--trust-network"):
            use(model)
    for command in (
        ["predict", model, photo],
        ["evaluate", model, tmp_path],
        ["explain", model, photo, "-o", tmp_path / "why.png"],
        ["info", model],
        ["audit", model],
        ["add", model, photo, "--label", "a"],
        ["calibrate", model],
        ["merge", model, model, tmp_path / "merged"],
        ["compact", model],
    ):
        assert "--trust-network" in run_main(*command).error, command
    outcome = run_main("check", model)
    assert outcome.code == 1
    assert "--trust-network" in outcome.err
    assert (model / "manifest.json").read_bytes() == before
    assert not (tmp_path / "merged").exists()
    for command in (
        ["predict", model, photo],
        ["info", model],
        ["check", model],
        ["audit", model],
        ["add", model, photo, "--label", "a"],
        ["relabel", model, "--image", "0", "--label", "b"],
        ["remove", model, "--image", "1"],
        ["calibrate", model],
        ["merge", model, model, tmp_path / "merged"],
        ["compact", model],  # from here on the network is in the folder
    ):
        outcome = run_main(*command, "--trust-network")
        assert outcome.code == 0, outcome.err
    assert run_main("predict", model, photo).code == 0
    assert run_main("list", model).code == 0


def test_a_trusted_model_is_followed(place, tmp_path):
    model = write_model(tmp_path / "model", place(mean_network()))
    without_network(model)
    opened = lnbnn.load(model, trust_network=True)
    compact(model, trust_network=True)
    assert opened.refresh()


def test_names_that_download_need_the_users_word(place, tmp_path):
    model = write_model(tmp_path / "model", place(mean_network()))
    params = json.loads((model / "manifest.json").read_bytes())["params"]
    for name in ("timm:resnet18", "timm:hf-hub:someone/something", "onnx:/dev/zero"):
        forge_manifest(model, without=["network"], params=params | {"descriptor": name})
        with pytest.raises(UntrustedNetworkError):
            lnbnn.load(model)
        with pytest.raises(UntrustedNetworkError), edit(model) as editor:
            editor.add(IMAGES[:1], ["a"])
    forge_manifest(model, network={"file": "network.onnx", "output": None}, params=params | {"descriptor": "timm:x"})
    with pytest.raises(UntrustedNetworkError):
        lnbnn.load(model)

"""What every registered descriptor promises, whatever it is made of."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from networks import mean_network, write_network
from synthetic import noise_image

import lnbnn
from lnbnn import FeatureStore, LateFusion, LocalNBNN
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.trained import PooledSVM
from lnbnn.descriptors import DESCRIPTORS, make_descriptor
from lnbnn.errors import ImageReadError, InvalidInputError, MissingExtraError
from lnbnn.model.changes import edit
from lnbnn.params import resolve
from lnbnn.reading.extraction import features_of
from lnbnn.trust.audit import audit
from lnbnn.trust.evidence import explain

NAMES = sorted(DESCRIPTORS)


@pytest.fixture(scope="session")
def network_file(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("networks") / "mean.onnx", mean_network())


@pytest.fixture(params=NAMES)
def descriptor(request, network_file):
    """One small descriptor for each entry of the registry."""
    if request.param == "timm:":
        pytest.importorskip("timm", reason="needs the extra [timm]")
        return make_timm(network_file.parent)
    examples = {
        "deep": ("deep", {"longest_side": 64}),
        "deep@": ("deep@stage5", {"longest_side": 64, "n_components": 16}),
        "deep-small": ("deep-small", {"longest_side": 64}),
        "deep-small@": ("deep-small@stage5", {"longest_side": 64, "n_components": 16}),
        "onnx:": (f"onnx:{network_file}", {}),
    }
    return make_descriptor(*examples.get(request.param, (request.param, {"longest_side": 96})))


def make_timm(folder):
    import timm
    import torch

    torch.manual_seed(0)
    weights = folder / "weights.pth"
    torch.save(timm.create_model("test_resnet", num_classes=0).state_dict(), weights)
    return make_descriptor("timm:test_resnet", {"weights": str(weights), "longest_side": 64})


def color_image(height, width, seed=0):
    return np.stack([noise_image(height, width, seed=seed + channel) for channel in range(3)], axis=-1)


def tile_set(n_images, first=0):
    """Three classes, each a pattern of random tiles with corners for keypoints, seen through noise."""
    images, labels = [], []
    for place in range(3):
        tiles = np.kron(noise_image(8, 8, seed=place), np.ones((8, 8), np.uint8)).astype(int)
        for number in range(first, first + n_images):
            noise = np.random.default_rng([place, number]).normal(0, 10, tiles.shape)
            images.append(np.clip(tiles + noise, 0, 255).astype(np.uint8))
            labels.append(f"tiles {place}")
    return images, labels


def test_features_are_what_is_promised(descriptor):
    features = descriptor.extract(color_image(70, 90))
    assert features.descriptors.dtype in (np.uint8, np.float16, np.float32)
    assert np.isfinite(features.descriptors.astype(np.float32)).all()
    assert features.n_dims == descriptor.n_dims
    assert len(features) > 0
    assert features.size == descriptor.prepare(color_image(70, 90)).shape[1::-1]
    assert features.scale.min() > 0


def test_settings_make_the_same_descriptor_again(descriptor):
    again = make_descriptor(descriptor.name, descriptor.settings())
    assert type(again) is type(descriptor)
    assert again.settings() == descriptor.settings()
    image = color_image(50, 64, seed=5)
    assert np.array_equal(again.extract(image).descriptors, descriptor.extract(image).descriptors)


def test_a_prepared_picture_is_not_changed_again(descriptor):
    once = descriptor.prepare(color_image(83, 59))
    assert np.array_equal(descriptor.prepare(once), once)


@pytest.mark.parametrize("shape", [(1, 1), (3, 400), (400, 3)])
def test_pictures_of_any_shape(descriptor, shape):
    features = descriptor.extract(noise_image(*shape))
    assert features.n_dims == descriptor.n_dims


def test_the_given_picture_is_not_changed(descriptor):
    image = color_image(64, 64)
    before = image.copy()
    descriptor.extract(image)
    assert np.array_equal(image, before)


def test_a_copy_gives_the_same(descriptor):
    image = color_image(60, 60)
    assert np.array_equal(copy.deepcopy(descriptor).extract(image).descriptors, descriptor.extract(image).descriptors)


def test_unknown_settings_are_refused(descriptor):
    with pytest.raises(InvalidInputError, match="has no setting 'window'"):
        make_descriptor(descriptor.name, {"window": 3})


def test_a_file_and_its_pixels_give_the_same(descriptor, tmp_path):
    from PIL import Image

    image = color_image(60, 80, seed=3)
    Image.fromarray(image).save(tmp_path / "photo.png")
    from_file, from_array = features_of(tmp_path / "photo.png", descriptor), descriptor.extract(image)
    if descriptor.is_color:
        assert np.array_equal(from_file.descriptors, from_array.descriptors)
    assert from_file.size == from_array.size
    (tmp_path / "cut.png").write_bytes((tmp_path / "photo.png").read_bytes()[:300])
    with pytest.raises(ImageReadError, match=r"cut\.png: damaged or cut short"):
        features_of(tmp_path / "cut.png", descriptor)


def test_stored_features_are_the_extracted_ones(descriptor, tmp_path, save_texture):
    path = save_texture(tmp_path / "a.png", "checks")
    store = FeatureStore(tmp_path / "store")
    first, second = features_of(path, descriptor, store), features_of(path, descriptor, store)
    assert first.descriptors.dtype == second.descriptors.dtype
    assert np.array_equal(first.descriptors, second.descriptors)
    assert np.array_equal(first.xy, second.xy)


def test_a_model_is_fitted_saved_and_explained(descriptor, tmp_path):
    images, labels = tile_set(n_images=3)
    classifier = LocalNBNN(5, descriptor=descriptor).fit(images, labels)
    assert classifier.index_.vectors_of(range(5)).dtype == np.uint8
    answers = classifier.decision_function(images)
    others, their_labels = tile_set(n_images=2, first=3)
    assert classifier.predict(others).tolist() == their_labels
    classifier.save(tmp_path / "model")
    again = lnbnn.load(tmp_path / "model")
    assert again.descriptor_.name == descriptor.name
    assert np.array_equal(again.decision_function(images), answers)
    assert np.array_equal(again.set_params(n_jobs=1).decision_function(images), answers)
    picture = again.descriptor_.prepare(images[0])
    evidence = explain(again, picture)
    assert evidence.map.shape == picture.shape[:2]
    assert evidence.map.sum() == pytest.approx(evidence.support.sum())


def test_images_are_added_removed_audited_and_rejected(descriptor, tmp_path):
    images, labels = tile_set(n_images=4)
    newer = [3, 7, 11]  # the last of each class
    kept = [place for place in range(12) if place not in newer]
    model = LocalNBNN(5, descriptor=descriptor, index="exact").fit([images[i] for i in kept], [labels[i] for i in kept])
    before = model.decision_function(images)
    model.partial_fit([images[i] for i in newer], [labels[i] for i in newer])
    assert len(model.images_) == 12
    model.save(tmp_path / "model")
    with edit(tmp_path / "model") as editor:
        editor.remove([image.id for image in model.images_[9:]])
    again = lnbnn.load(tmp_path / "model")
    assert np.array_equal(again.decision_function(images), before)
    found = audit(model)
    assert found.n_images == 12
    assert found.accuracy == 1.0
    assert not found.suspects
    model.calibrate(unknown=True)
    others, theirs = tile_set(n_images=4, first=4)
    accepted = [pair for pair in zip(model.predict(others, reject=0.99), theirs, strict=True) if pair[0] is not None]
    assert len(accepted) >= 6  # three classes are few to tell a fourth by
    assert all(answer == label for answer, label in accepted)
    flat = np.full((64, 64), 255, np.uint8)
    with warnings.catch_warnings():  # to all but networks it has no descriptors
        warnings.filterwarnings("ignore", message="1 of 1 images get no label")
        assert model.predict([flat], reject=0.01).tolist() == [None]


@pytest.mark.parametrize("members", [("deep", "dense-sift"), ("deep", "deep@stage5")])
def test_a_model_of_several_descriptors_is_audited_rejects_and_changes(members, tmp_path):
    images, labels = tile_set(n_images=3)
    settings = {"longest_side": 64}
    parts = [(f"part{n}", LocalNBNN(5, descriptor=make_descriptor(name, settings))) for n, name in enumerate(members)]
    model = LateFusion(parts).fit(images, labels)
    assert audit(model).accuracy == 1.0
    model.calibrate(unknown=True)
    others, their_labels = tile_set(n_images=2, first=3)
    assert model.predict(others, reject=0.99).tolist() == their_labels
    model.save(tmp_path / "model")
    added = [image[:, ::-1] for image in images[:2]]
    with edit(tmp_path / "model") as editor:
        editor.add(added, labels[:2])
        editor.remove([0])
    model.partial_fit(added, labels[:2]).remove([0])
    again = lnbnn.load(tmp_path / "model")
    assert [image.id for image in again.images_] == [*range(1, 9), 9, 10]
    for one, other in zip(again.model_.members, model.model_.members, strict=True):
        assert np.array_equal(list(one.iter_scores(images)), list(other.iter_scores(images)))


def test_a_fusion_with_pooled_cells_says_what_it_cannot_do(network_file):
    images, labels = tile_set(n_images=3)
    name = f"onnx:{network_file}"
    parts = [("cells", LocalNBNN(3, descriptor=name)), ("pooled", PooledSVM(descriptor=name))]
    model = LateFusion(parts).fit(images, labels)
    others, their_labels = tile_set(n_images=2, first=3)
    assert model.predict(others).tolist() == their_labels
    assert audit(model).accuracy == 1.0
    with pytest.raises(InvalidInputError, match="cannot tell what is unknown"):
        model.calibrate(unknown=True)


def test_the_order_of_the_images_does_not_matter(descriptor):
    images, labels = tile_set(n_images=3)
    order = np.random.default_rng(1).permutation(len(images))
    shuffled = LocalNBNN(5, descriptor=descriptor, index="exact").fit(
        [images[i] for i in order], [labels[i] for i in order]
    )
    straight = LocalNBNN(5, descriptor=descriptor, index="exact").fit(images, labels)
    assert np.array_equal(shuffled.decision_function(images), straight.decision_function(images))


@pytest.mark.parametrize("method", sorted(CLASSIFIERS))
def test_every_method_takes_a_network(method, network_file):
    images, labels = tile_set(n_images=3)
    kind = resolve(CLASSIFIERS, method, "method")
    settings = {"n_neighbors": 5} if "n_neighbors" in kind.param_names() else {}
    if "n_words" in kind.param_names():
        settings["n_words"] = 8
    classifier = kind(descriptor=f"onnx:{network_file}", **settings).fit(images, labels)
    assert classifier.predict(images).shape == (len(images),)


def test_images_are_added_to_a_model_of_cells(network_file):
    images, labels = tile_set(n_images=4)
    classifier = LocalNBNN(3, descriptor=f"onnx:{network_file}", index="exact").fit(images[:8], labels[:8])
    mean = classifier.model_.normalizer.mean
    classifier.partial_fit(images[8:], labels[8:])
    assert classifier.model_.normalizer.mean is mean
    assert classifier.classes_.tolist() == sorted(set(labels))
    assert len(classifier.index_) == sum(image.n_descriptors for image in classifier.images_)


def test_a_folder_of_cells_is_changed_and_followed(network_file, tmp_path, make_photos, run, run_main, save_texture):
    photos, model = make_photos(tmp_path / "photos"), tmp_path / "model"
    assert run("fit", photos, model, "--descriptor", f"onnx:{network_file}", "-k", "3").code == 0
    new = save_texture(tmp_path / "new" / "rows" / "another.png", "rows", seed=77)
    outcome = run_main("add", model, new, "--label", "rows")
    assert outcome.code == 0, outcome.err
    again = lnbnn.load(model)
    assert len(again.images_) == 10
    assert run_main("remove", model, again.images_[0].id).code == 0
    assert len(lnbnn.load(model).images_) == 9
    assert run_main("check", model).code == 0


def test_models_that_learned_other_centers_are_not_merged(network_file):
    images, labels = tile_set(n_images=4)
    one, other = (
        LocalNBNN(3, descriptor=f"onnx:{network_file}", index="exact").fit(images[part::2], labels[part::2])
        for part in (0, 1)
    )
    with pytest.raises(InvalidInputError, match="must have learned the same center and components"):
        one.model_.absorb(other.model_)


def test_a_missing_extra_is_named(monkeypatch):
    import sys

    for name in ("lnbnn.descriptors.onnx_file", "lnbnn.descriptors.onnx_network"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'lnbnn\[deep\]'"):
        make_descriptor("onnx:x.onnx")

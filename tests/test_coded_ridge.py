"""What is learned to code images with stays: changes, merging and held-out scores of both methods that have it."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import make_features

from lnbnn import LateFusion, LocalNBNN, load
from lnbnn.classifiers.fisher import FisherVectors
from lnbnn.classifiers.fisher_slc import FisherSLC
from lnbnn.classifiers.local_coding import SpatiallyLocalCoding
from lnbnn.errors import InvalidInputError
from lnbnn.model.changes import compact

METHODS = {
    "fisher": (FisherVectors, {"n_gaussians": 3, "n_components": 4}),
    "fisher-slc": (FisherSLC, {"n_gaussians": 3, "n_components": 4, "n_words": 6, "n_nearest_words": 3}),
    "slc": (SpatiallyLocalCoding, {"n_words": 6, "n_nearest_words": 3}),
}


def image(seed, label, dtype=np.uint8, n_dims=8):
    """Twelve descriptors around the label's axis, at seeded places."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0, 60, (12, n_dims)) + 60.0 * np.eye(n_dims)[label]
    return make_features((values if dtype == np.uint8 else values / 127).astype(dtype), seed=seed)


def a_set(n=12, n_classes=3, dtype=np.uint8):
    labels = [place % n_classes for place in range(n)]
    return [image(seed, label, dtype) for seed, label in enumerate(labels)], labels


@pytest.fixture(params=sorted(METHODS))
def quick(request):
    kind, settings = METHODS[request.param]

    def make(**changes):
        return kind(**{"alpha": 0.1, "n_jobs": 1, **settings, **changes})

    return make


def learned(method, folder):
    """What a method codes images with: the bytes of the arrays that are no part of the regression."""
    folder.mkdir()
    method.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("ridge_")}


def test_a_changed_model_is_a_fresh_one_with_the_same_codes(quick, tmp_path):
    images, labels = a_set(12)
    quick().fit(images[:6], labels[:6]).save(tmp_path / "model")
    changed = load(tmp_path / "model")
    for features, label in zip(images[6:], labels[6:], strict=True):
        changed.partial_fit([features], [label])
    changed.remove(1).relabel(0, 2)
    fresh = load(tmp_path / "model").method_
    for reference in list(fresh.references):
        fresh.remove(reference)
    for reference, place in zip(changed.images_, [0, *range(2, 12)], strict=True):
        fresh.add(reference, images[place])
    fresh.finish(changed.model_.references, lambda *_: None)
    expected = np.stack([fresh.scores(features) for features in images])
    assert np.array_equal(changed.decision_function(images), expected)
    assert [reference.label for reference in changed.images_] == [2, *labels[2:]]


def test_held_out_scores_are_those_of_a_model_without_the_image(quick):
    images, labels = a_set()
    model = quick().fit(images, labels)
    held_out = model.held_out_scores()
    assert np.allclose(held_out[4], model.remove(4).decision_function(images[4:5])[0], atol=1e-9)


def test_the_codes_stay_when_the_model_is_compacted_and_the_constant_is_chosen_again(quick, tmp_path):
    images, labels = a_set(12)
    model = quick(alpha=None).fit(images[:6], labels[:6])
    before = learned(model.method_, tmp_path / "before")
    model.partial_fit(images[6:], labels[6:])
    model.save(tmp_path / "model")
    compact(tmp_path / "model")
    method = load(tmp_path / "model").method_
    assert before
    assert learned(method, tmp_path / "after") == before
    everything = load(tmp_path / "model")
    everything.method_.alpha = np.empty(0)
    everything.method_.finish(everything.model_.references, lambda *_: None)
    assert method.alpha[0] == everything.method_.alpha[0]


def test_models_with_other_codes_are_not_merged(quick):
    images, labels = a_set()
    model, other = quick().fit(images[:6], labels[:6]), quick().fit(images[6:], labels[6:])
    before = model.decision_function(images)
    with pytest.raises(InvalidInputError, match=r"must have learned the same [a-zA-Z ]+; fit one model on the images"):
        model.model_.absorb(other.model_)
    assert np.array_equal(model.decision_function(images), before)


def test_models_of_the_same_codes_are_merged(quick, tmp_path):
    images, labels = a_set()
    quick().fit(images, labels).save(tmp_path / "model")
    one, two = load(tmp_path / "model"), load(tmp_path / "model")
    for place in range(6):
        one.remove(place)
        two.remove(place + 6)
    one.model_.absorb(two.model_)
    expected = load(tmp_path / "model").decision_function(images)
    assert np.array_equal(one.decision_function(images), expected)


def test_a_fusion_with_it_lives(quick):
    images, labels = a_set()
    members = [("a", LocalNBNN(index="exact", query_budget=None)), ("b", quick())]
    fusion = LateFusion(members, n_jobs=1).fit(images[:-1], labels[:-1])
    fusion.partial_fit(images[-1:], labels[-1:]).remove(0)
    assert len(fusion.images_) == 11
    assert fusion.predict(images[1:]).tolist() == labels[1:]


def test_the_answers_do_not_depend_on_the_threads(quick):
    images, labels = a_set()
    expected = quick().fit(images, labels).decision_function(images)
    assert np.array_equal(quick(n_jobs=3).fit(images, labels).decision_function(images), expected)


def test_the_order_of_the_images_changes_nothing(quick):
    images, labels = a_set()
    expected = quick().fit(images, labels).decision_function(images)
    assert np.array_equal(quick().fit(images[::-1], labels[::-1]).decision_function(images), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_scores_are_the_sum_of_what_each_patch_says(quick, dtype):
    images, labels = a_set(dtype=dtype)
    model = quick().fit(images, labels)
    patches = model.method_.patch_scores(model.method_.prepare(images[2], model.model_.normalizer))
    assert patches.shape == (12, 3)
    assert np.allclose(patches.sum(axis=0), model.decision_function(images[2:3])[0], atol=1e-9)


def test_vectors_have_unit_length(quick):
    """Those of two methods side by side have that length each."""
    images, labels = a_set()
    method = quick().fit(images, labels).method_
    vectors = method.vectors.astype(np.float64)
    assert vectors.shape == (12, method.n_values)
    slices = [values for _, values in method.slices()] if hasattr(method, "slices") else [slice(None)]
    for values in slices:
        assert np.allclose(np.linalg.norm(vectors[:, values], axis=1), 1.0, atol=1e-3)

"""Linear SVMs on mean descriptors: what is pooled, what is learned, what is held out."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import make_features

import lnbnn
from lnbnn import LateFusion, LocalNBNN
from lnbnn.classifiers.trained import PooledSVM
from lnbnn.descriptors.normalization import Normalizer
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.methods.linear_classifiers import fit_linear
from lnbnn.methods.pooled_svm import PooledLinearSVM
from lnbnn.trust.evidence import explain


def images_around(centers, n_images, seed=0):
    """Images of 6 descriptors each around the center of their class, the classes in turn."""
    rng = np.random.default_rng(seed)
    labels = list(range(len(centers))) * n_images
    return [
        make_features((centers[c] + 0.3 * rng.normal(size=(6, len(centers[c])))).astype("f4")) for c in labels
    ], labels


def three_classes(n_images=6, seed=0):
    return images_around(4.0 * np.eye(3), n_images, seed)


def test_the_mean_by_hand():
    method = PooledLinearSVM(PooledSVM())
    floats = method.prepare(make_features(np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)), None)
    assert floats.descriptors.tolist() == [[2.0, 4.0]]
    assert floats.xy.tolist() == [[0.5, 0.5]]
    whole = method.prepare(make_features(np.array([[127, 0], [127, 254]], np.uint8)), None)
    assert whole.descriptors.tolist() == [[1.0, 1.0]]  # 8-bit descriptors are unit vectors times 127


def test_the_mean_is_turned_to_components_but_not_scaled():
    normalizer = Normalizer(np.array([1.0, 1.0], np.float32), np.array([[2.0], [0.0]], np.float32))
    # The mean (2, 4), less (1, 1), is (1, 3); its one component is 2 * 1 + 0 * 3.
    features = make_features(np.array([[1.0, 2.0], [3.0, 6.0]], np.float32))
    found = PooledLinearSVM(PooledSVM()).prepare(features, normalizer)
    assert found.descriptors.tolist() == [[2.0]]


def test_scores_are_those_of_the_svms():
    images, labels = three_classes()
    model = PooledSVM(C=2.0).fit(images, labels)
    means = np.array([image.descriptors.mean(axis=0, dtype=float) for image in images]).astype(np.float32)
    center = means.mean(axis=0, dtype=float)
    order = np.lexsort((*means.T, labels))
    unit = (means - center) / np.linalg.norm(means - center, axis=1, keepdims=True)
    coef, intercept = fit_linear(unit[order], np.array(labels)[order], 3, 2.0, kind="svm")
    assert np.allclose(model.decision_function(images), unit @ coef.T + intercept)
    assert model.predict(three_classes(seed=5)[0]).tolist() == three_classes(seed=5)[1]


def test_held_out_scores_come_from_svms_that_had_not_seen_the_image():
    images, labels = three_classes(n_images=5)
    swapped = [*labels]
    swapped[0], swapped[1] = labels[1], labels[0]
    held_out = PooledSVM().fit(images, swapped).held_out_scores()
    assert held_out[:2].argmax(axis=1).tolist() == labels[:2]  # not the wrong labels that were given


def test_an_image_alone_in_its_class_is_not_held_out():
    images, labels = three_classes(n_images=3)
    labels[2] = labels[5] = 0
    model = PooledSVM().fit(images, labels)
    held_out = model.held_out_scores()
    assert not held_out[8].any()
    assert held_out[np.arange(9) != 8].any(axis=1).all()


def test_bad_settings_and_descriptors():
    images, labels = three_classes(n_images=2)
    for C in (0.0, -1.0, float("nan"), "much"):
        with pytest.raises(InvalidInputError, match="C must be a number above 0"):
            PooledSVM(C=C).fit(images, labels)
    other = make_features(np.ones((4, 7), np.float32))
    with pytest.raises(InvalidInputError, match=r"must all have the same length; got 3, 7"):
        PooledSVM().fit([*images, other], [*labels, 0])
    with pytest.raises(InvalidInputError, match="must have the length 3, as those the model was fitted on; got 7"):
        PooledSVM().fit(images, labels).predict([other])


def test_arrays_that_do_not_fit_are_refused(tmp_path):
    images, labels = three_classes(n_images=2)
    model = PooledSVM().fit(images, labels)
    model.method_.coef = model.method_.coef[:, :2]
    model.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="the SVM's arrays do not fit the images"):
        lnbnn.load(tmp_path / "model")


def test_as_a_voice_in_a_fusion(tmp_path):
    images, labels = three_classes()
    queries, truth = three_classes(seed=8)
    members = [("cells", LocalNBNN(3, index="exact")), ("pooled", PooledSVM())]
    fusion = LateFusion(members).fit(images, labels)
    assert fusion.predict(queries).tolist() == truth
    cells, pooled = fusion.estimators_
    expected = fusion.weights_[0] * np.log(cells.predict_proba(queries)) + fusion.weights_[1] * np.log(
        pooled.predict_proba(queries)
    )
    found = fusion.decision_function(queries)
    assert np.allclose(found - found[:, :1], expected - expected[:, :1])
    fusion.save(tmp_path / "model")
    assert np.array_equal(lnbnn.load(tmp_path / "model").decision_function(queries), found)
    evidence = explain(fusion, queries[0])  # the patches of Local NBNN; the pooled SVMs count in the ranking
    assert len(evidence.support) == len(queries[0])
    assert [label for label, _ in evidence.ranking] == [label for label, _ in fusion.ranking(found[0])]


def test_methods_with_one_descriptor_extract_once(monkeypatch, tmp_path, make_photos):
    from pathlib import Path

    from synthetic import small_sift

    photos = sorted(Path(make_photos(tmp_path / "photos")).rglob("*.png"))
    descriptor = small_sift()
    calls = []
    extract = type(descriptor).extract
    monkeypatch.setattr(type(descriptor), "extract", lambda self, image: calls.append(1) or extract(self, image))
    members = [("cells", LocalNBNN(3, descriptor=descriptor)), ("pooled", PooledSVM(descriptor=descriptor))]
    LateFusion(members).fit([str(path) for path in photos], [path.parent.name for path in photos])
    assert len(calls) == len(photos)

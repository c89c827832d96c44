"""The affine correction: by hand, against slow versions of its formulas, and on distances made unequal on purpose."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import grating_set, make_features, small_sift

from lnbnn import NBNN, AffineNBNN, load
from lnbnn.errors import ModelFormatError
from lnbnn.methods.affine_correction import fit_affine
from lnbnn.trust.evidence import explain


def unequal_features(seed=0):
    """Two classes of overlapping descriptors: 2 images of "small", 12 of "large"; and 20 of each to ask for."""
    rng = np.random.default_rng(seed)

    def image(label):
        center = {"small": 0.0, "large": 1.0}[label]
        return make_features(rng.normal(center, 2.0, (20, 4)).astype(np.float32))

    train = ["small"] * 3 + ["large"] * 15
    test = ["small"] * 20 + ["large"] * 20
    return [image(label) for label in train], train, [image(label) for label in test], test


def affine(**changes):
    return AffineNBNN(**{"location_weight": 0, "index": "exact", "n_jobs": 1, **changes})


def test_plain_nbnn_leans_to_the_large_class_and_the_correction_does_not():
    train, labels, test, truth = unequal_features()
    plain = NBNN(location_weight=0, index="exact").fit(train, labels).predict(test)
    corrected = affine().fit(train, labels).predict(test)
    assert np.mean(plain == "large") > 0.9
    assert abs(np.mean(corrected == "large") - 0.5) < 0.2
    assert np.mean(corrected == truth) > np.mean(plain == truth) + 0.2


def test_without_correction_it_is_nbnn():
    images, labels = grating_set(n_images=3)
    classifier = affine(regularization=1e9, descriptor=small_sift()).fit(images, labels)
    assert classifier.alpha_.tolist() == [1.0] * 3
    queries = grating_set(seed=9)[0]
    plain = NBNN(location_weight=0, index="exact", descriptor=small_sift()).fit(images, labels).totals(queries)
    n = len(classifier.query_features(queries[0]))
    assert np.allclose(classifier.totals(queries), plain / n)
    assert np.array_equal(np.argsort(classifier.totals(queries)), np.argsort(plain))


def test_totals_are_the_formula():
    train, labels, test, _ = unequal_features()
    classifier = affine(query_budget=7).fit(train, labels)
    totals = classifier.totals(test[:3])
    for row, image in enumerate(test[:3]):
        queries = classifier.query_features(image).descriptors
        assert len(queries) == 7
        for place, label in enumerate(classifier.classes_):
            own = np.vstack([f.descriptors for f, y in zip(train, labels, strict=True) if y == label])
            nearest = ((queries[:, None] - own[None]) ** 2).sum(axis=2).min(axis=1)
            expected = classifier.alpha_[place] * nearest.mean() + classifier.beta_[place]
            assert totals[row, place] == pytest.approx(expected, rel=1e-5)


def test_parameters_come_from_distances_with_every_class_one_image_short():
    train, labels, _, _ = unequal_features()
    classifier = affine().fit(train, labels)
    places = classifier.places_
    found = classifier.reference_distances_
    plain = NBNN(location_weight=0, index="exact").fit(train, labels)
    own = np.arange(len(train)), places
    assert np.allclose(found[own], plain.reference_totals()[own] / 20)  # its own class lacks the image itself
    short = {label: set() for label in (0, 1)}
    for row, image in enumerate(train):
        other = 1 - places[row]
        members = np.flatnonzero(places == other)
        gaps = [
            ((image.descriptors[:, None] - train[i].descriptors[None]) ** 2).sum(axis=2).min(axis=1) for i in members
        ]
        choices = [np.mean(np.min(np.delete(gaps, i, axis=0), axis=0)) for i in range(len(members))]
        fits = np.flatnonzero(np.isclose(found[row, other], choices))
        assert len(fits)  # the other class lacks one of its images
        if len(fits) == 1:
            short[other].add(int(fits[0]))
    # In turn: the 3 small images miss 3 different ones of the 15 large, the 15 large ones each of the 3 small.
    assert [len(short[0]), len(short[1])] == [3, 3]
    alpha, beta = fit_affine(found, places)
    assert np.array_equal(classifier.alpha_, alpha)
    assert np.array_equal(classifier.beta_, beta)


def test_what_is_learned_does_not_depend_on_the_order_of_the_images():
    train, labels, _, _ = unequal_features()
    order = np.random.default_rng(0).permutation(len(train))
    first = affine().fit(train, labels)
    second = affine().fit([train[i] for i in order], [labels[i] for i in order])
    assert np.allclose(first.reference_distances_[order], second.reference_distances_)
    assert np.allclose(first.alpha_, second.alpha_)
    assert np.allclose(first.beta_, second.beta_)


def test_a_class_of_one_image_stays_whole_for_the_others():
    train, labels, _, _ = unequal_features()
    classifier = affine().fit(train[2:], labels[2:])
    plain = NBNN(location_weight=0, index="exact").fit(train[2:], labels[2:])
    lone = classifier.classes_.tolist().index("small")
    assert np.allclose(classifier.reference_distances_[1:, lone], plain.reference_totals()[1:, lone] / 20)
    assert (classifier.alpha_[lone], classifier.beta_[lone]) == (1.0, 0.0)


def test_saved_and_loaded(tmp_path):
    train, labels, test, _ = unequal_features()
    classifier = affine(balance=0.25, regularization=0.05).fit(train, labels)
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.balance == 0.25
    for name in ("alpha_", "beta_", "reference_distances_"):
        assert getattr(again, name).tobytes() == getattr(classifier, name).tobytes()
    assert again.totals(test).tobytes() == classifier.totals(test).tobytes()


@pytest.mark.parametrize("value", [np.ones(3), np.array([1.0, np.nan])])
def test_damaged_correction(tmp_path, value):
    train, labels, _, _ = unequal_features()
    classifier = affine().fit(train, labels)
    classifier.method_.alpha = value
    classifier.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match=r"alpha\.npy does not fit the classes and images; fit the model again"):
        load(tmp_path / "model")


def test_evidence_sums_to_the_difference_of_the_totals():
    images, labels = grating_set(n_images=3)
    classifier = affine(descriptor=small_sift()).fit(images, labels)
    query = grating_set(seed=9)[0][0]
    evidence = explain(classifier, query, label="direction 0", against="direction 1")
    totals = classifier.totals([query])[0]
    assert evidence.support.sum() == pytest.approx(totals[1] - totals[0])

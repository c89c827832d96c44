"""Evidence: the updates of an answer, laid over the picture."""

from __future__ import annotations

import numpy as np
import pytest
from quick import quick
from sklearn.exceptions import NotFittedError
from synthetic import flat_image, grating_set, small_sift

from lnbnn import ImageFeatures, LateFusion, LocalNBNN
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.errors import InvalidInputError
from lnbnn.methods.matching import MatchingMethod
from lnbnn.params import resolve
from lnbnn.trust.evidence import explain, support_map


def matches_patches(name):
    classifier = resolve(CLASSIFIERS, name, "method")()
    return isinstance(classifier.make_method(classifier.make_descriptor()), MatchingMethod)


WITH_EVIDENCE = [name for name in sorted(CLASSIFIERS) if matches_patches(name)]


def fitted(method="local-nbnn", **changes):
    kind = resolve(CLASSIFIERS, method, "method")
    settings = {"descriptor": small_sift(), "index": "exact", "query_budget": None, "n_jobs": 1}
    return kind(**{**settings, **changes}).fit(*grating_set())


def query():
    return grating_set(seed=4)[0][2]  # of class "direction 1"


def features_at(boxes, size):
    """Patches given as (center x, center y, side) in pixels."""
    boxes = np.array(boxes, float)
    xy = boxes[:, :2] / np.array(size)
    return ImageFeatures(np.zeros((len(boxes), 4), np.uint8), xy, boxes[:, 2], size)


# ---- the map ---------------------------------------------------------------------------------------------------------


def test_map_by_hand():
    # A patch of side 2 around (2, 1) in a picture of 5 x 3: columns 1 and 2, rows 0 and 1, a quarter each.
    support = support_map(features_at([(2, 1, 2)], (5, 3)), np.array([8.0]))
    assert support.tolist() == [[0, 2, 2, 0, 0], [0, 2, 2, 0, 0], [0, 0, 0, 0, 0]]


def test_patches_add_up():
    features = features_at([(2, 1, 2), (2, 1, 2), (4, 2, 2)], (5, 3))
    support = support_map(features, np.array([4.0, -8.0, 8.0]))
    assert np.allclose(support, [[0, -1, -1, 0, 0], [0, -1, -1, 2, 2], [0, 0, 0, 2, 2]])


def test_patch_over_the_border_keeps_its_sum():
    support = support_map(features_at([(0, 0, 4)], (5, 3)), np.array([8.0]))
    assert support.tolist() == [[2, 2, 0, 0, 0], [2, 2, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_map_equals_a_loop_and_keeps_the_sum():
    rng = np.random.default_rng(0)
    width, height, n = 40, 30, 200
    boxes = np.column_stack([rng.uniform(0, width, n), rng.uniform(0, height, n), rng.choice([1, 16, 24, 84], n)])
    features = features_at(boxes, (width, height))
    support = rng.normal(size=n)
    expected = np.zeros((height, width))
    for place in range(n):
        x, y = features.xy[place] * np.float32([width, height])
        half = features.scale[place] / 2
        rows = [
            r for r in range(height) if r >= np.floor(y - half) and r < max(np.ceil(y + half), np.floor(y - half) + 1)
        ]
        columns = [
            c for c in range(width) if c >= np.floor(x - half) and c < max(np.ceil(x + half), np.floor(x - half) + 1)
        ]
        expected[np.ix_(rows, columns)] += support[place] / (len(rows) * len(columns))
    found = support_map(features, support)
    assert found.shape == (height, width)
    assert np.allclose(found, expected, atol=1e-9)
    assert np.isclose(found.sum(), support.sum())


def test_places_on_the_far_corner():
    support = support_map(features_at([(5, 3, 0.5)], (5, 3)), np.array([1.0]))
    assert support[2, 4] == pytest.approx(1.0)
    assert support.sum() == pytest.approx(1.0)


def test_no_patches():
    features = ImageFeatures(np.empty((0, 4), np.uint8), np.empty((0, 2)), np.empty(0), (5, 3))
    assert support_map(features, np.empty(0)).tolist() == np.zeros((3, 5)).tolist()


# ---- explain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", WITH_EVIDENCE)
def test_evidence_for_the_answer(method):
    classifier = fitted(method)
    evidence = explain(classifier, query())
    totals = classifier.totals([query()])[0]
    assert evidence.label == "direction 1"
    assert evidence.against is None
    assert evidence.map.shape == (48, 48)
    assert np.isclose(evidence.map.sum(), evidence.support.sum())
    assert np.isclose(evidence.support.sum(), -totals[1])
    assert len(evidence.support) == len(evidence.features)
    assert evidence.ranking[0] == ("direction 1", -totals[1])
    assert [score for _, score in evidence.ranking] == sorted(-totals, reverse=True)


@pytest.mark.parametrize("method", WITH_EVIDENCE)
def test_evidence_for_another_class_and_against(method):
    classifier = fitted(method)
    totals = classifier.totals([query()])[0]
    other = explain(classifier, query(), label="direction 2")
    assert other.label == "direction 2"
    assert np.isclose(other.support.sum(), -totals[2])
    versus = explain(classifier, query(), label="direction 1", against="direction 2")
    assert np.allclose(versus.support, explain(classifier, query()).support - other.support)
    assert np.isclose(versus.map.sum(), totals[2] - totals[1])
    assert versus.support.sum() > 0
    turned = explain(classifier, query(), label="direction 2", against="direction 1")
    assert np.allclose(turned.map, -versus.map)


def test_against_alone_compares_the_answer():
    evidence = explain(fitted(), query(), against="direction 0")
    assert (evidence.label, evidence.against) == ("direction 1", "direction 0")


def test_local_evidence_is_never_negative():
    assert (explain(fitted(), query()).support >= 0).all()


def test_integer_label_zero():
    images, _ = grating_set()
    classifier = LocalNBNN(5, descriptor=small_sift(), index="exact", n_jobs=1).fit(images, [0, 0, 1, 1, 2, 2])
    assert explain(classifier, query(), label=0).label == 0
    assert explain(classifier, query(), against=0).against == 0
    assert explain(classifier, query(), label="0", against="2").against == 2, "by name, as a command gives it"


def test_budget_and_evidence_agree():
    evidence = explain(fitted(query_budget=10), query())
    assert len(evidence.support) == len(evidence.features) == 10
    again = explain(fitted(query_budget=10), query())
    assert np.array_equal(evidence.map, again.map)


def test_errors():
    classifier = fitted()
    with pytest.raises(InvalidInputError, match="has no class 'zebra'; it knows 3: direction 0, direction 1"):
        explain(classifier, query(), label="zebra")
    with pytest.raises(InvalidInputError, match="has no class 'zebra'"):
        explain(classifier, query(), against="zebra")
    with pytest.raises(InvalidInputError, match="label and against are the same class, 'direction 1'"):
        explain(classifier, query(), label="direction 1", against="direction 1")
    with pytest.raises(InvalidInputError, match="same class"):
        explain(classifier, query(), against="direction 1")
    with pytest.raises(InvalidInputError, match="no descriptors"):
        explain(classifier, flat_image())


def test_unfitted():
    with pytest.raises(NotFittedError):
        explain(LocalNBNN(), query())


def test_evidence_of_ridge_regression_adds_up_to_its_score():
    images, labels = grating_set()
    classifier = PooledRidge(descriptor=small_sift(), alpha=0.1).fit(images, labels)
    scores = classifier.decision_function([query()])[0]
    evidence = explain(classifier, query(), label=labels[0], against=labels[-1])
    assert np.isclose(evidence.support.sum(), scores[0] - scores[-1], atol=1e-5)
    assert np.isclose(evidence.map.sum(), evidence.support.sum())
    assert evidence.photos == ()  # no labeled image speaks by itself
    assert [label for label, _ in evidence.ranking] == [label for label, _ in classifier.ranking(scores)]


def test_evidence_of_a_fusion_with_ridge_regression_adds_up_to_its_log_odds():
    images, labels = grating_set(n_images=3)
    members = [("cells", quick(LocalNBNN, stop_confidence=None)), ("head", PooledRidge(descriptor=small_sift()))]
    fusion = LateFusion(members, n_jobs=1).fit(images, labels)
    fusion.model_.weights = np.array([0.7, 0.4])
    scores = fusion.decision_function([images[0]])[0]
    evidence = explain(fusion, images[0], label=labels[0], against=labels[-1])
    assert np.isclose(evidence.support.sum(), scores[0] - scores[-1], atol=1e-4)
    assert len(evidence.support) == 2 * 36
    assert {photo.image.label for photo in evidence.photos} == {labels[0]}


@pytest.mark.parametrize(
    "method", sorted({*CLASSIFIERS} - {*WITH_EVIDENCE, "fisher", "fisher-slc", "pooled-ridge", "slc"})
)
def test_a_method_without_patch_matches_says_so(method):
    classifier = resolve(CLASSIFIERS, method, "method")(descriptor=small_sift(), n_jobs=1).fit(*grating_set())
    with pytest.raises(InvalidInputError, match=f"method '{method}' has no patch matches to show"):
        explain(classifier, query())


def test_the_papers_methods_have_evidence():
    assert {"local-nbnn", "nbnn", "nbnn-log-odds"} <= {*WITH_EVIDENCE}


def test_evidence_of_a_fusion_adds_up_to_its_log_odds():
    images, labels = grating_set(n_images=3)
    small = {"bin_sizes": [4], "step_px": 7, "min_contrast": 0.5, "longest_side": 48}
    coarse = {"bin_sizes": [6], "step_px": 5, "min_contrast": 0.5, "longest_side": 64}
    members = [(f"part{i}", LocalNBNN(5, descriptor_params=params)) for i, params in enumerate((small, coarse))]
    fusion = LateFusion(members).fit(images, labels)
    evidence = explain(fusion, images[0], label="direction 0", against="direction 1")
    scores = fusion.decision_function(images[:1])[0]
    assert evidence.support.sum() == pytest.approx(scores[0] - scores[1])
    assert evidence.map.sum() == pytest.approx(evidence.support.sum())
    assert evidence.map.shape == (48, 48)
    assert len(evidence.features) == len(evidence.support)
    assert evidence.ranking[0][0] == fusion.predict(images[:1])[0]

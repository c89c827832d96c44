"""What the NBNN family shares: the query budget, stopping when the lead is sure, place and size, leaving images out."""

from __future__ import annotations

import numpy as np
import pytest
from quick import KERNEL_METHODS, NEIGHBOR_METHODS, fitted, make, queries
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from synthetic import flat_image, grating_set, small_sift

from lnbnn import NBNN, ImageFeatures, LocalNBNN
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.errors import InvalidInputError, UnknownNameError
from lnbnn.methods.matching import ids_of_image, image_of_id
from lnbnn.params import resolve


@pytest.fixture(params=NEIGHBOR_METHODS)
def neighbor_method(request):
    """A method that searches for the neighbors of descriptors: it has an index, a query budget, totals and updates."""
    return request.param


@pytest.mark.parametrize("act", ["totals", "updates", "query_features"])
def test_unfitted_neighbors(neighbor_method, act):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(make(neighbor_method), act)([flat_image()] if act == "totals" else flat_image())


def test_totals_are_the_scores_turned(neighbor_method):
    classifier = fitted(neighbor_method)
    images, _ = queries()
    turned = np.array_equal(classifier.totals(images), -classifier.decision_function(images))
    assert (
        turned == classifier.method_.has_patch_evidence
    )  # methods that learn on top of the totals have scores of their own


def test_updates_sum_to_the_totals(neighbor_method):
    classifier = fitted(neighbor_method)
    image = queries()[0][0]
    updates = classifier.updates(image)
    assert len(updates.values) == len(classifier.query_features(image))
    assert np.array_equal(updates.totals(3), classifier.totals([image])[0])


@pytest.mark.parametrize("index", ["exact", "faiss"])
def test_every_index_gives_the_same(neighbor_method, index):
    found = fitted(neighbor_method, index=index).totals(queries()[0])
    assert np.array_equal(found, fitted(neighbor_method).totals(queries()[0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"location_weight": 2.5}, "location_weight must be from 0"),
        ({"scale_weight": 0.5}, "scale_weight must be from 0"),
        ({"index_params": {"speed": 1}}, "'exact' has no setting 'speed'"),
    ],
)
def test_bad_settings_of_neighbors(neighbor_method, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        make(neighbor_method, **changes).fit(*grating_set())


def test_unknown_index(neighbor_method):
    with pytest.raises(UnknownNameError, match="choose one of"):
        make(neighbor_method, index="annoy").fit(*grating_set())


# ---- the query budget ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "n_kept"), [(None, 36), (1, 1), (20, 20), (36, 36), (5000, 36), (0.5, 18), (0.01, 1), (1.0, 36)]
)
def test_query_budget(neighbor_method, budget, n_kept):
    classifier = fitted(neighbor_method, query_budget=budget)
    image = queries()[0][0]
    features = classifier.query_features(image)
    assert len(features) == n_kept
    everything = {(*row, *xy) for row, xy in zip(*all_rows(small_sift().extract(image)), strict=True)}
    kept = [(*row, *xy) for row, xy in zip(*all_rows(features), strict=True)]
    assert len(set(kept)) == n_kept
    assert set(kept) <= everything


def all_rows(features):
    return features.descriptors.tolist(), features.xy.tolist()


def test_query_budget_is_seeded(neighbor_method):
    image = queries()[0][0]
    first, again, other = (
        fitted(neighbor_method, query_budget=10, random_state=seed).query_features(image).xy.tolist()
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_query_budget_keeps_the_order_of_the_descriptors(neighbor_method):
    features = fitted(neighbor_method, query_budget=10).query_features(queries()[0][0])
    places = [(y, x) for x, y in features.xy.tolist()]
    assert places == sorted(places)


def test_query_budget_of_an_image_without_descriptors(neighbor_method):
    assert len(fitted(neighbor_method, query_budget=0.5).query_features(flat_image())) == 0
    assert len(fitted(neighbor_method, query_budget=10).query_features(flat_image())) == 0


@pytest.mark.parametrize("budget", [0, -5, 0.0, 1.5, -0.5, float("nan"), True, "all"])
def test_bad_query_budget(neighbor_method, budget):
    with pytest.raises(InvalidInputError, match="query_budget must be None"):
        make(neighbor_method, query_budget=budget).fit(*grating_set())


def test_location_decides_between_equal_patches():
    # Two classes with the same patch, left and right in the picture: only the place tells them apart.
    def at(x):
        return ImageFeatures(np.array([[50, 50]], np.uint8), [[x, 0.5]], [16], (100, 100))

    reference, labels = [at(0.1), at(0.9), at(0.5)], ["left", "right", "center"]
    for method in sorted({*NEIGHBOR_METHODS} - {*KERNEL_METHODS}):
        kind = resolve(CLASSIFIERS, method, "method")
        classifier = kind(location_weight=1.6, index="exact")
        if method == "local-nbnn":
            classifier.set_params(n_neighbors=2)
        assert classifier.fit(reference, labels).predict([at(0.15), at(0.8)]).tolist() == ["left", "right"]


def test_size_decides_between_equal_patches():
    # The same patch at the same place, in three sizes.
    def of_side(side):
        return ImageFeatures(np.array([[50, 50]], np.uint8), [[0.5, 0.5]], [side], (100, 100))

    reference, labels = [of_side(10), of_side(80), of_side(30)], ["small", "large", "middling"]
    for method in sorted({*NEIGHBOR_METHODS} - {*KERNEL_METHODS}):
        classifier = resolve(CLASSIFIERS, method, "method")(scale_weight=0.25, index="exact")
        if method == "local-nbnn":
            classifier.set_params(n_neighbors=2)
        assert classifier.fit(reference, labels).predict([of_side(12), of_side(70)]).tolist() == ["small", "large"]


def test_ids_of_an_image():
    ids = ids_of_image(5, 3)
    assert list(ids) == [(5 << 20), (5 << 20) + 1, (5 << 20) + 2]
    assert image_of_id(np.append(np.array(ids), -1)).tolist() == [5, 5, 5, -1]
    with pytest.raises(InvalidInputError, match="at most 1048576 descriptors; got 1048577"):
        ids_of_image(0, (1 << 20) + 1)


@pytest.mark.parametrize("method", ["local-nbnn", "nbnn"])
def test_leaving_an_image_out_is_fitting_without_it(method):
    images, labels = grating_set(n_classes=3, n_images=3)
    classifier = make(method, index="exact", query_budget=None).fit(images, labels)
    found = classifier.reference_totals()
    assert found.shape == (9, 3)
    for number in range(9):
        rest = [place for place in range(9) if place != number]
        without = clone(classifier).fit([images[i] for i in rest], [labels[i] for i in rest])
        assert np.array_equal(without.totals([images[number]])[0], found[number])


# ---- stopping when the lead is sure ----------------------------------------------------------------------------------


def asked_for(classifier, features):
    """Scores of an image, and how many of its descriptors each search asked for."""
    counts, search = [], classifier.index_.search

    def counting(vectors, *args, **kwargs):
        counts.append(len(vectors))
        return search(vectors, *args, **kwargs)

    classifier.index_.search = counting
    scores = classifier.decision_function([features])[0]
    del classifier.index_.search
    return scores, counts


def many_features(center, seed):
    """1,200 descriptors around one value: as clear as an answer can be."""
    rng = np.random.default_rng(seed)
    descriptors = np.clip(rng.normal(center, 20, (1200, 4)), 0, 255).astype(np.uint8)
    return ImageFeatures(descriptors, rng.random((1200, 2)), np.full(1200, 16), (300, 200))


def two_clouds(apart, **settings):
    training = [many_features(100, 0), many_features(100 + apart, 1)]
    return LocalNBNN(location_weight=0.0, scale_weight=0.0, n_jobs=1, query_budget=None, **settings).fit(
        training, ["low", "high"]
    )


def test_clear_answers_stop_early():
    classifier = two_clouds(apart=60)
    scores, counts = asked_for(classifier, many_features(100, 2))
    assert counts == [300], "1,200 descriptors in 4 rounds, and one is enough"
    assert classifier.classes_[np.argmax(scores)] == "low"
    everything = -classifier.totals([many_features(100, 2)])[0]
    assert scores == pytest.approx(everything, rel=0.2), "an estimate of the full sums, not a part of them"


def test_close_answers_ask_for_everything():
    classifier = two_clouds(apart=0)
    features = many_features(100, 3)
    scores, counts = asked_for(classifier, features)
    assert sum(counts) == 1200
    assert np.allclose(scores, -classifier.totals([features])[0], rtol=1e-12)


def test_no_confidence_asks_for_everything_at_once():
    assert asked_for(two_clouds(apart=60, stop_confidence=None), many_features(100, 2))[1] == [1200]


def test_rounds_are_even_samples_of_the_descriptors():
    classifier = two_clouds(apart=0)
    features, seen = many_features(100, 3), []
    search = classifier.index_.search
    classifier.index_.search = lambda vectors, *a, **k: seen.append(vectors) or search(vectors, *a, **k)
    classifier.decision_function([features])
    for vectors, first in zip(seen, (0, 2, 1, 3), strict=True):
        assert np.array_equal(vectors, features.descriptors[first::4])


@pytest.mark.parametrize("confidence", [0.5, 1.0, -1, 95, "often"])
def test_bad_stop_confidence(confidence):
    with pytest.raises(InvalidInputError, match="stop_confidence must be above"):
        two_clouds(apart=60, stop_confidence=confidence)


def test_nbnn_stops_early_too():
    training = [many_features(100, 0), many_features(160, 1)]
    settings = {"location_weight": 0.0, "n_jobs": 1, "index": "exact"}
    stopping = NBNN(**settings).fit(training, ["low", "high"])
    patient = NBNN(**settings, stop_confidence=None).fit(training, ["low", "high"])
    query = many_features(100, 2)
    scores = [model.decision_function([query])[0] for model in (stopping, patient)]
    assert np.argmax(scores[0]) == np.argmax(scores[1])
    assert not np.array_equal(*scores)
    assert scores[0] == pytest.approx(scores[1], rel=0.2)

"""The classifier that chooses by itself: samples, trials, choices and reports, by hand and on small sets."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic import grating_set, small_sift

from lnbnn import LateFusion, LocalNBNN, load
from lnbnn.classifiers.auto import Auto, Choice, Trial, _expected, _sample, _Trials, worthwhile
from lnbnn.classifiers.fisher import FisherVectors
from lnbnn.classifiers.options import make_classifier
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.errors import InvalidInputError
from lnbnn.model.calibration import fit_fusion_weights, fuse, negative_log_likelihood
from lnbnn.references import Reference, References

SIFT, KEYS = ["dense-sift"], ["keypoint-sift"]


def photos(n_classes=3, n_images=3, seed=0):
    return grating_set(n_classes=n_classes, n_images=n_images, seed=seed)


@pytest.fixture(scope="module")
def chosen():
    return Auto(descriptors=["deep", "dense-sift"], n_jobs=1).fit(*photos())


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def test_all_images_are_tried_on_if_there_are_few():
    assert _sample(["a", "a", "b"], 20, 0) == [0, 1, 2]


def test_whole_classes_are_drawn_if_there_are_many():
    labels = [label for label in "abcdefgh" for _ in range(4)] + ["alone"]
    found = _sample(labels, 12, 0)
    counts = {label: sum(labels[i] == label for i in found) for label in "abcdefgh"}
    assert sorted(counts.values()) == [0] * 5 + [4] * 3
    assert 32 not in found  # alone in its class, it can not be left out
    assert found == _sample(labels, 12, 0) != _sample(labels, 12, 1)


def test_two_classes_are_tried_on_at_least_and_no_more_than_thirty_images_of_one():
    labels = ["a"] * 50 + ["b"] * 50 + ["c"] * 50
    found = _sample(labels, 20, 0)
    assert [sum(labels[i] == label for i in found) for label in "abc"].count(30) == 2


@pytest.mark.parametrize("labels", [["a", "a", "a"], ["a", "b", "c"]])
def test_nothing_is_tried_where_nothing_can_be_left_out(labels):
    assert _sample(labels, 20, 0) == []


# ---- what is taken ---------------------------------------------------------------------------------------------------


def trials_of(**log_probas):
    """Trials of candidates ``kind_descriptor`` with these probabilities of the right class, of two classes."""
    trials = _Trials(Auto(), [], [], "raise", None)
    n = len(next(iter(log_probas.values())))
    trials.references = References(Reference(i, f"{i}", "ab"[i % 2], 9) for i in range(n))
    for name, right in log_probas.items():
        right = np.asarray(right)
        rows = np.stack([np.where(np.arange(n) % 2 == c, right, 1 - right) for c in (0, 1)], axis=1)
        trials.log_probas[name] = np.log(rows)
        trials.kind_of[name] = name.rpartition("_")[0]
        descriptor = SimpleNamespace(name=name.split("_")[1], normalization=None)
        settings = LocalNBNN() if name.startswith("near") else FisherVectors()
        trials.models[name] = SimpleNamespace(descriptor=descriptor, settings=settings)
        trials.trials[name] = Trial(name, float((right > 0.5).mean()), float(-np.log(right).mean()))
    return trials


def test_the_best_of_each_kind_is_taken_and_what_says_nothing_leaves():
    good, other = [0.9, 0.9, 0.2, 0.9, 0.9, 0.9], [0.9, 0.9, 0.9, 0.2, 0.9, 0.9]
    noise = [0.5] * 6
    trials = trials_of(near_sift_1=good, near_sift_2=[0.6] * 6, near_cells_1=other, near_keys_1=noise)
    taken = trials.chosen()
    assert taken == ["near_sift_1", "near_cells_1", "near_keys_1"]
    log_probas, places = trials._used(taken)
    descriptors = dict(zip(taken, ["sift", "cells", "keys"], strict=True))
    assert worthwhile(descriptors, dict(zip(taken, log_probas, strict=True)), places, 0.001) == taken[:2]


@pytest.mark.parametrize(("lead", "taken"), [(0.3, ["near_sift_1", "codes_sift_1"]), (0.1, ["codes_sift_1"])])
def test_an_index_beside_another_member_must_be_worth_a_hundredth_of_the_loss(lead, taken):
    rng = np.random.default_rng(0)
    codes = np.clip(rng.normal(0.75, 0.2, 400), 0.05, 0.95)
    index = np.clip(0.5 + 0.05 * rng.normal(lead, 1.0, 400), 0.05, 0.95)
    trials = trials_of(near_sift_1=index, codes_sift_1=codes)
    log_probas, places = trials._used(["near_sift_1", "codes_sift_1"])
    alone, both = (
        negative_log_likelihood(fuse(given, fit_fusion_weights(given, places)), places)
        for given in (log_probas[1:], log_probas)
    )
    assert (alone / both > 1.01) == (len(taken) == 2)
    assert trials.chosen() == taken
    assert trials_of(near_sift_1=index, codes_cells_1=codes).chosen() == ["near_sift_1", "codes_cells_1"]


def worth_of(first_descriptor, second_descriptor):
    """What is chosen of two candidates, of which the second lowers the loss by about 0.1 %."""
    rng = np.random.default_rng(0)
    first = np.clip(rng.normal(0.75, 0.2, 400), 0.05, 0.95)
    slightly = np.clip(0.5 + 0.03 * rng.normal(0.12, 1.0, 400), 0.2, 0.8)
    trials = trials_of(near_cells_1=first, head_cells_1=slightly)
    log_probas, places = trials._used(["near_cells_1", "head_cells_1"])
    losses = [
        negative_log_likelihood(fuse(given, fit_fusion_weights(given, places)), places)
        for given in (log_probas[:1], log_probas)
    ]
    assert 0.0005 < losses[0] / losses[1] - 1 < 0.003
    given = {"first": first_descriptor, "second": second_descriptor}
    return worthwhile(given, dict(zip(given, log_probas, strict=True)), places, 0.003)


def test_a_method_on_a_descriptor_that_is_read_anyway_stays_for_less():
    assert worth_of("cells", "cells") == ["first", "second"]
    assert worth_of("cells", "sift") == ["first"]


def test_one_is_enough_if_the_others_say_the_same():
    trials = trials_of(near_sift_1=[0.9, 0.7, 0.2, 0.9])
    (same,), places = trials._used(["near_sift_1"])
    assert worthwhile({"a": "sift", "b": "cells"}, {"a": same, "b": same}, places, 0.001) == ["b"]


def test_members_that_are_not_worth_it_leave_the_fusion():
    images, labels = photos(n_images=4)
    cells = LocalNBNN(5, descriptor=small_sift(), n_jobs=1)
    noise = LocalNBNN(5, descriptor=small_sift(step_px=9), n_jobs=1)
    fusion = LateFusion([("cells", cells), ("noise", noise), ("head", PooledRidge(descriptor=small_sift()))]).fit(
        images, labels
    )
    smaller = fusion.model_.of_members([0, 2])
    expected = LateFusion([("cells", cells), ("head", PooledRidge(descriptor=small_sift()))]).fit(images, labels)
    assert np.allclose(smaller.weights, expected.weights_)
    assert [name for name, _ in smaller.settings.estimators] == ["cells", "head"]
    assert smaller.is_incremental
    assert smaller.references == expected.model_.references  # they count the descriptors that are left
    assert fusion.model_.of_members([1]) is fusion.model_.members[1]
    assert fusion.model_.of_members([0, 1, 2]) is fusion.model_


def test_no_candidate_at_all_is_said():
    with pytest.raises(InvalidInputError, match="no descriptor finds anything"):
        _Trials(Auto(), [], [], "raise", None).chosen()


# ---- what is told ----------------------------------------------------------------------------------------------------


def one_by_one(right_by_class):
    """A model that is right for so many of its ten images of each class."""
    places = np.repeat(np.arange(len(right_by_class)), 10)
    scores = np.zeros((len(places), len(right_by_class)))
    for row, place in enumerate(places):
        answer = place if row % 10 < right_by_class[place] else (place + 1) % len(right_by_class)
        scores[row, answer] = 1.0
    references = SimpleNamespace(places=places)
    return SimpleNamespace(held_out_scores=lambda: scores, references=references)


def test_expected_accuracy_by_hand():
    found = _expected(one_by_one([10, 8, 6]), Choice((), 30, 3))
    assert found.accuracy == pytest.approx(0.8)
    # the classes' 1, 0.8, 0.6 have a standard deviation of 0.2: 1.96 * 0.2 / sqrt(3) = 0.226, wider than Wilson's
    assert found.interval == pytest.approx((0.8 - 0.2263, 1.0), abs=1e-3)


def test_certainty_is_never_told():
    found = _expected(one_by_one([10, 10]), Choice((), 20, 2))
    assert found.accuracy == 1.0
    assert found.interval == pytest.approx((1 - 0.1611, 1.0), abs=1e-3)  # Wilson's for 20 of 20: 20 / (20 + 1.96^2)


# ---- all together ----------------------------------------------------------------------------------------------------


def test_it_tries_fuses_and_tells(chosen):
    names = [trial.name for trial in chosen.choice_.trials]
    assert names == [
        "local-nbnn on deep, location weight 1.4",
        "local-nbnn on deep, location weight 0.7",
        "local-nbnn on deep, location weight 0",
        "pooled-ridge on deep",
        "pooled-ridge on deep, the mean alone",
        "local-nbnn on dense-sift, location weight 1.6",
        "local-nbnn on dense-sift, location weight 0.8",
        "local-nbnn on dense-sift, location weight 0",
        "fisher on dense-sift",
        "fisher on dense-sift, without places",
    ]
    assert any(trial.weight > 0 for trial in chosen.choice_.trials)
    assert (chosen.choice_.n_images, chosen.choice_.n_classes) == (9, 3)
    low, high = chosen.choice_.interval
    assert 0.0 <= low <= chosen.choice_.accuracy <= high <= 1.0
    images, labels = photos(seed=9)
    assert chosen.predict(images).tolist() == labels
    assert chosen.model_.is_calibrated


def test_the_choice_does_not_depend_on_threads(chosen):
    again = Auto(descriptors=["deep", "dense-sift"], n_jobs=2).fit(*photos())
    assert again.choice_ == chosen.choice_
    images, _ = photos(seed=9)
    assert np.array_equal(again.decision_function(images), chosen.decision_function(images))


def test_the_model_keeps_the_choice_and_lives(chosen, tmp_path):
    chosen.save(tmp_path / "model")
    model = load(tmp_path / "model")
    assert model.model_.choice == chosen.choice_.as_json()
    assert model.model_.facts()["choice"]["accuracy"] == chosen.choice_.as_json()["accuracy"]
    images, labels = grating_set(n_classes=5, n_images=2, seed=7)
    model.partial_fit(images, [f"{label}, again" for label in labels])
    assert len(model.classes_) == 8


def test_without_a_network_codes_are_tried():
    names = [name for _, name, _ in Auto().candidates("dense-sift", has_network=False)]
    assert names[3:] == [
        "fisher on dense-sift",
        "fisher on dense-sift, without places",
        "slc on dense-sift",
        "slc on dense-sift, a pyramid of 3 levels",
    ]
    assert [name for _, name, _ in Auto().candidates("dense-sift", has_network=True)] == names[:5]


@pytest.mark.parametrize(("accuracy", "tried"), [(0.9, ["deep", "dense-sift"]), (0.7, ["deep", "dense-sift", *KEYS])])
def test_keypoints_are_tried_where_the_others_do_badly(accuracy, tried, monkeypatch):
    run, seen = _Trials.run, []

    def watched(self, names, progress):
        seen.extend(names)
        if names != KEYS:
            run(self, names, progress)

    monkeypatch.setattr(_Trials, "run", watched)
    monkeypatch.setattr(_Trials, "accuracy_of", lambda self, names: accuracy)
    Auto(n_jobs=1).fit(*photos())
    assert seen == tried


def test_one_photo_per_class_is_a_safe_choice_with_a_warning(caplog, tmp_path):
    images, labels = photos(n_images=1)
    with caplog.at_level(logging.WARNING):
        found = Auto(descriptors=SIFT, n_jobs=1).fit(images, labels)
    assert "nothing can be tried" in caplog.text
    assert found.model_.settings.method == "local-nbnn"
    assert found.choice_.accuracy is None
    assert found.predict(images).tolist() == labels
    found.save(tmp_path / "model")
    assert load(tmp_path / "model").predict(images).tolist() == labels


def test_memory_is_kept_within_its_limit(caplog):
    images, _ = photos(n_images=4)
    found = LateFusion([("head", PooledRidge()), ("near", LocalNBNN())])
    with caplog.at_level(logging.WARNING):
        Auto(max_memory=460 << 20)._keep_within_memory(found, images, None)
    assert "to keep within memory" in caplog.text
    assert found.estimators[1][1].make_descriptor().step_px > 8


def test_options(tmp_path):
    assert isinstance(make_classifier(), Auto)
    assert isinstance(make_classifier(params={"n_jobs": 1, "random_state": 3}), Auto)
    assert make_classifier(descriptors=SIFT).method == "local-nbnn"
    assert make_classifier(descriptors=SIFT, preset="auto").descriptors == SIFT
    for options in ({"methods": ["nbnn"]}, {"params": {"n_neighbors": 3}}):
        with pytest.raises(InvalidInputError, match="the preset auto chooses"):
            make_classifier(**options, preset="auto")
    with pytest.raises(InvalidInputError, match="budget must be a number above 0"):
        make_classifier(params={"budget": 0})
    with pytest.raises(InvalidInputError, match="none of the 4 images"):
        Auto(descriptors=SIFT).fit([np.full((40, 40), 7, np.uint8)] * 4, ["a", "a", "b", "b"])

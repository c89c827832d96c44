"""Trials of classifiers: what is drawn, what is taken and what is told, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from synthetic import grating_set, small_sift

from lnbnn import LateFusion, LocalNBNN
from lnbnn.classifiers.auto import Auto
from lnbnn.classifiers.fisher import FisherVectors
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.classifiers.trials import Choice, Trial, Trials, expected, sample, worthwhile
from lnbnn.errors import InvalidInputError
from lnbnn.model.calibration import fit_fusion_weights, fuse, negative_log_likelihood
from lnbnn.references import Reference, References

# ---- what is drawn ---------------------------------------------------------------------------------------------------


def test_all_images_are_tried_on_if_there_are_few():
    assert sample(["a", "a", "b"], 20, 0) == [0, 1, 2]


def test_whole_classes_are_drawn_if_there_are_many():
    labels = [label for label in "abcdefgh" for _ in range(4)] + ["alone"]
    found = sample(labels, 12, 0)
    counts = {label: sum(labels[i] == label for i in found) for label in "abcdefgh"}
    assert sorted(counts.values()) == [0] * 5 + [4] * 3
    assert 32 not in found  # alone in its class, it can not be left out
    assert found == sample(labels, 12, 0) != sample(labels, 12, 1)


def test_two_classes_are_tried_on_at_least_and_no_more_than_thirty_images_of_one():
    labels = ["a"] * 50 + ["b"] * 50 + ["c"] * 50
    found = sample(labels, 20, 0)
    assert [sum(labels[i] == label for i in found) for label in "abc"].count(30) == 2


@pytest.mark.parametrize("labels", [["a", "a", "a"], ["a", "b", "c"]])
def test_nothing_is_tried_where_nothing_can_be_left_out(labels):
    assert sample(labels, 20, 0) == []


# ---- what is taken ---------------------------------------------------------------------------------------------------


def trials_of(**log_probas):
    """Trials of candidates ``kind_descriptor`` with these probabilities of the right class, of two classes."""
    trials = Trials(Auto().candidates, [], [])
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
    images, labels = grating_set(n_classes=3, n_images=4, seed=0)
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
        Trials(Auto().candidates, [], []).chosen()


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
    found = expected(one_by_one([10, 8, 6]), Choice((), 30, 3))
    assert found.accuracy == pytest.approx(0.8)
    # the classes' 1, 0.8, 0.6 have a standard deviation of 0.2: 1.96 * 0.2 / sqrt(3) = 0.226, wider than Wilson's
    assert found.interval == pytest.approx((0.8 - 0.2263, 1.0), abs=1e-3)


def test_certainty_is_never_told():
    found = expected(one_by_one([10, 10]), Choice((), 20, 2))
    assert found.accuracy == 1.0
    assert found.interval == pytest.approx((1 - 0.1611, 1.0), abs=1e-3)  # Wilson's for 20 of 20: 20 / (20 + 1.96^2)

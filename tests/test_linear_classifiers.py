"""Linear classifiers on response vectors: what is chosen for them, and their scores."""

import numpy as np
import pytest

from lnbnn.methods.linear_classifiers import (
    LINEAR_CLASSIFIERS,
    LinearClassifier,
    fit_linear,
    held_out_scores,
    train_linear_classifier,
)

pytestmark = pytest.mark.parametrize("kind", sorted(LINEAR_CLASSIFIERS))


def test_scores_by_hand(kind):
    # (4 - 2) / 2 = 1 times 3 and -3, plus 1 and 0, plus 0.5 times 2 and 4.
    classifier = LinearClassifier(
        np.array([2.0]), np.array([2.0]), np.array([[3.0], [-3.0]]), np.array([1.0, 0.0]), 1.0, 0.5
    )
    assert classifier.scores(np.array([2.0, 4.0]), np.array([4.0])).tolist() == [5.0, -1.0]
    assert classifier.scores(np.array([[2.0, 4.0]]), np.array([[4.0]])).tolist() == [[5.0, -1.0]]


def test_two_classes_have_opposite_coefficients(kind):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 30)
    vectors = np.column_stack([labels * 2.0 - 1.0 + rng.normal(0, 0.3, 60), rng.normal(0, 1.0, 60)])
    c = train_linear_classifier(np.zeros((60, 2)), vectors, labels, kind=kind, seed=0).C
    assert c in LINEAR_CLASSIFIERS[kind][1]
    coef, intercept = fit_linear(vectors, labels, 2, c, kind=kind)
    assert coef.shape == (2, 2)
    assert np.mean(np.argmax(vectors @ coef.T + intercept, axis=1) == labels) > 0.95
    assert np.array_equal(coef[0], -coef[1])


def test_own_scores_weigh_most_where_the_responses_are_noise(kind):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 20)
    noise, own = rng.normal(0, 1.0, (60, 5)), np.eye(3)[labels]
    trained = train_linear_classifier(own, noise, labels, kind=kind, seed=0)
    assert trained.own_weight > 0
    assert np.array_equal(np.argmax(trained.scores(own, noise), axis=1), labels)
    given = train_linear_classifier(own, noise, labels, kind=kind, seed=0, c=0.5, blend=0.0)
    assert (given.C, given.own_weight) == (0.5, 0.0)


def test_own_scores_weigh_nothing_where_they_mislead(kind):
    labels = np.repeat([0, 1, 2], 20)
    trained = train_linear_classifier(-np.eye(3)[labels], np.eye(3)[labels], labels, kind=kind, seed=0)
    assert trained.own_weight == 0.0


def test_held_out_scores_are_of_classifiers_that_have_not_seen_the_image(kind):
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1, 2], 20)
    plain = held_out_scores(4.0 * np.eye(3)[labels], labels, 3, kind=kind, seed=0, c=1.0)
    assert np.argmax(plain[1.0], axis=1).tolist() == labels.tolist()
    noise = rng.normal(0, 1.0, (60, 200))  # any labels can be learned of it by heart, and none foreseen
    coef, intercept = fit_linear(noise, labels, 3, 1.0, kind=kind)
    assert np.mean(np.argmax(noise @ coef.T + intercept, axis=1) == labels) == 1.0
    unseen = held_out_scores(noise, labels, 3, kind=kind, seed=0, c=1.0)[1.0]
    assert np.mean(np.argmax(unseen, axis=1) == labels) < 0.6


def test_order_of_the_images_does_not_matter(kind):
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1, 2], 6)
    responses, own = np.eye(3)[labels] + rng.normal(0, 0.3, (18, 3)), np.eye(3)[labels]
    one = train_linear_classifier(own, responses, labels, kind=kind, seed=0)
    order = rng.permutation(18)
    other = train_linear_classifier(own[order], responses[order], labels[order], kind=kind, seed=0)
    assert np.array_equal(one.scores(own, responses), other.scores(own, responses))


def test_one_class_has_zero_scores(kind):
    coef, intercept = fit_linear(np.ones((3, 2)), np.zeros(3, np.int64), 1, 1.0, kind=kind)
    assert not coef.any()
    assert not intercept.any()

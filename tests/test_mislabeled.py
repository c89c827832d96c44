"""How probable a label is wrong: by hand, and where the wrong ones are known."""

from __future__ import annotations

import numpy as np
import pytest

from lnbnn.errors import InvalidInputError
from lnbnn.trust.mislabeled import doubts, standard_scores, wrong_label_probabilities


def make_scores(n_images=600, n_classes=12, *, strength=4.0, seed=0):
    """Scores that are noise, but for the true class, which stands out by a strength that differs between images."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n_images)
    scores = rng.normal(0.0, 1.0, (n_images, n_classes))
    scores[np.arange(n_images), labels] += rng.uniform(0.0, 2.0 * strength, n_images)
    return scores, labels


def swapped(labels, share, n_classes=12, seed=1):
    rng = np.random.default_rng(seed)
    is_wrong = np.zeros(len(labels), bool)
    is_wrong[rng.choice(len(labels), round(share * len(labels)), replace=False)] = True
    return np.where(is_wrong, (labels + rng.integers(1, n_classes, len(labels))) % n_classes, labels), is_wrong


def test_standard_scores_by_hand():
    """Both images have the squared spread 2/3 or 8/3 about their mean; the median is 5/3, and counts as two classes."""
    found = standard_scores(np.array([[0.0, 1.0, 2.0], [2.0, 4.0, 6.0]]))
    first, second = (3 * 2 / 3 + 2 * 5 / 3) / 5, (3 * 8 / 3 + 2 * 5 / 3) / 5
    assert found == pytest.approx(np.array([[-1.0, 0.0, 1.0] / np.sqrt(first), [-2.0, 0.0, 2.0] / np.sqrt(second)]))


def test_of_two_classes_the_larger_margin_is_still_the_larger_doubt():
    scores = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 9.0]])
    assert (np.diff(doubts(standard_scores(scores), np.array([0, 0, 0]))) > 0).all()


def test_doubts_by_hand():
    standard = np.array([[3.0, 1.0, 0.0]] * 3)
    assert doubts(standard, np.array([0, 1, 2])).tolist() == [-2.0, 2.0, 3.0]


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2])
def test_the_share_of_wrong_labels_is_found(share):
    scores, labels = make_scores()
    given, is_wrong = swapped(labels, share)
    found = wrong_label_probabilities(scores, given)
    assert found.mean() == pytest.approx(share, rel=0.35, abs=0.01)
    listed = found > 0.5
    assert is_wrong[listed].mean() > 0.5, "what the probability promises"
    assert is_wrong[listed].sum() > 0.3 * is_wrong.sum()
    assert is_wrong[found > 0.9].all()


def test_of_right_labels_hardly_any_is_listed():
    scores, labels = make_scores()
    assert (wrong_label_probabilities(scores, labels) > 0.5).sum() <= 3


def test_scores_that_say_nothing_accuse_nobody():
    scores = np.random.default_rng(0).normal(0.0, 1.0, (200, 10))
    labels = np.random.default_rng(1).integers(0, 10, 200)
    assert wrong_label_probabilities(scores, labels).max() < 0.5
    assert wrong_label_probabilities(np.zeros((20, 3)), np.arange(20) % 3).max() < 0.5


def test_one_wrong_label_among_few_images():
    scores = np.eye(3)[[0, 0, 0, 1, 1, 1, 2, 2, 2]] * 10.0 + np.random.default_rng(0).normal(0, 0.1, (9, 3))
    found = wrong_label_probabilities(scores, np.array([0, 0, 1, 1, 1, 1, 2, 2, 2]))
    assert found[2] > 0.5
    assert np.delete(found, 2).max() < 0.1


def test_units_do_not_matter_and_the_seed_decides():
    scores, labels = make_scores(200)
    given, _ = swapped(labels, 0.1)
    found = wrong_label_probabilities(scores, given)
    assert np.array_equal(found, wrong_label_probabilities(scores, given))
    assert wrong_label_probabilities(1e6 * scores + 5.0, given) == pytest.approx(found)
    assert wrong_label_probabilities(scores, given, seed=5) == pytest.approx(found, abs=0.1)


def test_what_is_refused():
    with pytest.raises(InvalidInputError, match="at least two classes"):
        wrong_label_probabilities(np.zeros((4, 1)), np.zeros(4, int))

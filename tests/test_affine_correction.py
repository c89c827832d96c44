"""The affine correction: by hand, against slow versions of its formulas, and on distances made unequal on purpose."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from lnbnn.errors import InvalidInputError
from lnbnn.methods.affine_correction import apply_affine, cross_fit_affine, fit_affine


def made_distances(n_classes=4, n_images=6, *, offsets=0.0, seed=0, noise=1.0):
    """Image-to-class distances near 20, lower for the true class, plus an offset a class; and the labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), n_images)
    distances = 20.0 + rng.normal(0, 2.0, (len(labels), 1)) + rng.normal(0, noise, (len(labels), n_classes))
    distances[np.arange(len(labels)), labels] -= 4.0
    return distances + offsets, labels


def share_right(distances, labels):
    return float(np.mean(distances.argmin(axis=1) == labels))


def hinge_objective(distances, labels, alpha, beta, regularization=0.01, balance=0.5):
    """The formula in the notes of ``fit_affine``, loop by loop."""
    n_images, n_classes = distances.shape
    gaps = [abs(distances[j, c] - distances[j, labels[j]]) for j in range(n_images) for c in range(n_classes)]
    margin = sum(gaps) / (n_images * (n_classes - 1))
    counts = {c: sum(labels == c) for c in range(n_classes)}
    weights = [1.0 / counts[labels[j]] ** balance for j in range(n_images)]
    loss = 0.0
    for j in range(n_images):
        y = labels[j]
        own = alpha[y] * distances[j, y] + beta[y]
        others = [max(0.0, margin + own - alpha[c] * distances[j, c] - beta[c]) for c in range(n_classes) if c != y]
        loss += weights[j] / sum(weights) * sum(others) / (n_classes - 1)
    m, sd = distances.mean(), distances.std()
    penalty = sum(abs(alpha[c] - 1) * sd + abs(alpha[c] * m + beta[c] - m) for c in range(n_classes))
    return (loss + regularization / n_classes * penalty) / margin


def test_by_hand():
    # Two classes, two images each. Distances to (a, b):  a: (5, 4), (5, 4);  b: (7, 2), (7, 2).
    # NBNN answers b for all. Gaps |d_wrong - d_true|: 1, 1, 5, 5, so the margin is 3. Without correction the hinge of
    # the images of a is 3 + 5 - 4 = 4, of b max(0, 3 + 2 - 7) = 0: mean 2, over the margin 2/3.
    distances = np.array([[5.0, 4.0], [5.0, 4.0], [7.0, 2.0], [7.0, 2.0]])
    labels = np.array([0, 0, 1, 1])
    identity = np.ones(2), np.zeros(2)
    assert hinge_objective(distances, labels, *identity, regularization=0.01) == pytest.approx(2 / 3)
    # A shift of a by -2 costs nothing for b (margin 3 = 5 - 2) and halves the loss of a: 2 -> 1, over 3.
    # The penalty: lambda / 2 classes * |shift| 2 / margin 3.
    shifted = hinge_objective(distances, labels, np.ones(2), np.array([-2.0, 0.0]), regularization=0.01)
    assert shifted == pytest.approx(1 / 3 + 0.01 / 2 * 2 / 3)
    alpha, beta = fit_affine(distances, labels, regularization=0.01)
    assert hinge_objective(distances, labels, alpha, beta, regularization=0.01) <= shifted
    assert apply_affine(distances, alpha, beta).argmin(axis=1).tolist() == [0, 0, 1, 1]


def whole_program(distances, labels, regularization, balance):
    """The lowest objective by the primal program with every constraint and a dense matrix."""
    n_images, n_classes = distances.shape
    own = distances[np.arange(n_images), labels]
    margin = np.abs(distances - own[:, None]).sum() / (n_images * (n_classes - 1))
    weights = 1.0 / np.bincount(labels)[labels] ** balance
    weights = weights / weights.sum() / (n_classes - 1) / margin
    pairs = [(j, c) for j in range(n_images) for c in range(n_classes) if c != labels[j]]
    n = n_classes  # columns: alpha, beta, |alpha - 1|, |shift|, slacks
    rows, bounds = [], []
    for number, (j, c) in enumerate(pairs):
        row = np.zeros(4 * n + len(pairs))
        row[labels[j]], row[n + labels[j]] = own[j], 1.0
        row[c], row[n + c] = -distances[j, c], -1.0
        row[4 * n + number] = -1.0
        rows.append(row)
        bounds.append(-margin)
    m = distances.mean()
    for c in range(n):
        for sign in (1.0, -1.0):
            row = np.zeros(4 * n + len(pairs))
            row[c], row[2 * n + c] = sign, -1.0
            rows.append(row)
            bounds.append(sign)
            row = np.zeros(4 * n + len(pairs))
            row[c], row[n + c], row[3 * n + c] = sign * m, sign, -1.0
            rows.append(row)
            bounds.append(sign * m)
    price = regularization / n_classes / margin
    cost = [np.zeros(2 * n), np.full(n, price * distances.std()), np.full(n, price), [weights[j] for j, _ in pairs]]
    limits = [(0, None)] * n + [(None, None)] * n + [(0, None)] * (2 * n + len(pairs))
    return linprog(np.concatenate(cost), A_ub=np.array(rows), b_ub=bounds, bounds=limits, method="highs").fun


@pytest.mark.parametrize("balance", [0, 0.5, 1])
@pytest.mark.parametrize("regularization", [0.003, 0.1])
@pytest.mark.parametrize("n_classes", [2, 5, 14])
def test_against_the_whole_program(n_classes, regularization, balance):
    offsets = np.linspace(-3, 3, n_classes)
    distances, labels = made_distances(n_classes, 5, offsets=offsets, seed=n_classes, noise=2.0)
    distances, labels = distances[3:], labels[3:]  # unequal: two images in the first class
    choices = {"regularization": regularization, "balance": balance}
    alpha, beta = fit_affine(distances, labels, **choices)
    found = hinge_objective(distances, labels, alpha, beta, **choices)
    assert alpha.min() >= 0.0
    assert found == pytest.approx(whole_program(distances, labels, regularization, balance), rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_no_other_correction_is_better(seed):
    rng = np.random.default_rng(seed)
    distances, labels = made_distances(3, 4, offsets=rng.normal(0, 3, 3), seed=seed)
    best = hinge_objective(distances, labels, *fit_affine(distances, labels))
    for _ in range(20):
        other = np.abs(rng.normal(1, 0.3, 3)), rng.normal(0, 4, 3)
        assert best <= hinge_objective(distances, labels, *other) + 1e-9


@pytest.mark.parametrize("offset", [-6.0, 6.0])
def test_an_offset_of_a_class_is_corrected(offset):
    offsets = np.array([0.0, 0.0, offset, 0.0])
    distances, labels = made_distances(n_images=12, offsets=offsets)
    unseen, unseen_labels = made_distances(n_images=30, offsets=offsets, seed=1)
    alpha, beta = fit_affine(distances, labels)
    plain, corrected = share_right(unseen, unseen_labels), share_right(apply_affine(unseen, alpha, beta), unseen_labels)
    fair = share_right(unseen - offsets, unseen_labels)
    assert plain < 0.8
    assert corrected > fair - 0.05


def test_a_factor_of_a_class_is_corrected():
    factors = np.array([1.0, 1.5, 1.0, 0.7])
    distances, labels = made_distances(n_images=20)
    unseen, unseen_labels = made_distances(n_images=30, seed=1)
    alpha, beta = fit_affine(distances * factors, labels, regularization=0.001)
    assert share_right(unseen * factors, unseen_labels) < 0.5
    assert share_right(apply_affine(unseen * factors, alpha, beta), unseen_labels) > 0.9


def test_units_do_not_matter():
    distances, labels = made_distances(offsets=np.array([3.0, 0.0, 0.0, -3.0]))
    alpha, beta = fit_affine(distances, labels)
    scaled_alpha, scaled_beta = fit_affine(distances * 1000.0, labels)
    assert np.allclose(scaled_alpha, alpha)
    assert np.allclose(scaled_beta, 1000.0 * beta, atol=1e-6)


def test_order_of_the_images_does_not_matter():
    distances, labels = made_distances(offsets=np.array([3.0, 0.0, 0.0, -3.0]))
    order = np.random.default_rng(0).permutation(len(labels))
    for first, second in zip(fit_affine(distances, labels), fit_affine(distances[order], labels[order]), strict=True):
        assert first.tobytes() == second.tobytes()
    cross = cross_fit_affine(distances, labels)
    assert np.array_equal(cross_fit_affine(distances[order], labels[order]), cross[order])


def test_strong_regularization_leaves_the_distances_alone():
    distances, labels = made_distances(offsets=np.array([3.0, 0.0, 0.0, -3.0]))
    alpha, beta = fit_affine(distances, labels, regularization=1e6)
    assert alpha.tolist() == [1.0] * 4
    assert beta.tolist() == [0.0] * 4


def test_a_large_class_does_not_decide_alone_when_balanced():
    # Class 0 is too near for all. Its own images gain from that, and they are many.
    distances, labels = made_distances(2, 40, offsets=np.array([-4.0, 0.0]), noise=5.0)
    distances, labels = distances[:48], labels[:48]
    unseen, _ = made_distances(2, 100, offsets=np.array([-4.0, 0.0]), noise=5.0, seed=1)
    shares = []
    for balance in (1, 0):
        alpha, beta = fit_affine(distances, labels, balance=balance)
        answers = apply_affine(unseen, alpha, beta).argmin(axis=1)
        shares.append(np.mean(answers == 0))
    assert abs(shares[0] - 0.5) < abs(shares[1] - 0.5)


def test_a_class_of_one_image_is_left_alone():
    distances, labels = made_distances(offsets=np.array([5.0, 0.0, 0.0, 0.0]))
    distances, labels = distances[:-5], labels[:-5]  # one image of class 3, far from it once left out
    distances[-1, 3] = 1000.0
    alpha, beta = fit_affine(distances, labels)
    assert (alpha[3], beta[3]) == (1.0, 0.0)
    assert beta[0] < -1.0 or alpha[0] < 1.0
    without = distances[:-1].copy(), labels[:-1]
    assert np.array_equal(fit_affine(*without)[0], alpha)


@pytest.mark.parametrize(
    ("distances", "labels"),
    [(np.ones((4, 1)), np.zeros(4, int)), (np.ones((3, 3)), np.arange(3)), (np.ones((4, 2)), np.array([0, 0, 1, 1]))],
)
def test_nothing_to_learn_from(distances, labels):
    alpha, beta = fit_affine(distances, labels)
    assert (alpha == 1.0).all()
    assert (beta == 0.0).all()


def test_cross_fitting_has_not_seen_the_image():
    distances, labels = made_distances(offsets=np.array([3.0, 0.0, 0.0, -3.0]))
    expected = cross_fit_affine(distances, labels, n_folds=len(labels))
    rest = np.arange(len(labels)) != 7
    alone = apply_affine(distances[7], *fit_affine(distances[rest], labels[rest]))
    assert np.allclose(expected[7], alone)


def test_inputs_are_not_changed():
    distances, labels = made_distances()
    copy = distances.copy()
    distances.flags.writeable = labels.flags.writeable = False
    fit_affine(distances, labels)
    assert np.array_equal(distances, copy)


@pytest.mark.parametrize(
    ("distances", "labels", "choices", "message"),
    [
        (np.ones(4), np.zeros(4, int), {}, r"shape \(n_images, n_classes\)"),
        (np.ones((4, 2)), np.zeros(3, int), {}, r"got shapes \(4, 2\) and \(3,\)"),
        (np.full((4, 2), np.inf), np.zeros(4, int), {}, "distances must be finite"),
        (np.ones((4, 2)), np.array([0, 1, 2, 0]), {}, "labels must be from 0 to 1; got 0 to 2"),
        (np.ones((4, 2)), np.zeros(4, int), {"regularization": 0.0}, "regularization must be a number above 0; got 0"),
    ],
)
def test_bad_input(distances, labels, choices, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_affine(distances, labels, **choices)

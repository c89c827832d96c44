"""NBNN as log-odds: a hand-worked example, the formula by loops, and when it ranks as NBNN does."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lnbnn.scoring import log_odds_updates, nbnn_updates


def distances(n_descriptors, n_classes, top=3.0):
    return arrays(np.float64, (n_descriptors, n_classes), elements=st.floats(0, top, width=32))


def increments_by_the_formula(row):
    """log(P(C|d) P(not C) / (P(not C|d) P(C))) with P(C|d) proportional to exp(-distance) and equal priors."""
    weights = [math.exp(-distance) for distance in row]
    n = len(row)
    result = []
    for place in range(n):
        p = weights[place] / sum(weights)
        rest = sum(weights[:place] + weights[place + 1 :]) / sum(weights)
        prior = 1 / n
        result.append(math.log(p * (1 - prior) / (rest * prior)))
    return result


def test_by_hand():
    # Distances 0, log 2, log 4: P(C|d) is 4/7, 2/7, 1/7. The prior odds are 1/2, so an increment is log(2 p / (1 - p)):
    # log(2 * 4/3), log(2 * 2/5), log(2 * 1/6). Only the first is positive.
    row = np.array([[0.0, math.log(2), math.log(4)]])
    expected = [math.log(8 / 3), math.log(4 / 5), math.log(1 / 3)]
    every = log_odds_updates(row)
    assert every.values == pytest.approx(-np.array([expected]))
    assert every.n_increments == 3
    positive = log_odds_updates(row, positive_only=True)
    assert positive.totals(3) == pytest.approx([-math.log(8 / 3), 0, 0])
    assert positive.labels.tolist() == [[0, -1, -1]]
    assert positive.n_increments == 1


@settings(deadline=None)
@given(distances(4, 5))
def test_equals_the_formula(rows):
    expected = np.array([increments_by_the_formula(row) for row in rows.tolist()])
    np.testing.assert_allclose(-log_odds_updates(rows).values, expected, atol=1e-9)
    kept = -log_odds_updates(rows, positive_only=True).values
    np.testing.assert_allclose(kept, np.where(expected > 0, expected, 0), atol=1e-9)


def test_far_classes_do_not_overflow():
    updates = log_odds_updates(np.array([[0.0, 5000.0, 9000.0]]))
    assert updates.values == pytest.approx(
        np.array([[-5000.0 - math.log(2), 5000.0 - math.log(2), 9000.0 - math.log(2)]])
    )


@settings(deadline=None)
@given(distances(6, 2))
def test_with_two_classes_it_ranks_as_nbnn(rows):
    # Each increment is the difference of the two distances, so that the sums are NBNN's differences.
    log_odds, nbnn = log_odds_updates(rows).totals(2), nbnn_updates(rows).totals(2)
    assert log_odds[0] - log_odds[1] == pytest.approx(2 * (nbnn[0] - nbnn[1]), abs=1e-6)


@settings(deadline=None)
@given(distances(1, 6))
def test_one_descriptor_ranks_as_nbnn(rows):
    order = np.argsort(rows[0], kind="stable")
    assert (np.diff(log_odds_updates(rows).totals(6)[order]) >= -1e-12).all()


@settings(deadline=None)
@given(distances(8, 5))
def test_with_a_wide_kernel_it_ranks_as_nbnn(rows):
    # For small distances an increment is n / (n - 1) * (mean - distance): the sums are NBNN's up to a constant.
    scale = 1e-5
    found = log_odds_updates(rows * scale).totals(5) / scale
    totals = nbnn_updates(rows).totals(5)
    np.testing.assert_allclose(found, 5 / 4 * (totals - totals.mean()), atol=1e-2)


def test_one_class_has_no_increments():
    assert log_odds_updates(np.array([[1.0], [2.0]])).totals(1).tolist() == [0.0]

"""Probabilities: by hand, against slow versions, and honest on images that were held out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lnbnn.errors import InvalidInputError
from lnbnn.lab.records import read_record
from lnbnn.model.calibration import (
    Calibration,
    corrected,
    expected_calibration_error,
    fit_confidence,
    fit_fusion_weights,
    fit_temperature,
    fuse,
    log_probabilities,
    negative_log_likelihood,
)

HERE = Path(__file__).resolve().parent.parent


def drawn(n_images, n_classes, temperature, seed=0):
    """Scores, and labels drawn from their softmax at a temperature."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 3, (n_images, n_classes))
    cumulative = np.exp(log_probabilities(scores, temperature)).cumsum(axis=1)
    return scores, (rng.uniform(size=(n_images, 1)) > cumulative).sum(axis=1)


# ---- the functions ---------------------------------------------------------------------------------------------------


def test_probabilities_by_hand():
    # Scores 0, log 2, log 5 at T = 1:  1 / 8, 2 / 8, 5 / 8.
    found = np.exp(log_probabilities(np.array([0.0, math.log(2), math.log(5)]), 1.0))
    assert np.allclose(found, [0.125, 0.25, 0.625])


def test_huge_scores_give_probabilities():
    found = np.exp(log_probabilities(np.array([[-1e9, 0.0, 1e9]]), 1.0))
    assert found.tolist() == [[0.0, 0.0, 1.0]]


def test_likelihood_by_hand():
    log_proba = np.log([[0.5, 0.5], [0.1, 0.9]])
    assert negative_log_likelihood(log_proba, np.array([0, 1])) == pytest.approx(-(math.log(0.5) + math.log(0.9)) / 2)


def test_temperature_by_hand():
    # Two classes whose scores differ by 1. The first wins; it is right in 9 of 12 images. With Platt's targets the
    # wanted share is 0.75 * 13/14 + 0.25 * 1/14 = 10/14, so 1 / T = log(10/14 / (4/14)) = log 2.5.
    scores = np.tile([1.0, 0.0], (12, 1))
    labels = np.array([0] * 9 + [1] * 3)
    assert fit_temperature(scores, labels) == pytest.approx(1 / math.log(2.5))


def slow_loss(scores, labels, temperature):
    """Negative log-likelihood with Platt's targets, loop by loop."""
    n_images, n_classes = scores.shape
    total = 0.0
    for row, label in zip(scores, labels, strict=True):
        norm = math.log(sum(math.exp(score / temperature) for score in row))
        for place in range(n_classes):
            rest = 1 / (n_images + 2)
            target = 1 - rest if place == label else rest / (n_classes - 1)
            total -= target * (row[place] / temperature - norm)
    return total / n_images


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 6))
def test_no_other_temperature_is_better(seed, n_classes):
    rng = np.random.default_rng(seed)
    scores, labels = rng.normal(size=(15, n_classes)), rng.integers(0, n_classes, 15)
    scores[np.arange(15), labels] += 1.0
    best = fit_temperature(scores, labels)
    # Scores that say nothing ask for an infinite temperature: there the fit stops at a million times their spread.
    at_the_limit = best == np.abs(scores - scores.mean(axis=1, keepdims=True)).max() / 1e-6
    for factor in (0.5, 0.9, 0.99) if at_the_limit else (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert slow_loss(scores, labels, best) <= slow_loss(scores, labels, best * factor) + 1e-12


@pytest.mark.parametrize("temperature", [0.5, 2.0, 40.0])
def test_temperature_recovers_a_known_scale(temperature):
    scores, labels = drawn(20_000, 5, temperature)
    assert fit_temperature(scores, labels) == pytest.approx(temperature, rel=0.1)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.floats(1e-6, 1e6))
def test_temperature_follows_the_units(seed, factor):
    scores, labels = drawn(50, 4, 2.0, seed=seed)
    assert fit_temperature(scores * factor, labels) == pytest.approx(fit_temperature(scores, labels) * factor, rel=1e-4)


def test_temperature_of_scores_that_are_always_right_is_finite():
    scores = 10.0 * np.eye(4)
    temperature = fit_temperature(scores, np.arange(4))
    assert 0.0 < temperature < np.inf
    assert np.exp(log_probabilities(scores, temperature))[0, 0] == pytest.approx(5 / 6)


def test_temperature_of_scores_that_say_nothing():
    scores, labels = np.tile([1.0, 0.0], (10, 1)), np.array([0, 1] * 5)
    assert np.allclose(np.exp(log_probabilities(scores, fit_temperature(scores, labels))), 0.5, atol=1e-5)
    assert np.allclose(np.exp(log_probabilities(scores, fit_temperature(scores, 0 * labels + 1))), 0.5, atol=1e-5)
    assert fit_temperature(np.zeros((3, 2)), np.array([0, 1, 0])) == 1.0
    assert fit_temperature(np.ones((3, 1)), np.zeros(3, int)) == 1.0


def test_calibration_error_by_hand():
    # Two bins. Confidence 0.6 (1 of 2 right) and 0.9 (2 of 2 right): (2 * |0.5 - 0.6| + 2 * |1 - 0.9|) / 4 = 0.1.
    probabilities = np.array([[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.9, 0.1]])
    found = expected_calibration_error(probabilities, np.array([0, 1, 0, 0]), n_bins=4)
    assert found == pytest.approx(0.1)


def slow_calibration_error(probabilities, labels, n_bins):
    total = 0.0
    for number in range(n_bins):
        inside = [row for row, p in enumerate(probabilities) if number / n_bins < max(p) <= (number + 1) / n_bins]
        if inside:
            right = np.mean([np.argmax(probabilities[row]) == labels[row] for row in inside])
            sure = np.mean([max(probabilities[row]) for row in inside])
            total += len(inside) * abs(right - sure)
    return total / len(labels)


def test_calibration_error_against_a_slow_one():
    scores, labels = drawn(300, 4, 3.0)
    probabilities = np.exp(log_probabilities(scores, 1.0))
    expected = slow_calibration_error(probabilities, labels, 15)
    assert expected_calibration_error(probabilities, labels) == pytest.approx(expected)
    honest = np.exp(log_probabilities(scores, 3.0))
    assert expected_calibration_error(honest, labels) < 0.5 * expected


def test_corrected_answer_by_hand():
    # p = 0.8 becomes 0.6, and the others share 0.4 instead of 0.2 as before.
    log_proba = np.log([[0.8, 0.15, 0.05], [0.05, 0.15, 0.8]])
    assert np.allclose(np.exp(corrected(log_proba, (0.0, 0.0, math.log(1.5)))), [[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    # 2 log(0.8) - log(0.2) + log(5) = log(16): 16 / 17.
    found = np.exp(corrected(log_proba, (2.0, 1.0, math.log(5.0))))[0]
    assert np.allclose(found, [16 / 17, 0.75 / 17, 0.25 / 17])
    assert np.allclose(corrected(log_proba, (1.0, 1.0, 0.0)), log_proba)
    assert np.allclose(corrected(log_proba[0], (2.0, 1.0, math.log(5.0))), np.log(found)), "of a single image too"


def test_a_corrected_answer_stays_the_answer():
    # 0.5 asked down to 0.1: the second, which has 4 / 5 of the rest, would pass it. Both get 4 / 9.
    found = np.exp(corrected(np.log([0.5, 0.4, 0.1]), (0.0, 0.0, math.log(1 / 9))))
    assert np.allclose(found, [4 / 9, 4 / 9, 1 / 9])


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.floats(0, 3), st.floats(0, 3), st.floats(-5, 5), st.sampled_from([0.1, 3.0, 2000.0]))
def test_corrected_probabilities_are_probabilities(seed, a, b, c, size):
    log_proba = log_probabilities(np.random.default_rng(seed).normal(0, size, (20, 4)), 1.0)
    found = corrected(log_proba, (a, b, c))
    assert np.allclose(np.exp(found).sum(axis=1), 1.0)
    rows, best = np.arange(20), log_proba.argmax(axis=1)
    assert (found[rows, best] >= found.max(axis=1) - 1e-9).all()
    order = np.argsort(log_proba, axis=1)[:, :-1]
    assert (np.diff(np.take_along_axis(found, order, axis=1), axis=1) >= 0).all()


def test_confidence_repairs_answers_that_are_too_sure():
    # Answers of probability p are right as often as (0.4 log-odds of p) + 0.5 says.
    rng = np.random.default_rng(3)
    before = log_probabilities(rng.normal(0, 3, (6000, 5)), 1.0)
    sure = np.exp(before.max(axis=1))
    is_right = rng.uniform(size=6000) < 1 / (1 + np.exp(-(0.4 * np.log(sure / (1 - sure)) + 0.5)))
    labels = (before.argmax(axis=1) + np.where(is_right, 0, rng.integers(1, 5, 6000))) % 5
    held_out, later = slice(0, 3000), slice(3000, None)
    after = corrected(before, fit_confidence(before[held_out], labels[held_out]))
    gaps = [expected_calibration_error(np.exp(found[later]), labels[later]) for found in (before, after)]
    assert gaps[1] < 0.02 < 0.05 < gaps[0]
    sure = after[later].max(axis=1) > math.log(0.9)
    right = (after[later].argmax(axis=1) == labels[later])[sure].mean()
    assert np.exp(after[later].max(axis=1)[sure]).mean() == pytest.approx(right, abs=0.015)


def test_confidence_of_few_images_changes_little():
    # One image that is right: 2/3 is wanted, the odds are even. In c the slope is 1/2 - 2/3 + c: c near 1/6 and less.
    a, b, c = fit_confidence(np.log([[0.5, 0.5]]), np.array([0]))
    assert 0.05 < c < 1 / 6
    assert 0.8 < a < 1.0 < b < 1.2
    assert fit_confidence(np.zeros((3, 1)), np.zeros(3, int)) == (1.0, 1.0, 0.0)


def test_calibration_of_log_probabilities():
    scores, labels = drawn(400, 4, 1.0)
    log_proba = log_probabilities(scores, 1.0)
    fused = Calibration(None, confidence=(1.0, 0.5, 0.0))
    assert np.array_equal(fused.log_softmax(log_proba), log_proba)
    assert np.array_equal(fused.log_proba(log_proba), corrected(log_proba, (1.0, 0.5, 0.0)))
    learned = Calibration.learn(scores, labels)
    assert learned.temperature == fit_temperature(scores, labels)
    assert learned.confidence == fit_confidence(log_probabilities(scores, learned.temperature), labels)
    assert Calibration.learn(np.ones((3, 1)), np.zeros(3, int)).log_proba(np.ones((1, 1))).tolist() == [[0.0]]


def test_fusion_by_hand():
    # 0.8 and 0.5 with weights 2 and 1: 0.64 * 0.5 against 0.04 * 0.5, so 0.64 / 0.68.
    found = np.exp(fuse([np.log([0.8, 0.2]), np.log([0.5, 0.5])], np.array([2.0, 1.0])))
    assert np.allclose(found, [0.64 / 0.68, 0.04 / 0.68])


def test_fusion_weights_of_independent_methods_add_evidence():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 4000)
    first, second, useless = (rng.normal(0, 1, (4000, 4)) for _ in range(3))
    for scores in (first, second):
        scores[np.arange(4000), labels] += 1.0  # the exact log-likelihood ratio of a normal shift: T = 1
    given_in = [log_probabilities(scores, 1.0) for scores in (first, second, useless)]
    weights = fit_fusion_weights(given_in, labels)
    assert np.allclose(weights, [1.0, 1.0, 0.0], atol=0.1)
    fused = negative_log_likelihood(fuse(given_in, weights), labels)
    assert fused < min(negative_log_likelihood(log_proba, labels) for log_proba in given_in) - 0.05


def test_fusion_weights_of_a_method_with_itself():
    scores, labels = drawn(500, 3, 2.0)
    log_proba = log_probabilities(scores, fit_temperature(scores, labels))
    weights = fit_fusion_weights([log_proba, log_proba], labels)
    assert weights[0] == pytest.approx(weights[1])
    assert weights.sum() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (np.zeros(3), np.zeros(3, int), "expected scores of shape"),
        (np.zeros((3, 2)), np.zeros(2, int), r"got shapes \(3, 2\) and \(2,\)"),
        (np.zeros((0, 2)), np.zeros(0, int), "at least one image"),
        (np.full((3, 2), np.nan), np.zeros(3, int), "must be finite"),
        (np.zeros((3, 2)), np.array([0, 1, 2]), "labels must be from 0 to 1; got 0 to 2"),
    ],
)
def test_bad_input(scores, labels, message):
    for function in (fit_temperature, negative_log_likelihood, expected_calibration_error):
        with pytest.raises(InvalidInputError, match=message):
            function(scores, labels)


def test_documented_figures_are_the_record():
    record = read_record(HERE / "results" / "probabilities.json").results
    page = (HERE / "docs" / "probabilities.md").read_text(encoding="utf-8")
    presets = [found[name] for found in record["presets"].values() for name in ("temperature", "corrected")]
    for figures in [*record["methods"].values(), *presets]:
        accuracy, likelihood, error = list(figures.values())[:3]
        assert f"| {accuracy:.1f} | {likelihood:.2f} | {error:.3f} |" in page
    for found in record["presets"].values():
        assert found["corrected"]["accuracy"] == found["temperature"]["accuracy"], "a correction changes no answer"

"""Fisher vectors: Gaussians, shares and vectors worked by hand."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from forged import forge_manifest
from test_coded_ridge import a_set, image

import lnbnn
from lnbnn import ImageFeatures
from lnbnn.classifiers.fisher import FisherVectors
from lnbnn.descriptors.normalization import Normalizer
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.methods.fisher import FisherRegression, Mixture, learn_mixture


def quick(**changes):
    return FisherVectors(**{"n_gaussians": 3, "n_components": 4, "alpha": 0.1, "n_jobs": 1, **changes})


def two():
    """Two Gaussians of variance 4 on a line, at -2 (a quarter) and 2 (three quarters)."""
    return Mixture(np.array([0.25, 0.75]), np.array([[-2.0], [2.0]]), np.array([[4.0], [4.0]]))


def test_shares_by_hand():
    # At x the likelihoods are as p exp(-(x - m)^2 / 8): at 0 as 1 : 3; at 2 as exp(-2) : 3.
    shares = two().shares(np.array([[0.0], [2.0]], np.float32))
    assert np.allclose(shares, [[0.25, 0.75], [math.exp(-2) / (math.exp(-2) + 3), 3 / (math.exp(-2) + 3)]], atol=1e-6)


def test_shares_below_a_ten_thousandth_count_as_none():
    shares = two().shares(np.array([[12.0]], np.float32))  # as exp(-24.5) : 3 exp(-12.5)
    assert shares[0, 0] == 0.0
    assert shares[0, 1] == pytest.approx(1.0, abs=1e-5)


def test_sums_by_hand():
    # Deviations are 2, so 0 is at z = 1 and -1 of them, and 4 at 3 and 1.
    rows, shares = np.array([[0.0], [4.0]], np.float32), np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    counts, first, second = two().sums(rows, shares)
    assert counts.tolist() == [0.75, 1.25]
    assert first.tolist() == [[0.25 + 1.5], [-0.75 + 0.5]]
    assert second.tolist() == [[0.5 * 8], [0.0]]


def by_hand(power):
    method = FisherRegression(SimpleNamespace(root=False, spatial=False, power=power))
    method.turned, method.mixture = Normalizer(np.zeros(1, np.float32), np.eye(1, dtype=np.float32)), two()
    return method


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_a_vector_by_hand(power):
    # One descriptor at 0: shares 1/4 and 3/4, z = 1 and -1, z^2 - 1 = 0. By 1 / sqrt(p): 1/2 and -sqrt(3/4).
    features = ImageFeatures(np.array([[0.0]], np.float32), [[0, 0]], [16], (10, 10))
    values = np.array([0.5, -math.sqrt(0.75), 0, 0])
    expected = np.sign(values) * np.abs(values) ** power
    found = by_hand(power).vector_of(features)
    assert found.dtype == np.float16
    assert np.allclose(found, expected / np.linalg.norm(expected), atol=1e-3)


def rows_of_two(root, descriptors):
    method = FisherRegression(SimpleNamespace(root=root, spatial=False))
    method.turned = Normalizer(np.array([0.5, 0.5], np.float32), np.eye(2, dtype=np.float32))
    return method.rows_of(ImageFeatures(descriptors, [[0, 0], [1, 1]], [16, 16], (10, 10)))


def test_square_roots_by_hand():
    # (9, 16) has the sum 25 and the roots 3 and 4, so 3/5 and 4/5; nothing at all stays so. The mean is then taken off.
    values = np.array([[9, 16], [0, 0]], np.uint8)
    assert np.allclose(rows_of_two(True, values), [[0.1, 0.3], [-0.5, -0.5]], atol=1e-6)
    assert np.allclose(rows_of_two(False, values), [[8.5 / 127, 15.5 / 127], [-0.5 / 127, -0.5 / 127]], atol=1e-6)


def test_floats_are_no_histograms_and_have_no_roots():
    values = np.array([[-2.0, 0.5], [0.0, 4.0]], np.float32)
    assert np.array_equal(rows_of_two(True, values), values - np.float32(0.5))


def test_a_model_saved_before_there_were_roots_answers_as_it_did(tmp_path):
    images, labels = a_set()
    images = [
        ImageFeatures(np.abs(10 * one.descriptors).astype(np.uint8), one.xy, one.scale, one.size) for one in images
    ]
    before = quick(root=False).fit(images, labels)
    before.save(tmp_path / "model")
    params = json.loads((tmp_path / "model" / "manifest.json").read_text())["params"]
    forge_manifest(tmp_path / "model", params={name: value for name, value in params.items() if name != "root"})
    opened = lnbnn.load(tmp_path / "model")
    assert opened.root is False
    assert np.array_equal(opened.decision_function(images), before.decision_function(images))
    assert not np.array_equal(quick().fit(images, labels).decision_function(images), before.decision_function(images))


def test_the_second_half_by_hand():
    # One descriptor at 6: z = 4 and 2, shares as exp(-8) : 3 exp(-2), that is s = 1 / (1 + 3 exp(6)) and 1 - s.
    s = 1 / (1 + 3 * math.exp(6))
    values = np.array([8 * s, 2 * (1 - s) / math.sqrt(0.75), 15 * s / math.sqrt(0.5), 3 * (1 - s) / math.sqrt(1.5)])
    features = ImageFeatures(np.array([[6.0]], np.float32), [[0, 0]], [16], (10, 10))
    assert np.allclose(by_hand(1.0).vector_of(features), values / np.linalg.norm(values), atol=1e-3)


def test_what_a_descriptor_adds_by_hand():
    # Descriptors at 0 and 4. Only the first value of the vector counts: the sums are 1/4 for the first and 3 s for the
    # second, s = exp(-4.5) / (exp(-4.5) + 3 exp(-0.5)); both are scaled alike, so they share the value in proportion.
    method = by_hand(0.5)
    method.coef, method.intercept = np.array([[10.0, 0, 0, 0]]), np.array([2.0])
    features = ImageFeatures(np.array([[0.0], [4.0]], np.float32), [[0, 0], [1, 1]], [16, 16], (10, 10))
    s = math.exp(-4.5) / (math.exp(-4.5) + 3 * math.exp(-0.5))
    value = 10 * float(method.vector_of(features)[0])
    patches = method.patch_scores(features)
    assert np.allclose(
        patches[:, 0], [1 + value * 0.25 / (0.25 + 3 * s), 1 + value * 3 * s / (0.25 + 3 * s)], rtol=1e-5
    )


def test_a_mixture_is_found_again():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal([-5, 0], [1, 2], (3000, 2)), rng.normal([5, 3], [0.5, 1], (1000, 2))])
    found = learn_mixture(rng.permutation(rows).astype(np.float32), 2, seed=0)
    order = np.argsort(found.means[:, 0])
    assert np.allclose(found.weights[order], [0.75, 0.25], atol=0.01)
    assert np.allclose(found.means[order], [[-5, 0], [5, 3]], atol=0.15)
    assert np.allclose(found.deviations[order], [[1, 2], [0.5, 1]], rtol=0.1)


def test_a_value_that_never_changes_has_a_variance_all_the_same():
    rows = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    rows[:, 1] = 3.0
    found = learn_mixture(rows, 2, seed=0)
    assert (found.variances > 0).all()
    assert np.isfinite(found.sums(rows, found.shares(rows))[2]).all()


@pytest.mark.parametrize(("n_rows", "n_gaussians"), [(3, 1), (64, 2), (95, 2), (1000, 8)])
def test_a_gaussian_has_32_rows_to_learn_from(n_rows, n_gaussians):
    rows = np.random.default_rng(0).normal(size=(n_rows, 3)).astype(np.float32)
    assert len(learn_mixture(rows, 8, seed=0).weights) == n_gaussians


def test_the_place_counts_if_it_is_asked_for():
    images, labels = a_set()
    moved = [ImageFeatures(one.descriptors, one.xy[::-1].copy(), one.scale, one.size) for one in images]
    without, with_place = quick(spatial=False).fit(images, labels), quick().fit(images, labels)
    assert without.method_.mixture.means.shape == (3, 4)
    assert with_place.method_.mixture.means.shape == (3, 7)
    assert np.array_equal(without.decision_function(moved), without.decision_function(images))
    assert not np.allclose(with_place.decision_function(moved), with_place.decision_function(images))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_gaussians": 0}, "n_gaussians must be a whole number from 1"),
        ({"n_components": 1.5}, "n_components must be a whole number"),
        ({"n_samples": 0}, "n_samples must be a whole number from 1"),
        ({"power": 0}, "power must be a number above 0; got 0"),
        ({"power": 1.5}, "power must be above 0 and at most 1; got 1.5"),
        ({"spatial": "yes"}, "spatial must be true or false; got 'yes'"),
        ({"alpha": -1}, "alpha must be a number above 0; got -1"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        quick(**changes).fit(*a_set())


def test_other_descriptors_are_refused():
    images, labels = a_set()
    with pytest.raises(InvalidInputError, match="descriptors must have the length 8"):
        quick().fit(images, labels).predict([image(0, 0, n_dims=9)])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("means", np.zeros((3, 6), "f4")),
        ("means", np.full((3, 7), np.nan, "f4")),
        ("variances", np.zeros((3, 7), "f4")),
        ("weights", np.zeros(3, "f4")),
        ("weights", np.ones(2, "f4")),
        ("components", np.zeros((7, 4), "f4")),
        ("mean", np.full(8, np.inf, "f4")),
    ],
)
def test_damaged_gaussians_are_refused(name, wrong, tmp_path):
    images, labels = a_set()
    method = quick().fit(images, labels).method_
    method.save(tmp_path)
    np.save(tmp_path / f"fisher_{name}.npy", wrong)
    with pytest.raises(ModelFormatError, match="fit the model again"):
        FisherRegression(quick()).load(tmp_path, method.references)

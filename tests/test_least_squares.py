"""Regularized least squares: closed forms by hand, against fits without the rows, and against scikit-learn."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from lnbnn.methods.least_squares import Regression


def rows_and_places(n, n_dims, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, n_dims))
    places = np.arange(n) % n_classes
    rows[np.arange(n), places] += 1.5
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), places


SHAPES = pytest.mark.parametrize(("n", "n_dims"), [(9, 20), (12, 12), (30, 5)])


def test_one_dimension_by_hand():
    # rows -1, 1 of classes 0, 1: mean 0, targets -+1/2; coef of class 1 = 1 / (2 + a) = 1/4 at a = 2
    coef, intercept = Regression(np.array([[-1.0], [1.0]]), np.array([0, 1])).solve(2.0)
    assert np.allclose(coef, [[-0.25], [0.25]])
    assert np.allclose(intercept, [0.5, 0.5])


def test_an_image_counts_as_often_as_there_are_other_classes_by_hand():
    # rows 0, 1, 3 of classes 0, 1, 2: class 0 wants f(0) = 1 twice, f(1) = f(3) = 0 once; the weighted means are 1 of x
    # and 1/2 of y, the sums 2 + 0 + 4 = 6 of squares and -1 + 0 - 1 = -2 of products; at a = 2 the slope is -2 / 8
    coef, intercept = Regression(np.array([[0.0], [1.0], [3.0]]), np.array([0, 1, 2])).solve(2.0)
    assert coef[0, 0] == pytest.approx(-0.25)
    assert intercept[0] == pytest.approx(0.5 + 0.25)


@SHAPES
def test_coefficients_are_those_of_scikit_learn(n, n_dims):
    rows, places = rows_and_places(n, n_dims)
    coef, intercept = Regression(rows, places).solve(0.3)
    for place in range(3):
        is_inside = places == place
        expected = Ridge(alpha=0.3).fit(rows, is_inside, sample_weight=np.where(is_inside, 2.0, 1.0))
        assert np.allclose(coef[place], expected.coef_, atol=1e-10)
        assert np.allclose(intercept[place], expected.intercept_, atol=1e-10)


@SHAPES
def test_each_left_out_is_a_fit_of_the_others(n, n_dims):
    rows, places = rows_and_places(n, n_dims)
    regression = Regression(rows, places)
    expected = np.empty((n, 3))
    for left in range(n):
        others = np.arange(n) != left
        coef, intercept = Regression(rows[others], places[others]).solve(0.1)
        expected[left] = coef @ rows[left] + intercept
    assert np.allclose(regression.each_left_out(0.1, regression.spectrum()), expected, atol=1e-9)
    assert np.allclose(regression.each_left_out(0.1), expected, atol=1e-9)
    assert np.allclose(regression.some_left_out(0.1, np.array([5, 1])), expected[[5, 1]], atol=1e-9)


@SHAPES
def test_a_class_left_out_is_a_fit_of_the_others(n, n_dims):
    rows, places = rows_and_places(n, n_dims, n_classes=4)
    regression = Regression(rows, places)
    found = regression.each_class_left_out(0.1)
    others = places != 1
    coef, intercept = Regression(rows[others], places[others] - (places[others] > 1)).solve(0.1)
    known = [0, *range(2, 4)]
    assert np.allclose(found[places == 1][:, known], rows[places == 1] @ coef.T + intercept, atol=1e-9)
    assert np.all(found[places == 1, 1] == -np.inf)


def test_every_library_of_linear_algebra_works_on_one_thread_even_if_it_was_not_loaded_before():
    code = """
import threadpoolctl
from lnbnn.methods.least_squares import one_thread
with one_thread():
    import scipy.linalg
    print(*(one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"1"}

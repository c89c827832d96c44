"""One-vs-all SVMs on a kernel: by hand, and compared with scikit-learn's scores."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from lnbnn.errors import ModelFormatError
from lnbnn.methods.kernel_svm import KernelSVM, fit_one_vs_all
from lnbnn.methods.pyramid.kernels import intersection_kernel


def test_svm_by_hand():
    # Two images at -1 and 1 on a line, K = x y. The widest margin has w = 1, b = 0: each dual coefficient is 1/2, and
    # the score of class 1 at x is x, that of class 0 is -x.
    kernel = np.array([[1.0, -1.0], [-1.0, 1.0]])
    svm = fit_one_vs_all(kernel, np.array([0, 1]), 2, C=100.0)
    assert np.allclose(svm.dual, [[0.5, -0.5], [-0.5, 0.5]])
    assert np.allclose(svm.intercepts, 0)
    assert np.allclose(svm.scores(np.array([-3.0, 3.0])), [-3.0, 3.0])


def test_scores_are_those_of_svc():
    rng = np.random.default_rng(0)
    vectors = rng.random((30, 40)).astype(np.float32)
    labels = np.arange(30) % 3
    kernel = intersection_kernel(vectors)
    svm = fit_one_vs_all(kernel, labels, 3, C=2.0, n_jobs=2)
    for label in range(3):
        svc = SVC(C=2.0, kernel="precomputed").fit(kernel, labels == label)
        found = [svm.scores(row)[label] for row in kernel]
        assert np.allclose(found, svc.decision_function(kernel), atol=1e-9)


def test_small_c_bounds_the_coefficients():
    kernel = intersection_kernel(np.random.default_rng(1).random((20, 10)).astype(np.float32))
    svm = fit_one_vs_all(kernel, np.arange(20) % 2, 2, C=0.01)
    assert np.abs(svm.dual).max() <= 0.01 + 1e-12


def test_one_class_scores_zero():
    svm = fit_one_vs_all(np.ones((3, 3)), np.zeros(3, np.int64), 1, C=1.0)
    assert svm.scores(np.ones(3)).tolist() == [0.0]


def test_arrays_that_do_not_fit_are_refused(tmp_path):
    KernelSVM(np.zeros((2, 5)), np.zeros(2)).save(tmp_path)
    assert KernelSVM.load(tmp_path, 2, 5).dual.shape == (2, 5)
    with pytest.raises(ModelFormatError, match="do not fit"):
        KernelSVM.load(tmp_path, 2, 6)

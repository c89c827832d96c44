"""The intersection kernel: by hand, against its formula, and the same however it is cut into blocks."""

from __future__ import annotations

import numpy as np
import pytest

from lnbnn.errors import InvalidInputError
from lnbnn.methods.pyramid.kernels import intersection_kernel


def pyramids(n, n_dims, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.random((n, n_dims)) * (rng.random((n, n_dims)) < 0.4)).astype(np.float32)


def test_kernel_by_hand():
    a = np.array([[1, 5, 0], [2, 2, 2]], np.float32)
    b = np.array([[2, 3, 4], [0, 0, 1], [9, 9, 9]], np.float32)
    assert intersection_kernel(a, b).tolist() == [[1 + 3 + 0, 0, 6], [2 + 2 + 2, 1, 6]]
    assert intersection_kernel(b).tolist() == [[9, 1, 9], [1, 1, 1], [9, 1, 27]]


@pytest.mark.parametrize(("n", "m", "n_dims"), [(1, 1, 1), (3, 40, 5), (17, 33, 1024), (35, 18, 2500)])
def test_kernel_equals_its_formula(n, m, n_dims):
    a, b = pyramids(n, n_dims), pyramids(m, n_dims, seed=1)
    expected = np.array([[np.minimum(x, y).sum(dtype=np.float64) for y in b] for x in a])
    found = intersection_kernel(a, b)
    assert found.dtype == np.float64
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_values_do_not_depend_on_threads_or_neighbors():
    a = pyramids(50, 2100)
    whole = intersection_kernel(a)
    assert np.array_equal(whole, whole.T)
    assert np.array_equal(intersection_kernel(a, n_jobs=3), whole)
    assert np.array_equal(intersection_kernel(a, a, n_jobs=2), whole)
    for row in (0, 16, 49):
        assert np.array_equal(intersection_kernel(a[row : row + 1], a)[0], whole[row])
        assert intersection_kernel(a[row : row + 1], a[7:8])[0, 0] == whole[row, 7]


def test_mapped_and_read_only_arrays_give_the_same(tmp_path):
    a = pyramids(20, 2100)
    np.save(tmp_path / "a.npy", a)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    frozen = a.copy()
    frozen.flags.writeable = False
    expected = intersection_kernel(a)
    for other in (mapped, frozen, np.asfortranarray(a)):
        assert np.array_equal(intersection_kernel(a, other), expected)
        assert np.array_equal(intersection_kernel(other), expected)


def test_kernel_is_positive_semidefinite():
    assert np.linalg.eigvalsh(intersection_kernel(pyramids(30, 200))).min() > -1e-6


def test_no_rows():
    assert intersection_kernel(np.empty((0, 4), np.float32), pyramids(3, 4)).shape == (0, 3)


def test_pyramids_of_other_lengths_are_refused():
    with pytest.raises(InvalidInputError, match=r"rows of one length; got shapes \(2, 4\) and \(3, 5\)"):
        intersection_kernel(pyramids(2, 4), pyramids(3, 5))
    with pytest.raises(InvalidInputError, match="rows of one length"):
        intersection_kernel(np.zeros(4, np.float32))

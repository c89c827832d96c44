"""K-means: the right centers, the same ones every time."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
from synthetic import clustered_vectors

from lnbnn.indexes.faiss_kmeans import kmeans_centers, nearest_centers, one_thread


def centers_on(n_threads, vectors, **settings):
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        return kmeans_centers(vectors, 16, n_iterations=6, seed=3, **settings)
    finally:
        faiss.omp_set_num_threads(before)


def test_centers_by_hand():
    # Two pairs far apart: the centers are the middles of the pairs, (0, 1) and (9, 8).
    points = np.array([[0, 0], [0, 2], [9, 9], [9, 7]], np.float32)
    assert sorted(kmeans_centers(points, 2, n_iterations=5, seed=0).tolist()) == [[0.0, 1.0], [9.0, 8.0]]


def test_whole_numbers():
    vectors = clustered_vectors(500, 8).astype(np.float32)
    centers = kmeans_centers(vectors, 16, n_iterations=6, seed=0, whole_numbers=True)
    assert centers.dtype == np.float32
    assert np.array_equal(centers, np.rint(centers))
    exact = kmeans_centers(vectors, 16, n_iterations=6, seed=0)
    assert not np.array_equal(exact, np.rint(exact))


def test_as_many_centers_as_vectors():
    vectors = clustered_vectors(7, 4).astype(np.float32)
    found = kmeans_centers(vectors, 7, n_iterations=3, seed=0)
    assert sorted(found.tolist()) == sorted(vectors.tolist())


@pytest.mark.parametrize("whole_numbers", [True, False])
def test_same_for_any_number_of_threads(whole_numbers):
    vectors = clustered_vectors(3000, 24).astype(np.float32)
    if not whole_numbers:
        vectors += np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)
    expected = centers_on(1, vectors, whole_numbers=whole_numbers)
    for n_threads in (2, 4):
        assert centers_on(n_threads, vectors, whole_numbers=whole_numbers).tobytes() == expected.tobytes()


def test_seed_and_inputs():
    vectors = clustered_vectors(800, 8).astype(np.float32)
    vectors.flags.writeable = False
    copy = vectors.copy()
    first, again, other = (kmeans_centers(vectors, 16, n_iterations=2, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(vectors, copy)


def test_a_choice_of_many_vectors_is_used():
    vectors = clustered_vectors(800, 8).astype(np.float32)
    few = kmeans_centers(vectors, 4, n_iterations=5, seed=0, max_vectors_a_center=2)
    assert few.shape == (4, 8)
    assert not np.array_equal(few, kmeans_centers(vectors, 4, n_iterations=5, seed=0))


@pytest.mark.parametrize("n_vectors", [5, 600])  # FAISS has one way for few vectors and one for many
@pytest.mark.parametrize("n_nearest", [1, 3, 10])
def test_nearest_centers_are_exact_and_equal_ones_go_by_row(n_vectors, n_nearest):
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 4, (n_vectors, 8)).astype(np.float32)  # few values: many equal distances
    centers = rng.integers(0, 4, (100, 8)).astype(np.float32)
    squared = ((vectors[:, None] - centers[None]) ** 2).sum(axis=2)
    expected = np.argsort(squared, axis=1, kind="stable")[:, :n_nearest]
    found, rows = nearest_centers(vectors, centers, n_nearest)
    assert np.array_equal(rows, expected)
    assert np.array_equal(found, np.take_along_axis(squared, expected, axis=1))


def test_one_thread_is_left_again():
    before = faiss.omp_get_max_threads()
    with one_thread():
        assert faiss.omp_get_max_threads() == 1
    assert faiss.omp_get_max_threads() == before

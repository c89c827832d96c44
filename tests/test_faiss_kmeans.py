"""K-means, in one level or two: the right centers, the same ones every time; every vector finds its list."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
from synthetic import clustered_vectors

from lnbnn.indexes.faiss_kmeans import (
    CenterTree,
    grow_tree,
    kmeans_centers,
    nearest_centers,
    one_thread,
    tree_quantizer,
)


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
    few = kmeans_centers(vectors, 4, n_iterations=5, seed=0, max_vectors_per_center=2)
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


def test_tree_by_hand():
    # Four pairs on a line, two left and two far right: two branches with two centers each, the pairs' middles.
    points = np.array([[0], [2], [20], [22], [800], [802], [820], [822]], np.float32)
    tree = grow_tree(points, 4, seed=0, whole_numbers=True)
    assert sorted(tree.branches.tolist()) == [[11.0], [811.0]]
    assert tree.sizes.tolist() == [2, 2]
    assert sorted(tree.centers.tolist()) == [[1.0], [21.0], [801.0], [821.0]]
    side = tree.branches[0, 0] < 400
    assert ((tree.centers[:2, 0] < 400) == side).all(), "the centers of a branch stand side by side"


@pytest.mark.parametrize(("n_vectors", "n_centers"), [(1, 1), (2, 2), (17, 17), (500, 3), (500, 100), (3000, 256)])
def test_as_many_centers_as_asked_for(n_vectors, n_centers):
    tree = grow_tree(clustered_vectors(n_vectors, 8).astype(np.float32), n_centers, seed=0, whole_numbers=True)
    assert tree.centers.shape == (n_centers, 8)
    assert tree.sizes.sum() == n_centers
    assert (tree.sizes >= 1).all()
    assert len(tree.branches) == len(tree.sizes)


def test_equal_vectors():
    tree = grow_tree(np.full((50, 4), 7, np.float32), 9, seed=0, whole_numbers=True)
    assert len(tree.centers) == 9
    assert tree_quantizer(tree).search(np.full((1, 4), 7, np.float32), 1)[1][0, 0] >= 0


@pytest.mark.parametrize("whole_numbers", [True, False])
def test_same_for_any_number_of_threads_and_another_for_another_seed(whole_numbers):
    vectors = clustered_vectors(3000, 24).astype(np.float32) * (1.0 if whole_numbers else np.float32(0.1))
    before = faiss.omp_get_max_threads()
    trees = []
    for n_threads, seed in ((1, 0), (2, 0), (1, 1)):
        faiss.omp_set_num_threads(n_threads)
        trees.append(grow_tree(vectors, 64, seed=seed, whole_numbers=whole_numbers))
    faiss.omp_set_num_threads(before)
    assert trees[0].centers.tobytes() == trees[1].centers.tobytes()
    assert trees[0].centers.tobytes() != trees[2].centers.tobytes()


def test_quantizer_finds_the_nearest_center_of_the_nearest_branches():
    # Center 2 is nearest to the query, but in the second branch: only a search of both branches finds it.
    tree = CenterTree(
        np.array([[0, 0], [10, 0]], np.float32),
        np.array([[0, 0], [-4, 0], [5, 0], [12, 0]], np.float32),
        np.array([2, 2]),
    )
    quantizer = tree_quantizer(tree)
    query = np.array([[4, 0]], np.float32)
    quantizer.nprobe = 1
    assert quantizer.search(query, 2)[1].tolist() == [[0, 1]]
    quantizer.nprobe = 2
    distances, centers = quantizer.search(query, 3)
    assert centers.tolist() == [[2, 0, 1]]
    assert distances.tolist() == [[1, 16, 64]]

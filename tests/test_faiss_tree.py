"""Centers in two levels: every vector finds its list, the same tree every time."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
from synthetic import clustered_vectors

from lnbnn.indexes.faiss_tree import CenterTree, grow_tree, tree_quantizer


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

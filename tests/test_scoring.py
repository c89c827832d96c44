"""NBNN and Local NBNN: a hand-worked example, loops written straight from the paper, and properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lnbnn.errors import InvalidInputError
from lnbnn.scoring import Updates, first_of_each_class, joined, lead_z, local_nbnn_updates, nbnn_updates

# ---- the example worked by hand --------------------------------------------------------------------------------------
#
# Points on a line, three classes:      class 0: at 0 and 10      class 1: at 3      class 2: at 6
# A query image with two descriptors:   d1 = 2, d2 = 7
#
# Squared distances, nearest first:
#   d1 = 2:   1 (class 1, at 3)    4 (class 0, at 0)   16 (class 2, at 6)   64 (class 0, at 10)
#   d2 = 7:   1 (class 2, at 6)    9 (class 0, at 10)  16 (class 1, at 3)   49 (class 0, at 0)
HAND_DISTANCES = np.array([[1.0, 4.0, 16.0, 64.0], [1.0, 9.0, 16.0, 49.0]])
HAND_LABELS = np.array([[1, 0, 2, 0], [2, 0, 1, 0]])


def test_nbnn_by_hand():
    # Algorithm 1, nearest of each class:  d1: 4, 1, 16    d2: 9, 16, 1
    # totals:                              class 0: 13     class 1: 17     class 2: 17
    updates = nbnn_updates(np.array([[4.0, 1.0, 16.0], [9.0, 16.0, 1.0]]))
    assert updates.totals(3).tolist() == [13.0, 17.0, 17.0]


def test_local_nbnn_by_hand_two_neighbors():
    # Algorithm 2, k = 2:  d1: dist_B = 16;  class 1: 1 - 16 = -15;  class 0: 4 - 16 = -12
    #                      d2: dist_B = 16;  class 2: 1 - 16 = -15;  class 0: 9 - 16 = -7
    # totals:              class 0: -12 - 7 = -19    class 1: -15    class 2: -15
    updates = local_nbnn_updates(HAND_DISTANCES, HAND_LABELS, 2)
    assert updates.totals(3).tolist() == [-19.0, -15.0, -15.0]
    assert updates.of_class(0).tolist() == [-12.0, -7.0]
    assert updates.of_class(1).tolist() == [-15.0, 0.0]
    assert updates.of_class(2).tolist() == [0.0, -15.0]


def test_local_nbnn_by_hand_three_neighbors():
    # k = 3:   d1: dist_B = 64;  class 1: -63;  class 0: -60;  class 2: -48
    #          d2: dist_B = 49;  class 2: -48;  class 0: -40;  class 1: -33
    # totals:  class 0: -100     class 1: -96   class 2: -96
    assert local_nbnn_updates(HAND_DISTANCES, HAND_LABELS, 3).totals(3).tolist() == [-100.0, -96.0, -96.0]


def test_local_nbnn_by_hand_one_neighbor():
    # k = 1:   d1: dist_B = 4;  class 1: 1 - 4 = -3      d2: dist_B = 9;  class 2: 1 - 9 = -8;  class 0 is never nearest
    assert local_nbnn_updates(HAND_DISTANCES, HAND_LABELS, 1).totals(3).tolist() == [0.0, -3.0, -8.0]


def test_only_the_nearest_of_a_class_counts():
    # k = 3, class 0 twice among them: 1 - 10 = -9 counts, 2 - 10 does not; class 1: 3 - 10 = -7.
    updates = local_nbnn_updates(np.array([[1.0, 2.0, 3.0, 10.0]]), np.array([[0, 0, 1, 1]]), 3)
    assert updates.totals(2).tolist() == [-9.0, -7.0]


def test_columns_beyond_the_background_are_not_read():
    wide = np.hstack([HAND_DISTANCES, np.full((2, 3), 1e9)])
    wide_labels = np.hstack([HAND_LABELS, np.full((2, 3), 1)])
    assert local_nbnn_updates(wide, wide_labels, 2).totals(3).tolist() == [-19.0, -15.0, -15.0]


def test_background_not_found_falls_back_to_the_farthest_found():
    # Three of k + 1 = 4 found: dist_B = 5, the farthest of them. Class 0: 1 - 5 = -4; class 1: 2 - 5 = -3; class 2: 0.
    distances = np.array([[1.0, 2.0, 5.0, np.inf]])
    updates = local_nbnn_updates(distances, np.array([[0, 1, 2, -1]]), 3)
    assert updates.totals(3).tolist() == [-4.0, -3.0, 0.0]


def test_nothing_found_says_nothing():
    updates = local_nbnn_updates(np.full((2, 4), np.inf), np.full((2, 4), -1), 3)
    assert updates.totals(3).tolist() == [0.0, 0.0, 0.0]
    assert (updates.labels == -1).all()


# ---- the paper's pseudo-code as slow loops ---------------------------------------------------------------------------


def algorithm_1(queries, references, reference_labels, n_classes):
    totals = np.zeros(n_classes)
    for query in queries:
        for label in range(n_classes):
            totals[label] += min(
                ((query - reference) ** 2).sum()
                for reference, reference_label in zip(references, reference_labels, strict=True)
                if reference_label == label
            )
    return totals


def algorithm_2(distances, labels, n_neighbors, n_classes):
    totals = [0.0] * n_classes
    for row, row_labels in zip(distances.tolist(), labels.tolist(), strict=True):
        found = [(d, c) for d, c in zip(row[: n_neighbors + 1], row_labels[: n_neighbors + 1], strict=True) if c >= 0]
        if not found:
            continue
        dist_background = found[-1][0]
        nearest = found if len(found) <= n_neighbors else found[:n_neighbors]
        for label in {c for _, c in nearest}:
            dist_class = min(d for d, c in nearest if c == label)
            totals[label] += dist_class - dist_background
    return np.array(totals)


def background_for_absent_classes(distances, labels, n_neighbors, n_classes):
    """The paper's wording before it is made efficient: a class that was not found is dist_B away."""
    totals = [0.0] * n_classes
    for row, row_labels in zip(distances.tolist(), labels.tolist(), strict=True):
        for label in range(n_classes):
            of_class = [d for d, c in zip(row[:n_neighbors], row_labels[:n_neighbors], strict=True) if c == label]
            totals[label] += min(of_class) if of_class else row[n_neighbors]
    return np.array(totals)


def random_neighbors(rng, n_descriptors, n_columns, n_classes, *, high=50, missing=0.0):
    """Whole-number distances (so that sums are exact), many of them equal, with missing ones at the end of a row."""
    distances = np.sort(rng.integers(0, high, (n_descriptors, n_columns)).astype(float), axis=1)
    labels = rng.integers(0, n_classes, (n_descriptors, n_columns))
    n_found = np.where(rng.random(n_descriptors) < missing, rng.integers(0, n_columns + 1, n_descriptors), n_columns)
    lost = np.arange(n_columns) >= n_found[:, None]
    return np.where(lost, np.inf, distances), np.where(lost, -1, labels)


@pytest.mark.parametrize("n_neighbors", [1, 2, 5, 9])
@pytest.mark.parametrize("n_classes", [1, 2, 30])
@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0])
def test_local_nbnn_equals_the_loop(n_neighbors, n_classes, missing):
    rng = np.random.default_rng([n_neighbors, n_classes, int(2 * missing)])
    distances, labels = random_neighbors(rng, 60, 10, n_classes, missing=missing)
    totals = local_nbnn_updates(distances, labels, n_neighbors).totals(n_classes)
    assert np.array_equal(totals, algorithm_2(distances, labels, n_neighbors, n_classes))
    assert totals.any()


def test_nbnn_equals_the_loop():
    rng = np.random.default_rng(3)
    queries, references = rng.integers(0, 20, (15, 4)), rng.integers(0, 20, (40, 4))
    labels = np.arange(40) % 5
    nearest = np.array(
        [[((references[labels == c] - query) ** 2).sum(axis=1).min() for c in range(5)] for query in queries]
    )
    assert np.array_equal(nbnn_updates(nearest).totals(5), algorithm_1(queries, references, labels, 5))


def test_local_nbnn_with_every_neighbor_ranks_as_nbnn():
    """With k + 1 = all references, the last one far off, totals differ from NBNN's by one sum for all classes."""
    rng = np.random.default_rng(4)
    references = np.vstack([rng.integers(0, 20, (30, 3)), [[1000, 1000, 1000]]])
    labels = np.append(np.arange(30) % 4, 0)
    queries = rng.integers(0, 20, (12, 3))
    squared = ((queries[:, None, :] - references[None]) ** 2).sum(axis=2)
    order = np.argsort(squared, axis=1, kind="stable")
    distances = np.take_along_axis(squared, order, axis=1).astype(float)
    local = local_nbnn_updates(distances, labels[order], 30).totals(4)
    full = algorithm_1(queries, references, labels, 4)
    assert np.allclose(full - local, distances[:, -1].sum())


# ---- properties ------------------------------------------------------------------------------------------------------


@st.composite
def neighbor_tables(draw, missing=True):
    n_descriptors, n_columns = draw(st.integers(0, 12)), draw(st.integers(2, 9))
    n_classes = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.0, 0.6])) if missing else 0.0
    distances, labels = random_neighbors(
        rng, n_descriptors, n_columns, n_classes, high=draw(st.sampled_from([2, 8, 10_000])), missing=share
    )
    return distances, labels, draw(st.integers(1, n_columns - 1)), n_classes


@settings(max_examples=150, deadline=None)
@given(neighbor_tables())
def test_totals_equal_the_loop(table):
    distances, labels, n_neighbors, n_classes = table
    totals = local_nbnn_updates(distances, labels, n_neighbors).totals(n_classes)
    assert np.array_equal(totals, algorithm_2(distances, labels, n_neighbors, n_classes))


@settings(max_examples=150, deadline=None)
@given(neighbor_tables(missing=False))
def test_subtracting_the_background_keeps_the_minimum(table):
    """ "This does not affect the minimum": both wordings differ by the same amount for every class."""
    distances, labels, n_neighbors, n_classes = table
    totals = local_nbnn_updates(distances, labels, n_neighbors).totals(n_classes)
    plain = background_for_absent_classes(distances, labels, n_neighbors, n_classes)
    assert np.array_equal(plain - totals, np.full(n_classes, distances[:, n_neighbors].sum()))
    assert np.argmin(plain) == np.argmin(totals)


@settings(max_examples=100, deadline=None)
@given(neighbor_tables())
def test_of_class_sums_to_the_totals(table):
    distances, labels, n_neighbors, n_classes = table
    updates = local_nbnn_updates(distances, labels, n_neighbors)
    sums = [updates.of_class(label).sum() for label in range(n_classes)]
    assert np.array_equal(sums, updates.totals(n_classes))
    assert (updates.values <= 0).all()
    assert np.isfinite(updates.values).all()


@settings(max_examples=100, deadline=None)
@given(neighbor_tables(missing=False))
def test_order_of_the_descriptors_does_not_matter(table):
    distances, labels, n_neighbors, n_classes = table
    totals = local_nbnn_updates(distances, labels, n_neighbors).totals(n_classes)
    turned = local_nbnn_updates(distances[::-1], labels[::-1], n_neighbors).totals(n_classes)
    assert np.array_equal(totals, turned)


@settings(max_examples=100, deadline=None)
@given(neighbor_tables())
def test_first_of_each_class_equals_the_loop(table):
    _, labels, _, _ = table
    expected = [[c >= 0 and c not in row[:place] for place, c in enumerate(row)] for row in labels.tolist()]
    assert np.array_equal(first_of_each_class(labels), np.array(expected, dtype=bool).reshape(labels.shape))


def test_nbnn_of_class_sums_to_the_totals():
    updates = nbnn_updates(np.random.default_rng(5).integers(0, 100, (20, 4)))
    assert [updates.of_class(c).sum() for c in range(4)] == updates.totals(4).tolist()


# ---- inputs ----------------------------------------------------------------------------------------------------------


def test_no_descriptors_give_zero_totals():
    updates = local_nbnn_updates(np.empty((0, 4)), np.empty((0, 4), int), 3)
    assert updates.totals(2).tolist() == [0.0, 0.0]
    assert updates.of_class(1).shape == (0,)


def test_totals_have_an_entry_for_classes_never_met():
    assert Updates(np.array([[-1.0]]), np.array([[1]])).totals(4).tolist() == [0.0, -1.0, 0.0, 0.0]


def test_inputs_are_not_changed():
    distances, labels = HAND_DISTANCES.copy(), HAND_LABELS.copy()
    distances.flags.writeable = labels.flags.writeable = False
    local_nbnn_updates(distances, labels, 2).totals(3)
    nbnn_updates(distances).totals(4)
    assert np.array_equal(distances, HAND_DISTANCES)
    assert np.array_equal(labels, HAND_LABELS)


@pytest.mark.parametrize("n_neighbors", [0, -1, 4, 100])
def test_n_neighbors_out_of_range(n_neighbors):
    with pytest.raises(InvalidInputError, match=rf"n_neighbors must be from 1 to 3.*got {n_neighbors}"):
        local_nbnn_updates(HAND_DISTANCES, HAND_LABELS, n_neighbors)


def test_shapes_must_agree():
    with pytest.raises(InvalidInputError, match=r"of one shape; got \(2, 4\) and \(2, 3\)"):
        local_nbnn_updates(HAND_DISTANCES, HAND_LABELS[:, :3], 2)
    with pytest.raises(InvalidInputError, match=r"2-D"):
        local_nbnn_updates(HAND_DISTANCES[0], HAND_LABELS[0], 2)
    with pytest.raises(InvalidInputError, match=r"\(n_descriptors, n_classes\)"):
        nbnn_updates(HAND_DISTANCES[0])


# ---- how sure a lead is ----------------------------------------------------------------------------------------------


def test_lead_by_hand():
    # u = 3, 1, -1, 3 for class 0 against class 1: mean 1.5, variance 11/3. Of 8 descriptors 4 are seen: the standard
    # error of the mean is sqrt(11/3 / 4 * (1 - 4/8)) = 0.677.
    seen = Updates(np.array([[-3.0], [-1.0], [-1.0], [-3.0]]), np.array([[0], [0], [1], [0]]))
    assert lead_z(seen, 2, 8) == pytest.approx(1.5 / np.sqrt(11 / 3 / 4 * 0.5))
    assert lead_z(seen, 2, 4) == np.inf, "all were seen: nothing can change"
    assert lead_z(seen, 1, 8) == np.inf, "no class can overtake"
    assert lead_z(seen, 2, 1_000_000) == pytest.approx(1.5 / np.sqrt(11 / 3 / 4), rel=1e-4)


def test_one_descriptor_is_never_sure():
    assert lead_z(Updates(np.array([[-9.0]]), np.array([[0]])), 2, 5) == 0.0


def test_lead_is_as_sure_as_it_says():
    """Over many even choices of 100 of 1,000 descriptors, leads above the 90 % point are kept in about 90 % or more."""
    rng = np.random.default_rng(0)
    kept = []
    for _ in range(400):
        labels = rng.choice(2, (1000, 1), p=[0.52, 0.48])
        everything = Updates(-rng.random((1000, 1)), labels)
        part = Updates(everything.values[:100], labels[:100])
        if lead_z(part, 2, 1000) > 1.2816:
            kept.append(np.argmin(part.totals(2)) == np.argmin(everything.totals(2)))
    assert len(kept) > 50
    assert np.mean(kept) > 0.85


def test_joined_updates_sum_to_the_sum():
    parts = [Updates(np.full((n, 2), -1.0), np.tile([0, 1], (n, 1))) for n in (3, 4)]
    assert joined(parts).totals(2).tolist() == [-7.0, -7.0]

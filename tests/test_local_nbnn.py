"""Local NBNN by hand, and what its settings may be."""

from __future__ import annotations

import numpy as np
import pytest
from quick import fitted, make
from synthetic import grating_set, make_features

from lnbnn import LocalNBNN, load
from lnbnn.errors import InvalidInputError


def one_descriptor_each(*values):
    return [make_features(np.array([value], np.uint8)) for value in values]


def test_local_nbnn_by_hand():
    # One descriptor per class, location off:  a = (0, 0),  b = (10, 0),  c = (0, 20),  d = (40, 0).
    # The query's descriptors are q1 = (1, 0) and q2 = (0, 12). Squared distances to a, b, c, d:
    #   q1:   1,  81, 401, 1521      q2: 144, 244, 64, 1744
    # k = 3, all but one: dist_B is the farthest, 1521 and 1744.
    #   totals:  a: (1 - 1521) + (144 - 1744) = -1520 - 1600 = -3120
    #            b: (81 - 1521) + (244 - 1744) = -1440 - 1500 = -2940
    #            c: (401 - 1521) + (64 - 1744) = -1120 - 1680 = -2800      d: 0
    reference = one_descriptor_each((0, 0), (10, 0), (0, 20), (40, 0))
    query = make_features(np.array([[1, 0], [0, 12]], np.uint8))
    classifier = LocalNBNN(3, location_weight=0, index="exact").fit(reference, list("abcd"))
    assert classifier.totals([query]).tolist() == [[-3120.0, -2940.0, -2800.0, 0.0]]
    assert classifier.predict([query]).tolist() == ["a"]
    # k = 1:  q1: a: 1 - 81 = -80;  q2: c: 64 - 144 = -80: a tie, which goes to the first class.
    classifier = LocalNBNN(1, location_weight=0, index="exact").fit(reference, list("abcd"))
    assert classifier.totals([query]).tolist() == [[-80.0, 0.0, -80.0, 0.0]]
    assert classifier.predict([query]).tolist() == ["a"]


@pytest.mark.parametrize("n_neighbors", [0, -1, 2.5])
def test_bad_n_neighbors(n_neighbors):
    with pytest.raises(InvalidInputError, match=f"n_neighbors must be a whole number from 1 to .* got {n_neighbors}"):
        make("local-nbnn", n_neighbors=n_neighbors).fit(*grating_set())


@pytest.mark.parametrize("n_neighbors", ["ten", None, float("inf"), float("nan")])
def test_n_neighbors_that_is_no_number(n_neighbors):
    with pytest.raises(InvalidInputError, match="n_neighbors"):
        make("local-nbnn", n_neighbors=n_neighbors).fit(*grating_set())


def test_n_neighbors_at_the_number_of_descriptors():
    reference = one_descriptor_each((0, 0), (10, 0), (0, 20))
    LocalNBNN(2, index="exact").fit(reference, list("abc"))
    for n_neighbors in (3, 100):
        message = rf"at most 2 \(one less than the 3 indexed descriptors\); got {n_neighbors}"
        with pytest.raises(InvalidInputError, match=message):
            LocalNBNN(n_neighbors, index="exact").fit(reference, list("abc"))


def test_numpy_n_neighbors_is_saved(tmp_path):
    fitted("local-nbnn", n_neighbors=np.int64(5)).save(tmp_path / "model")
    assert load(tmp_path / "model").n_neighbors == 5

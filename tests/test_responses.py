"""Response vectors by hand, cells that sum to the whole, and the kernels on top."""

import numpy as np
import pytest

from lnbnn.errors import InvalidInputError
from lnbnn.methods.responses import RESPONSES, cell_totals, own_and_response, response_vectors
from lnbnn.scoring import Updates


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("raw", [-3.0, 0.0, -4.0]),
        ("mean", [-1.5, 0.0, -2.0]),
        ("unit", [-0.6, 0.0, -0.8]),
        ("rank", [0.5, 1.0, 0.0]),
        ("standard", [-(2 / 3) / (26 / 9) ** 0.5, (7 / 3) / (26 / 9) ** 0.5, -(5 / 3) / (26 / 9) ** 0.5]),
    ],
)
def test_responses_by_hand(kind, expected):
    assert response_vectors(np.array([[-3.0, 0.0, -4.0]]), np.array([2]), kind)[0] == pytest.approx(expected)


def test_log_odds_response_by_hand():
    # Totals -1 and 1: mean 0, spread 1, so z is 1 and -1, p is e/(e + 1/e), and its log-odds 2 and -2.
    assert response_vectors(np.array([[-1.0, 1.0]]), np.array([7]), "log-odds")[0] == pytest.approx([2.0, -2.0])


@pytest.mark.parametrize("kind", sorted(RESPONSES))
def test_empty_totals_give_finite_responses(kind):
    assert np.isfinite(response_vectors(np.zeros((2, 4)), np.array([0, 3]), kind)).all()


def test_unknown_response():
    with pytest.raises(
        InvalidInputError, match="response must be one of raw, mean, unit, standard, rank, log-odds; got 'best'"
    ):
        response_vectors(np.zeros((1, 2)), np.array([1]), "best")


def test_cells_by_hand_sum_to_the_totals():
    updates = Updates(np.array([[-1.0], [-2.0], [-4.0]]), np.array([[0], [1], [0]]))
    xy = np.array([[0.1, 0.1], [0.9, 0.1], [1.0, 1.0]])
    cells = cell_totals(updates, xy, n_classes=2, n_side=2)
    assert cells.tolist() == [[-1, 0], [0, -2], [0, 0], [-4, 0]]
    assert cells.sum(axis=0).tolist() == updates.totals(2).tolist()


def test_own_score_and_response_by_hand():
    # Whole image -1 and 1: mean 0, spread 1, and the lower total is the better class. The cell's totals divided by 2.
    own, response = own_and_response(np.array([[-1.0, 1.0], [-1.0, 0.0]]), 2, "mean")
    assert own.tolist() == [1.0, -1.0]
    assert response.tolist() == [-0.5, 0.5, -0.5, 0.0]

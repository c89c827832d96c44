"""Response vectors by hand, cells that sum to the whole, and the kernels on top."""

import json

import numpy as np
import pytest
from forged import forge_manifest
from synthetic import grating_set

from lnbnn import load
from lnbnn.classifiers.kernels import LocalNBNNKernel, NBNNKernel
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.methods.responses import RESPONSES, cell_totals, own_and_response, response_vectors
from lnbnn.scoring import Updates

SIFT_PARAMS = {"bin_sizes": [4], "step_px": 7, "min_contrast": 0.5, "longest_side": 48}
SETTINGS = {"index": "exact", "query_budget": None, "descriptor_params": SIFT_PARAMS}


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


@pytest.mark.parametrize("kind", [NBNNKernel, LocalNBNNKernel])
@pytest.mark.parametrize(
    "changes", [{}, {"levels": 2, "response": "mean"}, {"response": "rank", "C": 0.1, "machine": "svm"}]
)
def test_kernels_answer_and_survive_saving(kind, changes, tmp_path):
    images, labels = grating_set(n_classes=3, n_images=4)
    queries, expected = grating_set(n_classes=3, n_images=3, seed=5)
    classifier = kind(**SETTINGS, **changes).fit(images, labels)
    assert classifier.predict(queries).tolist() == expected
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.decision_function(queries), classifier.decision_function(queries))
    assert again.describe() == classifier.describe()


def test_training_responses_leave_the_image_out():
    images, labels = grating_set(n_classes=2, n_images=3)
    classifier = LocalNBNNKernel(response="raw", C=1.0, **SETTINGS).fit(images, labels)
    assert np.array_equal(classifier.reference_responses(), classifier.reference_totals())
    assert not np.array_equal(classifier.reference_totals(), classifier.totals(images))


def test_machines_that_do_not_fit_are_refused(tmp_path):
    images, labels = grating_set(n_classes=2, n_images=3)
    LocalNBNNKernel(C=1.0, **SETTINGS).fit(images, labels).save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text(encoding="utf-8"))
    forge_manifest(tmp_path / "model", params=manifest["params"] | {"levels": 2})
    with pytest.raises(ModelFormatError, match="machines' arrays do not fit"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"response": "best"}, "response must be one of"),
        ({"machine": "forest"}, "machine must be one of logistic, svm; got 'forest'"),
        ({"levels": 0}, "levels must be a whole number from 1 to 4"),
        ({"levels": 2, "location_weight": 0.0}, "levels above 1 need a location_weight above 0"),
        ({"C": 0.0}, "C must be above 0"),
        ({"blend": -1.0}, "blend must be at least 0"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        LocalNBNNKernel(**{**SETTINGS, **changes}).fit(*grating_set())

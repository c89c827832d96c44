"""The figure on k by hand: four reference descriptors on a line, one query."""

import numpy as np
from tiny_lab import TinyLab, image, plain_params

from lnbnn.lab.figure_k import compute, draw, summarize


def test_totals_of_every_k_by_hand(tmp_path):
    train = {"a": [image((1, 0)), image((4, 0))], "b": [image((2, 0)), image((7, 0))]}
    lab = TinyLab(tmp_path, train, {"a": [image((0, 0))]})
    settings = {"n_neighbors": [1, 2, 3], "params": plain_params("local-nbnn")}
    found = compute(lab, settings)
    assert found["truth"].tolist() == [0]
    # Squared distances: a 1, b 4, a 16, b 49. k = 1: a is 1 - 4. k = 2: 1 - 16 and 4 - 16. k = 3: 1 - 49 and 4 - 49.
    assert found["totals"].tolist() == [[[-3.0, 0.0], [-15.0, -12.0], [-48.0, -45.0]]]


def test_best_k_by_hand():
    totals = np.zeros((2, 2, 2))
    totals[:, 0] = [[1.0, 0.0], [1.0, 0.0]]  # k = 1 says class 1 twice
    totals[:, 1] = [[0.0, 1.0], [1.0, 0.0]]  # k = 7 is right
    arrays = {"truth": np.array([0, 1]), "totals": totals}
    results = summarize({"n_neighbors": [1, 7]}, [(None, arrays)])
    assert results == {"accuracy": {"1": [50.0], "7": [100.0]}, "best_k": 7}


def test_the_curve_is_the_means_at_the_values_of_k():
    figure = draw({"accuracy": {"1": [50.0, 52.0], "7": [70.0, 60.0]}, "best_k": 7})
    (axes,) = figure.axes
    assert axes.lines[0].get_xdata().tolist() == [1, 7]
    assert axes.lines[0].get_ydata().tolist() == [51.0, 65.0]
    assert axes.lines[1].get_xdata() == [7, 7]

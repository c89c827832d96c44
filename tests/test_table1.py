"""Table 1 by hand: three classes, one descriptor each, distances of 0, 1 and 2 units."""

import math

import numpy as np
import pytest
from PIL import Image
from tiny_lab import TinyLab, image, plain_params

from lnbnn.lab import Part, get_experiment, table1
from lnbnn.lab.table1 import compute, squeezed, summarize, tabulate

# Points of a 127 x 127 grid: 127 is the unit length of 8-bit descriptors. The query lies on class a.
TRAIN = {"a": [image((0, 0))], "b": [image((127, 0))], "c": [image((127, 127))]}
KEPT = {"pictures": "longest side 128", "n_train": 1, "n_test": 1, "seed": 0}


def settings(**changes):
    return KEPT | {"params": plain_params("nbnn-log-odds", descriptor_params={"longest_side": 128})} | changes


def test_totals_and_increments_by_hand(tmp_path):
    lab = TinyLab(tmp_path, TRAIN, {"a": [image((0, 0))]})
    found = compute(lab, settings())
    # P(C|d) is 1, 1/e and 1/e^2 over their sum; the prior odds are 1/2, so an increment is log(2 p / (1 - p)).
    e = math.e
    a, b, c = math.log(2 / (1 / e + 1 / e**2)), math.log(2 / e / (1 + 1 / e**2)), math.log(2 / e**2 / (1 + 1 / e))
    assert a > 0 > b > c
    assert found["truth"].tolist() == [0]
    assert found["nbnn"].tolist() == [[0.0, 127.0**2, 2 * 127.0**2]]
    assert found["all"] == pytest.approx(np.array([[-a, -b, -c]]), rel=1e-5)
    assert found["positive"] == pytest.approx(np.array([[-a, 0.0, 0.0]]), rel=1e-5)
    assert found["increments"].tolist() == [3.0, 1.0]


def test_sums_over_descriptors_and_the_mean_over_images(tmp_path):
    # On class a and on class b; then a point as far from all three, for which no class becomes more probable.
    between = image((64, 64))
    lab = TinyLab(tmp_path, TRAIN, {"a": [image((0, 0), (127, 0))], "b": [between]})
    found = compute(lab, settings())
    assert found["truth"].tolist() == [0, 1]
    # (127, 0) is 1, 0 and 1 units away.
    assert found["nbnn"][0].tolist() == [127.0**2, 127.0**2, 3 * 127.0**2]
    one = math.log(2 / (1 / math.e + 1 / math.e**2))
    other = math.log(2 / (2 / math.e))
    assert found["positive"][0] == pytest.approx([-one, -other, 0.0], rel=1e-5)
    # 64^2 + 64^2, 63^2 + 64^2, 63^2 + 63^2: the nearest two are a little more probable than before.
    assert found["increments"][0] == 3.0
    assert found["increments"][1] == pytest.approx((1.0 + np.sum(found["positive"][1] < 0)) / 2)


def test_pictures_are_squeezed_where_the_part_says_so(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(table1, "squeezed", lambda path, side: asked.append(side) or path)
    lab = TinyLab(tmp_path, TRAIN, {"a": [image((0, 0))]})
    kept = compute(lab, settings())
    assert asked == []
    assert np.array_equal(compute(lab, settings(pictures="128 x 128"))["all"], kept["all"])
    assert asked == [128] * 4


def test_a_squeezed_picture(tmp_path):
    Image.fromarray(np.repeat([[0, 200]], 30, axis=0).repeat(40, axis=1).astype(np.uint8)).save(tmp_path / "x.png")
    found = squeezed(str(tmp_path / "x.png"), 16)
    assert found.shape == (16, 16)
    assert (found[:, :7] == 0).all()
    assert (found[:, 9:] == 200).all()


def test_both_kinds_of_picture_are_planned_on_every_split():
    parts = get_experiment("table1").plan(get_experiment("table1").settings)
    assert [(part.settings["pictures"], part.settings["seed"]) for part in parts] == [
        (kind, seed) for kind in ("128 x 128", "longest side 128") for seed in (0, 1, 2)
    ]
    assert all(isinstance(part, Part) and part.settings["params"]["scale_weight"] == 0.0 for part in parts)


def test_the_table_by_hand():
    truth = np.array([0, 1])
    right, wrong = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    kept = Part("log-odds", {"pictures": "longest side 128"}, None)
    arrays = {"truth": truth, "nbnn": right, "all": right, "positive": wrong, "increments": np.array([2.0, 0.5])}
    other = {"truth": truth, "nbnn": right, "all": wrong, "positive": right, "increments": np.array([2.0, 1.5])}
    results = summarize({}, [(kept, arrays), (Part("log-odds", {"pictures": "128 x 128"}, None), other)])
    assert results["longest side 128"]["accuracy"] == {"nbnn": [100.0], "all": [100.0], "positive": [50.0]}
    assert results["longest side 128"]["positive_less_all"] == -50.0
    assert results["longest side 128"]["all_increments_answer_as_nbnn"] == 1.0
    assert results["128 x 128"]["all_increments_answer_as_nbnn"] == 0.5
    assert tabulate(results).splitlines()[2:] == [
        "| 128 x 128 | full NBNN | 2.0 | 101 | 50.0 | 55.2 ± 0.97 |",
        "| 128 x 128 | positive increments only | 1.5 | 55.0 | 100.0 | 55.6 ± 1.17 |",
        "| longest side 128 | full NBNN | 2.0 | 101 | 100.0 | 55.2 ± 0.97 |",
        "| longest side 128 | positive increments only | 0.5 | 55.0 | 50.0 | 55.6 ± 1.17 |",
    ]

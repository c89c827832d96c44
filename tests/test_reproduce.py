"""From an experiment to its record: which settings are run, and what is left."""

import pytest
from tiny_lab import counted, grating_lab, sum_of

from lnbnn.data.folder import LabeledImages
from lnbnn.errors import InvalidInputError
from lnbnn.lab import get_experiment
from lnbnn.lab.records import read_record
from lnbnn.lab.reproduce import chosen_settings, columns_of, reproduce


@pytest.fixture
def lab(tmp_path):
    return grating_lab(tmp_path)


def test_reproduce_from_python(lab, tmp_path):
    calls = []
    done = reproduce(sum_of([counted(calls, seed=0)]), {}, lab, command="x", output=tmp_path)
    assert (done.path.name, done.picture) == ("sum-gratings.json", None)
    assert read_record(done.path) == done.record


def test_settings_of_the_first_splits_and_of_one_column():
    table2 = get_experiment("table2-methods")
    settings = chosen_settings(table2, splits=1, train=30)
    assert (settings["seeds"], settings["n_train"]) == ([0], [30])
    assert table2.settings["seeds"] == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidInputError, match="table2-methods has columns of 15 or 30 images; got 7"):
        chosen_settings(table2, train=7)


def test_each_column_has_a_record_of_its_own():
    found = columns_of({"n_train": [15, 30], "seeds": [0]})
    assert found == [{"n_train": [15], "seeds": [0]}, {"n_train": [30], "seeds": [0]}]
    assert columns_of({"n_train": 15}) == [{"n_train": 15}]


def test_columns_that_the_images_are_too_few_for_are_left_out():
    table2, told = get_experiment("table2-methods"), []
    twenty = LabeledImages(("x",) * 60, ("a",) * 20 + ("b",) * 40)
    assert chosen_settings(table2, images=twenty, note=told.append)["n_train"] == [15]
    assert told == ["30 training images per class: left out, the smallest class has 20 images."]
    thirty = LabeledImages(("x",) * 71, ("a",) * 31 + ("b",) * 40)
    assert chosen_settings(table2, images=thirty)["n_train"] == [15, 30]
    with pytest.raises(InvalidInputError, match=r"trains on 15 images per class or more.* smallest class has 15"):
        chosen_settings(table2, images=LabeledImages(("x",) * 15, ("a",) * 15))

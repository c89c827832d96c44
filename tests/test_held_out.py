"""Held-out scores: other images, other classes, and on disk."""

import numpy as np
import pytest

from lnbnn.errors import ModelFormatError
from lnbnn.model.held_out import HeldOut

KNOWN = HeldOut([3, 5], ["a", "c"], np.array([[[1.0, 2.0], [4.0, 3.0]], [[np.nan, np.nan], [6.0, 5.0]]]))


def test_images_that_left_and_classes_that_came():
    found = KNOWN.of([1, 5], ["a", "b", "c"])
    assert (found.ids, found.classes) == ([5], ["a", "b", "c"])
    assert found.scores.tolist() == [[[4.0, 3.0, 3.0]], [[6.0, 5.0, 5.0]]]  # the class that was not known is last


def test_what_is_unknown_to_a_member_stays_so():
    found = KNOWN.of([3], ["b", "c"])
    assert found.scores[0].tolist() == [[1.0, 2.0]]
    assert np.isnan(found.scores[1]).all()


def test_others_come_after():
    both = KNOWN.joined(HeldOut([9], ["a", "c"], np.array([[[7.0, 8.0]], [[9.0, 0.0]]])))
    assert both.ids == [3, 5, 9]
    assert both.scores[:, 2].tolist() == [[7.0, 8.0], [9.0, 0.0]]


def test_on_disk(tmp_path):
    KNOWN.save(tmp_path)
    again = HeldOut.load(tmp_path, ["a", "c"], 2)
    assert again.ids == KNOWN.ids
    assert np.array_equal(again.scores, KNOWN.scores, equal_nan=True)
    for classes, n_members in ((["a", "b", "c"], 2), (["a", "c"], 3)):
        with pytest.raises(ModelFormatError, match="do not fit the images"):
            HeldOut.load(tmp_path, classes, n_members)

"""Labeled images, and what a change does to them: by hand."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import make_features

from lnbnn.errors import InvalidInputError
from lnbnn.references import Change, Reference, References, can_be_held_out, check_ids, check_label_kind, check_labels

IMAGES = [Reference(0, "x", "b", 5), Reference(2, "y", "a", 7, "d" * 64), Reference(3, "z", "b", 1, None, 4)]


def test_references_know_their_classes_and_places():
    references = References(IMAGES)
    assert references.classes.tolist() == ["a", "b"]
    assert references.places.tolist() == [1, 0, 1]
    assert references.places.dtype == np.int64
    assert references.n_descriptors == 13
    assert [*references] == IMAGES
    assert (len(references), references[1].name, references[-1].id) == (3, "y", 3)
    assert len(References()) == 0


def test_places_of_whole_numbers():
    references = References(Reference(number, "", label, 1) for number, label in enumerate([7, -1, 30, 7]))
    assert references.classes.tolist() == [-1, 7, 30]
    assert references.places.tolist() == [1, 0, 2, 1]


def test_a_change_by_hand():
    features = make_features(np.zeros((2, 4), np.uint8))
    after = [Reference(0, "x", "c", 5), IMAGES[2], Reference(4, "w", "a", 2)]
    asked = []
    change = Change.between(IMAGES, after, lambda image: asked.append(image.id) or features)
    assert change.removed == (IMAGES[1],)
    assert change.relabeled == ((IMAGES[0], "c"),)
    assert change.added == ((after[2], features),)
    assert [*change.after] == after
    assert change.after.classes.tolist() == ["a", "b", "c"]
    assert len(change) == 3
    assert asked == [4], "features are read of added images only"


def test_no_change():
    change = Change.between(IMAGES, IMAGES, lambda image: pytest.fail("nothing was added"))
    assert len(change) == 0


def test_images_that_can_be_held_out():
    assert can_be_held_out(np.array([0, 1, 0, 2, 2])).tolist() == [True, False, True, True, True]


def test_labels_become_plain():
    assert check_labels(np.array([3, 4]), 2) == [3, 4]
    assert check_labels(("a", "b"), 2) == ["a", "b"]
    assert [type(label) for label in check_labels([np.int64(3), 4], 2)] == [int, int]
    with pytest.raises(InvalidInputError, match="a label must not be empty"):
        check_labels(["a", " "], 2)


def test_label_kind():
    check_label_kind("x", "a")
    check_label_kind(3, 4)
    for label, known in ((3, "a"), ("a", 3)):
        with pytest.raises(InvalidInputError, match=f"labels must be of the kind of {known!r}, as before"):
            check_label_kind(label, known)


def test_ids():
    known = {0: None, 2: None, 5: None}
    assert check_ids(2, known) == [2]
    assert check_ids([5, 0, 5], known) == [5, 0]
    assert check_ids(iter(np.array([0, 2])), known) == [0, 2]
    for wrong in (1, [0, 1], [True], ["0"]):
        with pytest.raises(InvalidInputError, match="no image of the model has the id"):
            check_ids(wrong, known)
    with pytest.raises(InvalidInputError, match="at least one image"):
        check_ids([], known)

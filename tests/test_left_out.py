"""Images of a model, each left out: worked by hand on points in a plane, and against scoring with a model without."""

from __future__ import annotations

import numpy as np
import pytest
from quick import quick
from synthetic import grating_set, make_features

from lnbnn import LateFusion, LocalNBNN
from lnbnn.errors import InvalidInputError
from lnbnn.trust.left_out import evaluate_left_out, left_out_answer

# Class a: images 0 and 1 around (0, 0). Class b: images 2 and 3 around (100, 0), and image 4, which lies with a.
POINTS = [[(0, 0), (4, 0)], [(1, 0), (5, 0)], [(100, 0), (110, 0)], [(101, 0), (111, 0)], [(2, 0), (7, 0)]]
LABELS = list("aabbb")


def by_hand(points=POINTS, labels=LABELS):
    classifier = LocalNBNN(2, location_weight=0, scale_weight=0, index="exact", query_budget=None)
    return classifier.fit([make_features(np.array(values, np.uint8)) for values in points], labels)


def test_each_image_is_asked_about_without_itself():
    found = evaluate_left_out(by_hand())
    assert [(image.id, answer) for image, answer in found.images] == [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "a")]
    assert found.evaluation.confusion.tolist() == [[2, 0], [1, 2]]
    assert found.evaluation.per_class == {"a": 1.0, "b": 2 / 3}
    content = found.as_json()
    assert content["mean_per_class_accuracy"] == pytest.approx(5 / 6)
    assert content["images"][4] == {"id": 4, "label": "b", "answer": "a"}
    assert content["labels"] == content["answers"] == ["a", "b"]


def test_an_image_that_is_alone_in_its_class_is_not_asked_about():
    found = evaluate_left_out(by_hand(POINTS[:3], list("aab")))
    assert [image.id for image, _ in found.images] == [0, 1]
    assert [image.id for image in found.alone] == [2]
    assert found.evaluation.labels == ("a",)
    with pytest.raises(InvalidInputError, match="two classes"):
        evaluate_left_out(by_hand(POINTS[:2], list("aa")))
    with pytest.raises(InvalidInputError, match="two photos"):
        evaluate_left_out(by_hand(POINTS[1:3], list("ab")))


def test_neighbors_are_those_that_hold_the_nearest_patches():
    # Of image 0, (0, 0) is nearest to (1, 0) of image 1 and (4, 0) to (5, 0) of image 1.
    # Of image 4, (2, 0) is nearest to (1, 0) of image 1 and (7, 0) to (5, 0) of image 1; its label is b.
    found = left_out_answer(by_hand(), 4)
    assert [(one.image.id, one.share) for one in found.neighbors] == [(1, 1.0)]
    assert found.ranking[0][0] == "a"
    assert found.as_json()["label"] == "b"
    # Of image 2, both patches are nearest to those of image 3.
    assert [(one.image.id, one.share) for one in left_out_answer(by_hand(), 2, n_neighbors=1).neighbors] == [(3, 1.0)]
    with pytest.raises(InvalidInputError, match="no image of the model has the id 5"):
        left_out_answer(by_hand(), 5)


def test_a_lone_image_has_no_answer_without_itself():
    found = left_out_answer(by_hand([POINTS[0] + POINTS[1]], ["a"]), 0)
    assert found.ranking == ()
    assert found.neighbors == ()
    assert found.as_json()["answer"] is None


def test_one_image_of_a_fusion_is_answered_as_among_all():
    images, labels = grating_set(n_images=3)
    parts = [("a", quick(LocalNBNN)), ("b", quick(LocalNBNN, n_neighbors=3))]
    fusion = LateFusion(parts, n_jobs=1).fit(images, labels)
    scores = fusion.held_out_scores()
    for image, expected in zip(fusion.images_, scores, strict=True):
        ranking = dict(left_out_answer(fusion, image.id).ranking)
        assert [ranking[label] for label in fusion.classes_.tolist()] == pytest.approx(expected.tolist(), abs=1e-12)

"""The answer of a model for one image, as data."""

from __future__ import annotations

import json

import pytest
from quick import quick
from synthetic import flat_image, grating_set

from lnbnn import LocalNBNN
from lnbnn.model.answers import Answer, no_descriptors

RANKING = (("a", 2.0), ("b", 1.0), ("c", 0.5))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer("x", "a", RANKING), {"label": "a"}),
        (Answer("x", "a", RANKING, probabilities=(0.5, 0.3, 0.2)), {"label": "a", "probability": 0.5}),
        (Answer("x", "a", RANKING, is_unknown=False, false_accept_rate=0.1), {"is_unknown": False}),
        (Answer("x", None, RANKING, is_unknown=True, false_accept_rate=0.9), {"label": "unknown", "is_unknown": True}),
        (Answer("x", None, (), "no picture", unreadable=True), {"label": None, "error": "no picture", "ranking": []}),
    ],
)
def test_as_json(answer, expected):
    found = answer.as_json()
    assert found == json.loads(json.dumps(found))
    assert found.items() >= expected.items()
    assert found["path"] == "x"
    assert found.keys() - {"path", "label", "ranking"} == {
        name
        for name, is_there in {
            "is_unknown": answer.is_unknown is not None,
            "probability": bool(answer.probabilities),
            "false_accept_rate": answer.false_accept_rate is not None,
            "error": answer.reason is not None,
        }.items()
        if is_there
    }


def test_as_json_with_the_first_few_classes():
    assert Answer("x", "a", RANKING).as_json(2)["ranking"] == [["a", 2.0], ["b", 1.0]]
    assert len(Answer("x", "a", RANKING).as_json()["ranking"]) == 3


def test_answers_of_a_model_say_what_it_can_tell():
    classifier = quick(LocalNBNN).fit(*grating_set(n_images=3))
    images, labels = grating_set(seed=9)
    plain = next(classifier.iter_answers(images))
    assert (plain.probabilities, plain.false_accept_rate, plain.is_unknown) == ((), None, None)
    calibrated = next(classifier.calibrate().iter_answers(images))
    assert sum(calibrated.probabilities) == pytest.approx(1.0)
    assert [*calibrated.probabilities] == sorted(calibrated.probabilities, reverse=True)
    assert calibrated.false_accept_rate is None
    classifier.calibrate(unknown=True)
    kept, refused = (next(classifier.iter_answers(images, reject=rate)) for rate in (0.99, 0.001))
    assert (kept.label, kept.is_unknown) == (labels[0], False)
    assert (refused.label, refused.is_unknown, refused.ranking) == (None, True, kept.ranking)
    assert 0.001 < refused.false_accept_rate == kept.false_accept_rate <= 0.99
    (empty,) = classifier.iter_answers([flat_image()], reject=0.5)
    assert empty.as_json() == {"path": "image 0", "label": None, "ranking": [], "error": no_descriptors("image 0")}

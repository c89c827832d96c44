"""Evaluation: a confusion matrix and mean per-class accuracy worked by hand."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from sklearn.exceptions import NotFittedError
from synthetic import flat_image, grating_set, make_features, small_sift

from lnbnn import NBNN, LocalNBNN
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.references import References
from lnbnn.trust.evaluation import NO_ANSWER, Evaluation, KnownImage, evaluate, write_confusion


def point(*value):
    return make_features(np.array([value], np.uint8))


def blank():
    return make_features(np.empty((0, 2), np.uint8))


@pytest.fixture
def classifier():
    """Nearest point, one per class: a at (0, 0), b at (100, 0), c at (0, 100)."""
    references = [point(0, 0), point(100, 0), point(0, 100)]
    return NBNN(location_weight=0, index="exact").fit(references, ["a", "b", "c"])


# Four images of class a, three right and one taken for b; one image of class b, taken for c; two images of class c,
# one right and one without descriptors.
IMAGES = [point(1, 1), point(2, 0), point(0, 3), point(90, 0), point(9, 99), point(0, 90), blank()]
LABELS = ["a", "a", "a", "a", "b", "c", "c"]


def test_a_class_called_like_no_answer_is_a_class(classifier):
    result = evaluate(classifier, IMAGES, [*LABELS[:-1], NO_ANSWER])
    assert result.answers == ("a", "b", "c", f"({NO_ANSWER})")
    assert result.per_class[NO_ANSWER] == 0.0
    assert (NO_ANSWER, f"({NO_ANSWER})", 1) in result.confusions()


def test_confusion_by_hand(classifier):
    result = evaluate(classifier, IMAGES, LABELS)
    assert result.labels == ("a", "b", "c")
    assert result.answers == ("a", "b", "c", NO_ANSWER)
    assert result.confusion.tolist() == [[3, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert result.n_images == 7
    assert result.skipped == ()
    assert result.seconds >= 0


def test_mean_per_class_accuracy_by_hand(classifier):
    # Per class: 3/4, 0/1, 1/2. Their mean is 1.25 / 3 = 0.41667; of all images 4/7 = 0.571 are right, which is not it.
    result = evaluate(classifier, IMAGES, LABELS)
    assert result.per_class == {"a": 0.75, "b": 0.0, "c": 0.5}
    assert result.mean_per_class_accuracy == pytest.approx(1.25 / 3)


def test_figures_as_plain_values(classifier):
    result = evaluate(classifier, IMAGES, LABELS)
    assert result.n_per_class == {"a": 4, "b": 1, "c": 2}
    assert result.as_json() == {
        "mean_per_class_accuracy": pytest.approx(1.25 / 3),
        "per_class": {"a": 0.75, "b": 0.0, "c": 0.5},
        "n_images": 7,
        "n_skipped": 0,
        "seconds": round(result.seconds, 3),
        "n_in_model": 0,
        "mean_per_class_accuracy_without_them": pytest.approx(1.25 / 3),
        "in_model": [],
    }


# ---- images that the model holds -------------------------------------------------------------------------------------


def test_images_that_are_in_the_model_by_hand(classifier):
    # Of a: one of the model's images and one that is new and taken for b. Of b: the model's image of c, and a new one.
    # Of c: the model's image only.
    images = [point(0, 0), point(90, 0), point(0, 100), point(99, 0), point(0, 100)]
    result = evaluate(classifier, images, ["a", "a", "b", "b", "c"])
    assert result.known == (
        KnownImage("image 0", "a", "a", 0, "a"),
        KnownImage("image 2", "b", "c", 2, "c"),
        KnownImage("image 4", "c", "c", 2, "c"),
    )
    assert result.per_class == {"a": 0.5, "b": 0.5, "c": 1.0}
    new = result.without_known()
    assert new.labels == ("a", "b")
    assert new.confusion.tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]
    assert new.known == ()
    assert result.confusion.tolist() == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]], "left as it was"
    figures = result.as_json()
    assert figures["mean_per_class_accuracy"] == pytest.approx(2 / 3)
    assert figures["mean_per_class_accuracy_without_them"] == 0.5
    assert figures["n_in_model"] == 3
    assert figures["in_model"][1] == {"path": "image 2", "label": "b", "image_id": 2, "model_label": "c"}


def test_a_model_asked_about_its_own_images(classifier):
    result = evaluate(classifier, [point(0, 0), point(100, 0)], ["a", "b"])
    assert result.mean_per_class_accuracy == 1.0
    assert result.without_known() is None
    assert result.as_json()["mean_per_class_accuracy_without_them"] is None


def test_a_copy_of_a_file_is_known_under_any_name(tmp_path):
    images, labels = grating_set()
    paths = [tmp_path / f"{number}.png" for number in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    classifier = LocalNBNN(5, descriptor=small_sift(), index="exact", n_jobs=1).fit(paths, labels)
    copy, other = tmp_path / "copy.png", tmp_path / "other.png"
    copy.write_bytes(paths[3].read_bytes())
    Image.fromarray(grating_set(seed=4)[0][2]).save(other)
    (known,) = evaluate(classifier, [other, copy], [labels[2], labels[3]]).known
    assert (known.name, known.image_id) == (str(copy), 3)


def test_a_model_without_digests_cannot_tell(classifier):
    model = classifier.fitted()
    model.references = References(replace(image, digest=None) for image in model.references)
    assert evaluate(classifier, [point(0, 0)], ["a"]).known == ()


def test_labels_given_by_name():
    classifier = NBNN(location_weight=0, index="exact").fit([point(0, 0), point(100, 0)], [1, 2])
    assert evaluate(classifier, [point(1, 1), point(99, 0)], ["1", "02"]).per_class == {1: 1.0, "02": 0.0}


def test_confusions_are_ordered_by_count():
    confusion = np.array([[5, 1, 0, 0], [3, 2, 0, 1], [0, 0, 4, 0]])
    result = Evaluation(("a", "b", "c"), ("a", "b", "c", NO_ANSWER), confusion, 0.0, ())
    assert result.confusions() == [("b", "a", 3), ("a", "b", 1), ("b", NO_ANSWER, 1)]
    assert result.confusions(1) == [("b", "a", 3)]


def test_class_the_model_does_not_know(classifier):
    # Per class: a 1/1, zebra 0/1.
    result = evaluate(classifier, [point(1, 1), point(0, 99)], ["a", "zebra"])
    assert result.labels == ("a", "zebra")
    assert result.confusion.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert result.per_class == {"a": 1.0, "zebra": 0.0}
    assert result.mean_per_class_accuracy == 0.5


def test_class_the_model_does_not_know_with_integer_labels():
    """A model of whole numbers, evaluated on folders of which one has another name."""
    classifier = NBNN(location_weight=0, index="exact").fit([point(0, 0), point(100, 0)], [1, 2])
    result = evaluate(classifier, [point(1, 1), point(0, 99)], [1, "zebra"])
    assert result.per_class == {1: 1.0, "zebra": 0.0}


def test_integer_labels():
    classifier = NBNN(location_weight=0, index="exact").fit([point(0, 0), point(100, 0)], [10, 2])
    for labels in ([10, 2], np.array([10, 2])):
        result = evaluate(classifier, [point(1, 1), point(99, 0)], labels)
        assert result.labels == (2, 10)
        assert result.per_class == {2: 1.0, 10: 1.0}


def test_agrees_with_predict():
    images, labels = grating_set(n_images=3)
    classifier = LocalNBNN(5, descriptor=small_sift(), index="exact", n_jobs=1).fit(images, labels)
    queries, truth = grating_set(n_images=4, seed=3)
    truth[0] = truth[-1]
    result = evaluate(classifier, queries, truth)
    answers = classifier.predict(queries)
    for row, label in enumerate(result.labels):
        for column, answer in enumerate(result.answers):
            expected = sum(t == label and a == answer for t, a in zip(truth, answers, strict=True))
            assert result.confusion[row, column] == expected
    # All answers are right but for the first, whose label was changed: 3 of 3, 4 of 4, 4 of 5.
    assert result.mean_per_class_accuracy == pytest.approx((1 + 1 + 4 / 5) / 3)


def test_flat_image_has_no_answer():
    images, labels = grating_set()
    classifier = LocalNBNN(5, descriptor=small_sift(), index="exact", n_jobs=1).fit(images, labels)
    result = evaluate(classifier, [flat_image()], ["direction 0"])
    assert result.confusion.tolist() == [[0, 0, 0, 1]]
    assert result.mean_per_class_accuracy == 0.0


def test_unreadable_file_is_skipped_or_raised(classifier, tmp_path):
    missing = tmp_path / "missing.png"
    result = evaluate(classifier, [point(1, 1), missing], ["a", "b"])
    assert result.n_images == 1
    assert result.labels == ("a",)
    assert [name for name, _ in result.skipped] == [str(missing)]
    assert "no such file" in result.skipped[0][1]
    with pytest.raises(ImageReadError, match="no such file"):
        evaluate(classifier, [point(1, 1), missing], ["a", "b"], on_error="raise")
    with pytest.raises(InvalidInputError, match="none of the 1 images could be read"):
        evaluate(classifier, [missing], ["a"])


def test_bad_arguments(classifier):
    with pytest.raises(InvalidInputError, match="as many labels as images, at least one; got 1, 2"):
        evaluate(classifier, IMAGES[:2], ["a"])
    with pytest.raises(InvalidInputError, match="at least one"):
        evaluate(classifier, [], [])


def test_unknown_on_error(classifier):
    with pytest.raises(InvalidInputError, match="on_error must be 'raise' or 'skip'"):
        evaluate(classifier, IMAGES, LABELS, on_error="ignore")


def test_unfitted():
    with pytest.raises(NotFittedError):
        evaluate(NBNN(), IMAGES, LABELS)


def test_progress(classifier):
    seen = []
    evaluate(classifier, IMAGES, LABELS, progress=lambda *call: seen.append(call))
    assert seen == [("classifying", n, 7) for n in range(1, 8)]


def test_write_confusion(classifier, tmp_path):
    path = tmp_path / "confusion.csv"
    write_confusion(path, evaluate(classifier, IMAGES, LABELS))
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["true class", "a", "b", "c", NO_ANSWER],
        ["a", "3", "1", "0", "0"],
        ["b", "0", "0", "1", "0"],
        ["c", "0", "0", "1", "1"],
    ]

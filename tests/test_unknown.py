"""Telling what is unknown: by hand, as a model that lacks the class, at the promised rate, and in every answer."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from forged import forge_manifest
from PIL import Image
from sklearn.exceptions import NotFittedError
from synthetic import grating, make_features, noise_image

from lnbnn import LateFusion, load
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.model.calibration import Calibration
from lnbnn.model.changes import calibrate, edit, prepare_to_reject
from lnbnn.model.unknown import (
    best_class_z,
    distinction,
    distinctions_by_class,
    false_accept_rates,
    new_class_rates,
)
from lnbnn.params import resolve

METHODS = ["local-nbnn", "nbnn", "nbnn-affine", "nbnn-log-odds"]


def make(method):
    """A quick classifier of the method: exact search, every query descriptor."""
    return resolve(CLASSIFIERS, method, "method")(index="exact", query_budget=None, n_jobs=1)


def clusters(n_classes=8, n_images=3, *, seed=0):
    """Features of images of classes that are easy to tell apart."""
    rng = np.random.default_rng(99)
    centers = rng.integers(20, 108, (n_classes, 8))
    noise = np.random.default_rng(seed)
    images, labels = [], []
    for place, center in enumerate(centers):
        for _ in range(n_images):
            rows = np.clip(center + noise.normal(0, 9, (20, 8)), 0, 127).astype(np.uint8)
            images.append(make_features(rows))
            labels.append(f"class {place}")
    return images, labels


def same_values(one, other):
    """Whether two calibrations go by the same values of unknown classes."""
    return [values.tolist() for values in one.unknown_by_class] == [v.tolist() for v in other.unknown_by_class]


@pytest.fixture(params=METHODS)
def classifier(request):
    return make(request.param).fit(*clusters())


def test_best_class_z_by_hand():
    # Others 2 and 2: mean 2, variance 0, half of their size 1: (6 - 2) / 1. Others 1 and 3: variance 1: 4 / sqrt(2).
    # Distances 2, 8, 8, their signs turned: (8 - 2) / (8 / 2).
    scores = np.array([[2.0, 6.0, 2.0], [1.0, 3.0, 6.0], [-8.0, -2.0, -8.0]])
    assert np.allclose(best_class_z(scores), [4.0, 4.0 / 2**0.5, 1.5])


def test_an_absent_class_does_not_count():
    assert best_class_z(np.array([[2.0, -np.inf, 6.0, 2.0]])).tolist() == [4.0]
    with pytest.raises(InvalidInputError, match="at least two classes"):
        best_class_z(np.array([[1.0, -np.inf]]))


def test_best_class_z_without_any_evidence_or_other_class():
    found = best_class_z(np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 0.0]]))
    assert found[0] == 0.0
    assert 1e6 < found[1] < 1e12


def test_distinction_by_hand():
    # Others 0 and 2: mean 1, standard deviation 1. Others -40 and -8: mean -24, deviation 16: (8 + 24) / 2.
    # Others equal: the deviation counts as a thousandth of how far the best is above them, 1000 / 1.
    scores = np.array([[0.0, 9.0, 2.0], [-40.0, -8.0, 8.0], [-5.0, -1005.0, -1005.0]])
    assert np.allclose(distinction(scores), [8.0, 16.0, 1000.0])
    assert np.allclose(distinction(scores + 100.0), distinction(scores)), "log-probabilities are scores too"
    left_out = np.insert(scores, 1, -np.inf, axis=1)
    assert np.array_equal(distinction(left_out), distinction(scores))
    assert distinction(np.array([[3.0, 3.0, 3.0], [3.0, 3.0, -np.inf]])).tolist() == [0.0, 0.0]
    with pytest.raises(InvalidInputError, match="at least two classes"):
        distinction(np.array([[1.0, -np.inf]]))


def test_distinctions_by_class_by_hand():
    scores = np.array([[-np.inf, 10.0, 0.0], [20.0, -np.inf, 0.0], [-np.inf, 5.0, 0.0], [0.0, -np.inf, 0.0]])
    first, second = distinctions_by_class(scores, np.array([0, 1, 0, 1]), 4096)
    assert np.allclose(first, np.array([5.0, 10.0]) / np.array([0.5, 1.0]) ** 0.25)
    assert np.allclose(second, [0.0, 20.0 / 2.0**0.25])
    assert [len(one) for one in distinctions_by_class(scores, np.array([0, 1, 0, 1]), 2)] == [1, 1]
    assert len(distinctions_by_class(scores, np.array([0, 1, 2, 3]), 2)) == 2


def test_rates_of_new_classes_by_hand():
    # Ten images of one class and one of each of two others: the classes count the same, so 1 / 3 lies at 3.
    by_class = [np.full(10, 1.0), np.array([2.0]), np.array([3.0])]
    # The median is 2. Around it lie 1, 2 and 3: mean square 2 / 3; above it 2 and 3: 1 / 2. Width sqrt(2 / 3 * 4 / 2).
    # Student's distribution with 2 degrees of freedom: P(t >= x) = (1 - x / sqrt(2 + x^2)) / 2. Times 3 / 2 in all.
    found = new_class_rates(np.array([0.0, 2.9, 3.0, 4.0, 12.0, 1e6]), by_class)
    tail = [(1 - x / (2 + x * x) ** 0.5) / 2 for x in (2.0 / (4 / 3) ** 0.5, 10.0 / (4 / 3) ** 0.5)]
    assert np.allclose(found, [1.0, 0.5, 0.5, 1.5 * tail[0], 1.5 * tail[1], 0.005])
    skewed = [np.array([0.0]), np.array([0.0]), np.array([4.0])]  # from the median 0 on all count: mean square 16 / 3
    width = (16 / 3 * 4 / 2) ** 0.5
    assert new_class_rates(np.array([3 * width]), skewed) == pytest.approx(1.5 * (1 - 3 / 11**0.5) / 2)


def test_values_above_the_median_may_be_wider():
    # Four classes: 0, 1, 2 and 5. Around the median 1: mean square (1 + 0 + 1 + 16) / 4; above it 17 / 3.
    width = (17 / 3 * 5 / 3) ** 0.5
    tail = 0.5 - (math.atan(3 / 3**0.5) + 3 * 3**0.5 / 12) / math.pi  # of Student's, 3 degrees of freedom, at 3
    found = new_class_rates(np.array([1.0 + 3 * width]), [np.array([float(n)]) for n in (0, 1, 2, 5)])
    assert found == pytest.approx(tail * 4 / 3)


@pytest.mark.parametrize(("n_classes", "df"), [(2, 1), (3, 2), (4, 3), (5, 3), (12, 3), (20, 4), (101, 8), (250, 15)])
def test_tail_is_that_of_student(n_classes, df):
    from scipy.stats import t as student

    by_class = [np.array([-1.0, 1.0])] * n_classes  # around the median -1: mean square 2
    width = (2.0 * (n_classes + 1) / (n_classes - 1)) ** 0.5
    values = np.linspace(1.5, 20.0, 7)
    expected = student.sf((values + 1.0) / width, df) * n_classes / (n_classes - 1)
    smallest = min(0.005, 1 / (n_classes + 1))
    assert np.allclose(new_class_rates(values, by_class), np.clip(expected, smallest, 1.0), rtol=1e-6, atol=1e-12)


def test_equal_values_are_no_error():
    assert new_class_rates(np.array([1.0, 2.0]), [np.ones(3)] * 4).tolist() == [1.0, 0.005]


@pytest.mark.parametrize("n_classes", [5, 20, 100])
@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_the_promised_rate_is_kept_where_classes_differ(n_classes, draw):
    """Half of the variance lies between the classes: 15 images each are no sample of 15 times as many."""
    rng = np.random.default_rng(n_classes)
    rates = np.array([0.01, 0.05, 0.1])
    kept, pooled = [], []
    for _ in range(400):
        own = getattr(rng, draw)(size=(n_classes, 1)) + getattr(rng, draw)(size=(n_classes, 15))
        new = (getattr(rng, draw)(size=(50, 1)) + getattr(rng, draw)(size=(50, 4))).ravel()
        found = new_class_rates(new, list(np.sort(own, axis=1)))
        kept.append((found[:, None] <= rates).mean(axis=0))
        pooled.append((false_accept_rates(new, np.sort(own, axis=None))[:, None] <= rates).mean(axis=0))
    assert (np.mean(kept, axis=0) <= rates).all()
    assert np.mean(kept, axis=0)[2] > 0.02, "the promise must not be kept by accepting nothing"
    if n_classes == 5:
        assert (np.mean(pooled, axis=0)[1:] > rates[1:]).all(), "images counted one by one break it"


def test_models_calibrated_before_answer_as_they_did():
    scores = np.array([[2.0, 6.0, 2.0], [3.0, 3.0, 1.0]])
    older = Calibration(2.0, unknown_prominence=np.array([1.0, 3.0, 5.0]))
    assert older.can_reject
    assert older.false_accept_rates(scores).tolist() == [0.5, 1.0]
    assert np.allclose(np.exp(older.log_proba(scores))[0], np.exp([1, 3, 1]) / np.exp([1, 3, 1]).sum())


def test_rates_by_hand():
    unknown = np.array([0.1, 0.2, 0.2, 0.9])
    found = false_accept_rates(np.array([1.0, 0.9, 0.2, 0.05]), unknown)
    assert found.tolist() == [1 / 5, 2 / 5, 4 / 5, 1.0]


def test_the_promised_rate_is_kept():
    """Over many draws: accepted at the rate r are at most a share r of values like the unknown ones."""
    rng = np.random.default_rng(0)
    for rate in (0.02, 0.1, 0.3):
        shares = []
        for _ in range(300):
            unknown = np.sort(rng.exponential(size=99))
            shares.append(np.mean(false_accept_rates(rng.exponential(size=50), unknown) <= rate))
        assert np.mean(shares) == pytest.approx(rate, abs=0.012)


def test_leaving_a_class_out_is_fitting_without_it(classifier):
    if classifier.method == "nbnn-affine":
        pytest.skip("it learns from all classes together")
    images, labels = clusters()
    found = classifier.fitted().unknown_scores()
    for place in (0, 4, 20):
        rest = [i for i, label in enumerate(labels) if label != labels[place]]
        without = make(classifier.method).fit([images[i] for i in rest], [labels[i] for i in rest])
        own = classifier.classes_.tolist().index(labels[place])
        assert found[place, own] == -np.inf
        expected = without.decision_function([images[place]])[0]
        if classifier.method != "nbnn-log-odds":  # its increments depend on the number of classes
            assert np.allclose(np.delete(found[place], own), expected)


def test_unknown_images_are_rejected_and_known_ones_are_not(classifier):
    classifier.calibrate(unknown=True)
    strange = np.random.default_rng(5).integers(0, 127, (20, 8), dtype=np.uint8)
    queries = [*clusters(seed=7)[0], make_features(strange)]
    assert classifier.predict(queries).shape == (25,)
    found = classifier.predict(queries, reject=0.3)
    assert found.dtype == object
    assert found[-1] is None
    accepted = [(answer, label) for answer, label in zip(found, clusters()[1], strict=False) if answer is not None]
    assert len(accepted) >= 15
    assert all(answer == label for answer, label in accepted)


def test_answers_carry_probability_and_rate(classifier):
    (plain,) = classifier.iter_answers(clusters()[0][:1])
    assert plain.probabilities == ()
    assert plain.false_accept_rate is None
    classifier.calibrate(unknown=True)
    queries = clusters(seed=7)[0]
    for query, answer in zip(queries, classifier.iter_answers(queries, reject=0.1), strict=True):
        probabilities = classifier.predict_proba([query])[0]
        assert np.allclose(sorted(answer.probabilities, reverse=True), answer.probabilities)
        assert answer.probabilities[0] == pytest.approx(probabilities.max())
        assert answer.is_unknown == (answer.false_accept_rate > 0.1)
        assert (answer.label is None) == answer.is_unknown
        assert len(answer.ranking) == 8


def test_calibration_is_saved_and_outlives_changes(classifier, tmp_path):
    classifier.calibrate(unknown=True).save(tmp_path / "model")
    stored = classifier.fitted().calibration
    loaded = load(tmp_path / "model").fitted()
    assert same_values(loaded.calibration, stored)
    assert (loaded.calibration.temperature, loaded.calibration.confidence) == (stored.temperature, stored.confidence)
    assert loaded.n_changes == 0
    if loaded.method.is_incremental:
        with edit(tmp_path / "model") as model:
            model.relabel([0, 1], "class 3")
        changed = load(tmp_path / "model").fitted()
        assert same_values(changed.calibration, stored)
        assert changed.n_changes == 2
        calibrate(tmp_path / "model")
        again = load(tmp_path / "model").fitted()
        assert again.n_changes == 0
        assert not same_values(again.calibration, stored)


def test_not_calibrated_for_it(classifier):
    with pytest.raises(NotFittedError, match=r"calibrate\(unknown=True\) first"):
        classifier.predict(clusters()[0], reject=0.1)
    with pytest.raises(NotFittedError):
        next(classifier.calibrate().iter_answers(clusters()[0], reject=0.1))


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, True, "0.1"])
def test_bad_rates(rate):
    model = make("local-nbnn").fit(*clusters()).calibrate(unknown=True)
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        model.predict(clusters()[0], reject=rate)


def test_two_classes_are_too_few():
    with pytest.raises(InvalidInputError, match="at least three classes"):
        make("local-nbnn").fit(*clusters(2)).calibrate(unknown=True)


def test_methods_that_cannot(tmp_path):
    model = make("local-nbnn-kernel").fit(*clusters())
    held_out = np.eye(8)[model.places_]
    with pytest.raises(InvalidInputError, match="cannot leave a class out"):
        model.calibrate(held_out, unknown=True)
    fusion = LateFusion([("a", make("nbnn")), ("b", make("local-nbnn-kernel"))]).fit(*clusters())
    with pytest.raises(InvalidInputError, match="cannot leave a class out"):
        fusion.calibrate(unknown=True)
    (answer,) = fusion.iter_answers(clusters()[0][:1])
    assert sum(answer.probabilities) == pytest.approx(1.0)


LISTS = [[], "none", [2.0, 1.0], [float("inf")], [None], {"a": 1}]
BY_CLASS = [*LISTS, [1.0, 2.0], [[1.0]], [[1.0], []], [[1.0], [2.0, 1.0]], [[1.0], [float("nan")]], [[1.0]] * 5000]
CONFIDENCE = [*LISTS, [1.0, 1.0], [-1.0, 1.0, 0.0], [1.0, float("nan"), 0.0], [1.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("unknown_prominence", value) for value in LISTS),
        *(("unknown_by_class", value) for value in BY_CLASS),
        *(("confidence", value) for value in CONFIDENCE),
    ],
)
def test_damaged_fields(tmp_path, field, value):
    make("local-nbnn").fit(*clusters(3)).calibrate(unknown=True).save(tmp_path / "model")
    forge_manifest(tmp_path / "model", **{field: value})
    with pytest.raises(ModelFormatError, match=field):
        load(tmp_path / "model")


def test_a_new_calibration_leaves_nothing_of_the_old_one(tmp_path):
    make("local-nbnn").fit(*clusters()).calibrate(unknown=True).save(tmp_path / "model")
    forge_manifest(tmp_path / "model", unknown_prominence=[1.0, 2.0])
    calibrate(tmp_path / "model")
    assert load(tmp_path / "model").fitted().calibration.unknown_prominence is None


def test_a_model_is_made_ready_once_and_stored(tmp_path):
    make("local-nbnn").fit(*clusters()).save(tmp_path / "model")
    notes = []
    opened = load(tmp_path / "model")
    prepare_to_reject(opened.fitted(), note=notes.append)
    assert [note.partition(": ")[2][:17] for note in notes] == ["calibrating, once"]
    (answer,) = opened.iter_answers(clusters()[0][:1], reject=0.9)
    assert answer.is_unknown is False
    again = load(tmp_path / "model")
    prepare_to_reject(again.fitted(), note=notes.append)
    assert len(notes) == 1
    assert same_values(opened.fitted().calibration, again.fitted().calibration)
    with edit(tmp_path / "model") as model:
        model.relabel([0, 1, 2], "class 3")
    again.refresh()
    prepare_to_reject(again.fitted(), note=notes.append)
    assert "3 images changed since" in notes[1]


def test_a_model_that_cannot_be_stored_is_made_ready_in_memory(tmp_path, monkeypatch):
    make("local-nbnn").fit(*clusters()).save(tmp_path / "model")
    opened, notes = load(tmp_path / "model"), []
    with edit(tmp_path / "model") as model:
        model.relabel(0, "class 3")
    prepare_to_reject(opened.fitted(), note=notes.append)
    assert "not stored: " in notes[1]
    assert "was changed while it was calibrated" in notes[1]
    assert opened.fitted().can_reject
    unsaved = make("local-nbnn").fit(*clusters())
    prepare_to_reject(unsaved.fitted(), note=notes.append)
    assert unsaved.fitted().can_reject


# ---- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def own_model(tmp_path, fit):
    """Stripes of eight directions, three photos each."""
    for place in range(8):
        (tmp_path / "photos" / f"{place}").mkdir(parents=True)
        for number in range(3):
            picture = Image.fromarray(grating(22.5 * place, seed=10 * place + number, side=96))
            picture.save(tmp_path / "photos" / f"{place}" / f"{number}.png")
    assert fit(tmp_path / "photos", tmp_path / "model").code == 0
    return tmp_path / "model"


def test_predict_may_answer_unknown(own_model, tmp_path, run):
    Image.fromarray(grating(45.0, seed=77, side=96)).save(tmp_path / "known.png")
    Image.fromarray(noise_image(96, 96)).save(tmp_path / "strange.png")
    paths = (tmp_path / "known.png", tmp_path / "strange.png")
    outcome = run("predict", own_model, *paths, "--format", "json", "--reject", "0.2")
    assert "calibrating, once" in outcome.err
    known, strange = (json.loads(line) for line in outcome.out.splitlines())
    assert known["label"] == "2"
    assert not known["is_unknown"]
    assert 0.5 < known["probability"] <= 1.0
    assert known["false_accept_rate"] <= 0.2
    assert strange["label"] == "unknown"
    assert strange["is_unknown"]
    again = run("predict", own_model, *paths, "--format", "csv", "--reject", "0.2")
    assert again.err == "", "the calibration was stored"
    rows = again.out.splitlines()
    assert rows[0] == "path,rank,label,score,probability,is_unknown"
    assert len(rows) == 11
    assert "unknown" in run("predict", own_model, *paths, "--reject", "0.2").out
    with edit(own_model) as model:
        model.relabel([0, 1, 2], "7")
    assert "3 images changed since" in run("predict", own_model, *paths, "--reject", "0.2").err


def test_calibrate_command_and_bad_rate(own_model, tmp_path, run_main):
    assert run_main("calibrate", own_model).out.strip().endswith("calibrated on 24 images")
    outcome = run_main("predict", own_model, tmp_path / "photos", "--reject", "2")
    assert outcome.code == 2
    assert "between 0 and 1" in outcome.err

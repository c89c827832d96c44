"""A model: calibrated, refitted, saved and opened."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from forged import forge_manifest
from quick import make, quick
from sklearn.exceptions import NotFittedError
from synthetic import flat_image, grating, grating_set, make_features

from lnbnn import NBNN, AffineNBNN, LateFusion, LocalNBNN, load
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.cross_fitting import cross_fitted_scores
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.methods import INCREMENTAL
from lnbnn.model.calibration import (
    corrected,
    expected_calibration_error,
    fit_temperature,
    log_probabilities,
)
from lnbnn.model.folder import read_manifest

KINDS = [LocalNBNN, NBNN, AffineNBNN]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.method)
def classifier(request):
    return quick(request.param).fit(*grating_set(n_images=3))


def queries():
    return grating_set(seed=9)[0]


def test_probabilities_of_a_classifier(classifier):
    assert classifier.calibrate() is classifier
    found = classifier.predict_proba([*queries(), flat_image()])
    assert found.shape == (7, 3)
    assert np.allclose(found.sum(axis=1), 1.0)
    assert (found >= 0).all()
    scores = classifier.decision_function(queries())
    assert np.array_equal(np.argsort(-found[:6], axis=1), np.argsort(-scores, axis=1))
    assert np.allclose(found[6], 1 / 3)
    assert classifier.predict_proba([]).shape == (0, 3)


def test_temperature_is_that_of_the_leave_one_out_scores():
    classifier = quick(LocalNBNN, query_budget=12).fit(*grating_set(n_images=3)).calibrate()
    temperature = classifier.model_.calibration.temperature
    assert temperature == fit_temperature(-classifier.reference_totals() / 12, classifier.places_)
    found = classifier.predict_proba(queries())
    expected = log_probabilities(classifier.decision_function(queries()) / 12, temperature)
    assert np.allclose(found, np.exp(corrected(expected, classifier.model_.calibration.confidence)))


def test_probabilities_are_honest():
    """Two overlapping classes: what is said with 70 % is right in about 70 %."""
    rng = np.random.default_rng(0)

    def images(n):
        labels = np.arange(n) % 2
        return [make_features(rng.normal(0.55 * y, 1.0, (8, 3)).astype(np.float32)) for y in labels], labels

    train, labels = images(120)
    test, truth = images(400)
    classifier = quick(LocalNBNN, location_weight=0, n_neighbors=5).fit(train, labels).calibrate()
    found = classifier.predict_proba(test)
    assert 0.55 < np.mean(found.argmax(axis=1) == truth) < 0.95
    assert expected_calibration_error(found, truth, n_bins=5) < 0.08


def test_not_calibrated(classifier):
    with pytest.raises(NotFittedError, match=r"not calibrated yet; call calibrate\(\) before predict_proba"):
        classifier.predict_proba(queries())


def test_not_fitted():
    for act in ("calibrate", "predict_proba"):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            getattr(quick(NBNN), act)(*([queries()] if act == "predict_proba" else []))


def test_temperature_is_saved(classifier, tmp_path):
    classifier.save(tmp_path / "plain")
    assert load(tmp_path / "plain").model_.calibration is None
    classifier.calibrate().save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.model_.calibration.temperature == classifier.model_.calibration.temperature
    assert again.predict_proba(queries()).tobytes() == classifier.predict_proba(queries()).tobytes()
    assert again.calibrate().model_.calibration.temperature == classifier.model_.calibration.temperature


@pytest.mark.parametrize("value", [0, -1.0, "warm", None])
def test_damaged_temperature(classifier, tmp_path, value):
    classifier.calibrate().save(tmp_path / "model")
    forge_manifest(tmp_path / "model", temperature=value)
    with pytest.raises(ModelFormatError, match="the manifest is damaged"):
        load(tmp_path / "model")


def test_classes_of_one_image():
    images, labels = grating_set()
    with pytest.raises(InvalidInputError, match="calibration needs a class with at least two images"):
        quick(NBNN).fit(images[::2], labels[::2]).calibrate()
    classifier = quick(NBNN).fit(images[1:], labels[1:]).calibrate()  # one image in the first class
    used = classifier.places_ > 0
    places = classifier.places_[used]
    scales = np.array([image.n_descriptors for image in classifier.images_])[:, None]
    expected = fit_temperature((-classifier.reference_totals() / scales)[used], places)
    assert classifier.model_.calibration.temperature == expected


def test_one_class():
    classifier = quick(NBNN).fit(grating_set()[0][:2], ["only", "only"]).calibrate()
    assert classifier.predict_proba(queries()).tolist() == [[1.0]] * 6


def test_bad_query_file(classifier, tmp_path):
    with pytest.raises(ImageReadError, match="no such file"):
        classifier.calibrate().predict_proba([tmp_path / "missing.png"])


def test_progress(classifier):
    seen = []
    classifier.calibrate(progress=lambda *call: seen.append(call))
    classifier.predict_proba(queries(), progress=lambda *call: seen.append(call))
    assert seen[-1] == ("classifying", 6, 6)


def test_held_out_of_another_shape(classifier):
    with pytest.raises(InvalidInputError, match=r"shape \(9, 3\); got \(2, 2\)"):
        classifier.calibrate(np.zeros((2, 2)))


# ---- a refit forgets -------------------------------------------------------------------------------------------------


def some_fusion():
    return LateFusion([("a", make("local-nbnn")), ("b", make("nbnn"))], n_jobs=1)


REFITTED = {name: (lambda name=name: make(name)) for name in sorted(CLASSIFIERS)} | {"fusion": some_fusion}


def as_far_as_it_goes(classifier, images, labels):
    """The classifier fitted, calibrated and changed in every way that its method can bear."""
    classifier.fit([flat_image(), *images], ["direction 0", *labels])
    try:
        classifier.calibrate(unknown=True)
    except InvalidInputError:
        held_out = classifier.held_out_scores()
        if held_out is None:
            held_out = cross_fitted_scores(classifier, [flat_image(), *images], ["direction 0", *labels], n_folds=3)
        classifier.calibrate(held_out)
    assert classifier.model_.calibration is not None
    if classifier.method in INCREMENTAL:
        classifier.partial_fit([grating(75, seed=5), flat_image()], ["new", "new"]).remove(0).relabel(4, "new")
        assert classifier.model_.n_changes == 3
    return classifier


@pytest.mark.parametrize("kind", sorted(REFITTED))
@pytest.mark.parametrize("is_opened", [False, True])
def test_a_refit_forgets_everything_of_the_old_fit(kind, is_opened, tmp_path):
    classifier = as_far_as_it_goes(REFITTED[kind](), *grating_set(n_images=3))
    assert classifier.skipped_
    if is_opened:
        classifier.save(tmp_path / "before")
        classifier = load(tmp_path / "before")
        assert classifier.model_.snapshot is not None
    other, labels = grating_set(n_classes=4, n_images=2, seed=3)
    labels = [label.upper() for label in labels]
    classifier.fit(other, labels)
    model, fresh = classifier.model_, REFITTED[kind]().fit(other, labels)

    if kind != "fusion":  # its probabilities come from the fit
        assert model.calibration is None
    assert not model.can_reject
    assert (model.n_changes, model.next_id) == (fresh.model_.n_changes, fresh.model_.next_id)
    assert [image.id for image in classifier.images_] == list(range(8))
    assert classifier.classes_.tolist() == sorted(set(labels))
    assert classifier.skipped_ == []
    assert model.snapshot is None
    with pytest.raises(InvalidInputError, match="can be refreshed"):
        classifier.refresh()
    with pytest.raises(NotFittedError, match="cannot reject yet"):
        classifier.predict(queries(), reject=0.5)
    with pytest.raises(NotFittedError, match="cannot reject yet"):
        next(classifier.iter_answers(queries(), reject=0.5))
    (answer, *_) = classifier.iter_answers(queries())
    assert (answer.false_accept_rate, answer.is_unknown) == (None, None)
    if kind != "fusion":
        assert answer.probabilities == ()
        with pytest.raises(NotFittedError, match="not calibrated yet"):
            classifier.predict_proba(queries())
    assert np.array_equal(classifier.decision_function(queries()), fresh.decision_function(queries()))

    classifier.save(tmp_path / "refitted")
    fresh.save(tmp_path / "fresh")
    saved, expected = (read_manifest(tmp_path / name) for name in ("refitted", "fresh"))
    learned = {"confidence"} if kind == "fusion" else set()
    assert {"temperature", "confidence", "unknown_by_class", "unknown_prominence"} & saved.keys() == learned
    for manifest in (saved, expected):
        del manifest["data"], manifest["files"]
    assert saved == expected
    assert not load(tmp_path / "refitted").model_.can_reject


@pytest.mark.parametrize("kind", sorted(REFITTED))
def test_a_fit_that_fails_leaves_no_model(kind, tmp_path):
    classifier = REFITTED[kind]().fit(*grating_set(n_images=2))
    with pytest.raises(ImageReadError):
        classifier.fit([tmp_path / "missing.png"], ["a"])
    with pytest.raises(NotFittedError):
        classifier.predict(queries())
    assert not hasattr(classifier, "classes_")


# ---- settings, the classifier and the model --------------------------------------------------------------------------


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_model_sees_changes_of_the_settings(is_opened, tmp_path):
    classifier = quick(LocalNBNN).fit(*grating_set(n_images=3))
    if is_opened:
        classifier.save(tmp_path / "model")
        classifier = load(tmp_path / "model")
    classifier.set_params(query_budget=7)
    assert len(classifier.query_features(queries()[0])) == 7
    classifier.query_budget = 9
    assert len(classifier.query_features(queries()[0])) == 9


@pytest.mark.parametrize("kind", ["local-nbnn", "nbnn-affine", "nbnn-kernel", "pooled-svm", "fusion"])
@pytest.mark.parametrize("is_opened", [False, True])
def test_a_model_that_nobody_uses_goes_at_once(kind, is_opened, tmp_path):
    """Without waiting for the garbage collector: a model may take gigabytes, and keeps the files that it reads."""
    classifier = REFITTED[kind]().fit(*grating_set(n_images=2))
    if is_opened:
        classifier.save(tmp_path / "model")
        classifier = load(tmp_path / "model")
    classifier.predict(queries())
    gone = weakref.ref(classifier.model_)
    gc.disable()
    try:
        del classifier
        assert gone() is None
    finally:
        gc.enable()

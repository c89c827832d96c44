"""A model: calibrated, refitted, saved and opened."""

from __future__ import annotations

import numpy as np
import pytest
from forged import forge_manifest
from quick import quick
from sklearn.exceptions import NotFittedError
from synthetic import flat_image, grating_set, make_features

from lnbnn import NBNN, AffineNBNN, LocalNBNN, load
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.model.calibration import (
    expected_calibration_error,
    fit_temperature,
    log_probabilities,
)

KINDS = [LocalNBNN, NBNN, AffineNBNN]


# ---- in the classifiers ----------------------------------------------------------------------------------------------


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
    assert np.allclose(found, np.exp(expected))


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


def test_refit_forgets_the_temperature(classifier):
    classifier.calibrate().fit(*grating_set(n_images=3))
    assert classifier.model_.calibration is None


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

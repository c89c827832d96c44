"""A fusion as a model: on disk, as it lives, with images left out."""

from __future__ import annotations

import numpy as np
import pytest
from forged import data_file
from quick import MeanBrightness, quick
from synthetic import grating_set

from lnbnn import NBNN, LateFusion, LocalNBNN, load
from lnbnn.errors import InvalidInputError
from lnbnn.model.calibration import log_probabilities
from lnbnn.model.changes import calibrate, check_model, edit, list_images, merge
from lnbnn.trust.audit import audit


def pair(**changes):
    return LateFusion([("nbnn", quick(NBNN)), ("local", quick(LocalNBNN))], **{"n_jobs": 1, **changes})


def images_and_labels():
    return grating_set(n_images=3)


def queries():
    return grating_set(seed=9)


@pytest.fixture(scope="module")
def fusion():
    return pair().fit(*images_and_labels())


# ---- on disk ---------------------------------------------------------------------------------------------------------


def test_save_and_load(fusion, tmp_path):
    fusion.save(tmp_path / "model")
    again = load(tmp_path / "model")
    images, _ = queries()
    assert isinstance(again, LateFusion)
    assert again.decision_function(images).tobytes() == fusion.decision_function(images).tobytes()
    assert again.predict_proba(images).tobytes() == fusion.predict_proba(images).tobytes()
    assert again.images_ == fusion.images_
    assert again.describe() == fusion.describe()
    assert [name for name, _ in again.estimators] == ["nbnn", "local"]
    assert load(data_file(tmp_path / "model", "member1")).method == "local-nbnn"
    assert not list((tmp_path / "model").rglob("*.pkl"))
    again.save(tmp_path / "copy")
    assert load(tmp_path / "copy").decision_function(images).tobytes() == fusion.decision_function(images).tobytes()
    with pytest.raises(InvalidInputError, match="a model is here already"):
        fusion.save(tmp_path / "model")
    fusion.save(tmp_path / "model", overwrite=True)


def test_a_fusion_follows_its_folder(fusion, tmp_path):
    with pytest.raises(InvalidInputError, match="can follow the folder"):
        fusion.refresh()
    fusion.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert not again.refresh()
    fusion.save(tmp_path / "model", overwrite=True)
    assert again.refresh()
    assert again.describe() == fusion.describe()


# ---- as a model that lives -------------------------------------------------------------------------------------------


def test_left_out_scores_are_fused_as_scores_are(fusion):
    """Of one image: its members' totals without it, or without its class, as probabilities, multiplied."""
    model = fusion.model_
    for found, of_member in (
        (model.held_out_scores(), lambda member: member.model_.held_out_scores()),
        (model.unknown_scores(), lambda member: member.model_.unknown_scores()),
    ):
        product = sum(
            weight * log_probabilities(of_member(member) / 36, member.model_.calibration.temperature)
            for weight, member in zip(fusion.weights_, fusion.estimators_, strict=True)
        )
        expected = product - np.log(np.exp(product).sum(axis=1, keepdims=True))
        assert np.allclose(np.exp(found), np.exp(expected))
    assert (model.unknown_scores()[np.arange(9), fusion.places_] == -np.inf).all()


def test_a_fusion_rejects_and_keeps_it(tmp_path):
    fusion = pair().fit(*images_and_labels()).calibrate(unknown=True)
    images, _ = queries()
    assert fusion.predict(images, reject=0.99).tolist() == fusion.predict(images).tolist()
    assert fusion.predict(images, reject=0.001).tolist() == [None] * len(images)
    fusion.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for stored, own in zip(
        again.model_.calibration.unknown_by_class, fusion.model_.calibration.unknown_by_class, strict=True
    ):
        assert np.array_equal(stored, own)
    (answer, *_) = again.iter_answers(images, reject=0.001)
    assert answer.is_unknown
    assert sum(answer.probabilities) == pytest.approx(1.0)


def test_a_fusion_is_calibrated_in_its_folder(tmp_path):
    pair().fit(*images_and_labels()).save(tmp_path / "model")
    calibrate(tmp_path / "model")
    assert sum(map(len, load(tmp_path / "model").model_.calibration.unknown_by_class)) == 9


def test_a_fusion_is_audited(fusion):
    images, labels = images_and_labels()
    assert audit(fusion).suspects == ()
    labels[1] = labels[-1]
    (suspect,) = audit(pair().fit(images, labels)).suspects
    assert (suspect.id, suspect.suggested) == (1, "direction 0")
    with pytest.raises(InvalidInputError, match="cannot look up its images"):
        audit(LateFusion([("a", quick(NBNN)), ("b", MeanBrightness())]).fit(*images_and_labels()))


def test_a_fusion_is_listed_and_checked_but_not_changed(fusion, tmp_path):
    fusion.save(tmp_path / "model")
    assert [image.id for image in list_images(tmp_path / "model")] == list(range(9))
    report = check_model(tmp_path / "model")
    assert (report.n_images, report.problems) == (9, ())
    with pytest.raises(InvalidInputError, match="'fusion' learns from all images together"), edit(tmp_path / "model"):
        pass
    with pytest.raises(InvalidInputError, match="'fusion' cannot be merged"):
        merge(tmp_path / "model", tmp_path / "model", tmp_path / "both")
    with pytest.raises(InvalidInputError, match="'fusion' learns from all images together"):
        load(tmp_path / "model").remove(0)

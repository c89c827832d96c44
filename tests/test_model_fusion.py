"""A fusion as a model: on disk, as it lives, with images left out."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from forged import data_file, forge_checksums
from quick import MeanBrightness, quick
from synthetic import grating, grating_set, small_sift

from lnbnn import NBNN, LateFusion, LocalNBNN, load
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.classifiers.trained import PooledSVM
from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError
from lnbnn.model.calibration import fit_fusion_weights, log_probabilities
from lnbnn.model.changes import calibrate, check_model, compact, edit, list_images, merge
from lnbnn.model.fusion import FusionModel
from lnbnn.model.held_out import weights_are_due
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
    with pytest.raises(InvalidInputError, match="can be refreshed"):
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
    with pytest.raises(InvalidInputError, match="cannot leave its images out"):
        audit(LateFusion([("a", quick(NBNN)), ("b", MeanBrightness())]).fit(*images_and_labels()))


def test_a_fusion_is_listed_and_checked(fusion, tmp_path):
    fusion.save(tmp_path / "model")
    assert [image.id for image in list_images(tmp_path / "model")] == list(range(9))
    report = check_model(tmp_path / "model")
    assert (report.n_images, report.problems) == (9, ())


# ---- changes ---------------------------------------------------------------------------------------------------------


def changeable(**changes):
    """Two methods on one descriptor and one on another, of which a faint picture has nothing."""
    blind = small_sift(step_px=9, min_contrast=8.0)
    members = [("nbnn", quick(NBNN)), ("ridge", PooledRidge(alpha=0.1, descriptor=small_sift()))]
    members.append(("blind", quick(LocalNBNN, descriptor=blind)))
    return LateFusion(members, **{"n_jobs": 1, **changes})


def faint(seed):
    """A picture that only sharp eyes see something in."""
    return (128 + (grating(30, seed=seed).astype(np.float64) - 128) / 6).astype(np.uint8)


def more():
    images, labels = grating_set(n_classes=4, n_images=2, seed=5)
    return [*images, faint(1), faint(2)], [*labels, "faint", "faint"]


def scores_of(classifier):
    return classifier.decision_function([*queries()[0], faint(3)])


def changed(model):
    """Changes one by one, to a classifier or in a folder."""
    images, labels = more()
    if isinstance(model, LateFusion):
        model.partial_fit(images, labels).remove([0, 10]).relabel([4], "direction 3")
        return
    for change, arguments in (("add", (images, labels)), ("remove", ([0, 10],)), ("relabel", ([4], "direction 3"))):
        with edit(model) as editor:
            getattr(editor, change)(*arguments)


def test_members_of_a_changed_fusion_are_as_fitted_at_once():
    images, labels = images_and_labels()
    found = changeable().fit(images, labels)
    changed(found)
    added, added_labels = more()
    names = dict(enumerate([*labels, *added_labels])) | {4: "direction 3"}
    kept = [number for number in names if number not in (0, 10)]
    at_once = changeable().fit([[*images, *added][number] for number in kept], [names[number] for number in kept])
    assert found.classes_.tolist() == at_once.classes_.tolist()
    assert [image.id for image in found.images_] == kept
    for one, other in zip(found.model_.members, at_once.model_.members, strict=True):
        assert one.references.classes.tolist() == other.references.classes.tolist()
        mine, theirs = (list(model.iter_scores(queries()[0])) for model in (one, other))
        assert np.array_equal(mine, theirs)
    assert "faint" in found.classes_
    assert "faint" not in found.model_.members[2].references.classes  # its class is the last there
    assert found.predict([faint(3)]).tolist() == ["faint"]


def test_changes_in_the_folder_are_those_in_memory(tmp_path):
    found = changeable().fit(*images_and_labels())
    found.save(tmp_path / "model")
    before = load(tmp_path / "model")
    changed(tmp_path / "model")
    changed(found)
    opened = load(tmp_path / "model")
    assert np.array_equal(opened.weights_, found.weights_)
    assert np.array_equal(scores_of(opened), scores_of(found))
    assert before.refresh() is True
    assert np.array_equal(scores_of(before), scores_of(found))
    assert check_model(tmp_path / "model").problems == ()
    compact(tmp_path / "model")
    assert load(tmp_path / "model").images_ == [replace(image, batch=0) for image in opened.images_]
    assert np.array_equal(scores_of(load(tmp_path / "model")), scores_of(found))


def test_weights_are_learned_again_from_what_is_known_of_each_image(tmp_path):
    found = changeable().fit(*images_and_labels())
    known = found.model_.held_out.scores.copy()
    before = found.weights_.copy()
    found.relabel([0, 3], "direction 2")
    assert not np.array_equal(found.weights_, before)
    assert np.array_equal(found.model_.held_out.scores, known)  # labels changed, the scores need not be found again
    places = found.places_
    used = [row for row in range(9) if np.sum(places == places[row]) > 1]
    log_probas = [
        log_probabilities(scores[used], member.calibration.temperature)
        for scores, member in zip(known, found.model_.members, strict=True)
    ]
    assert np.allclose(found.weights_, fit_fusion_weights(log_probas, places[used]))


def test_scores_of_an_added_image_are_those_without_it():
    found = changeable().fit(*images_and_labels())
    new, _ = queries()
    expected = [next(iter(member.iter_scores(new[:1]))) for member in found.model_.members]
    scales = [member.method.score_scale(1) for member in found.model_.members]
    found.partial_fit(new[:1], ["direction 0"])
    last = found.model_.held_out
    assert last.ids[-1] == 9
    scales = [member.score_scales()[-1] for member in found.model_.members]
    for row, scores, scale in zip(last.scores[:, -1], expected, scales, strict=True):
        assert np.allclose(row, scores / scale, atol=1e-9)


def test_weights_are_due_once_one_image_in_a_hundred_has_changed():
    assert weights_are_due(1, 100)
    assert not weights_are_due(1, 101)
    assert not weights_are_due(15, 1515)
    assert weights_are_due(16, 1515)


def test_images_added_before_the_weights_are_due_count_when_they_are(tmp_path, monkeypatch):
    found = changeable().fit(*images_and_labels())
    found.save(tmp_path / "model")
    weights = found.weights_
    images, labels = more()
    for module in ("fusion", "changes"):
        monkeypatch.setattr(f"lnbnn.model.{module}.weights_are_due", lambda n_changes, n_images: n_changes > 2)
    monkeypatch.setattr("lnbnn.model.changes._load", None)  # no index is opened
    with edit(tmp_path / "model") as editor:
        editor.add(images[:1], labels[:1])
    with edit(tmp_path / "model") as editor:
        editor.relabel(8, "direction 0")
    monkeypatch.undo()
    for module in ("fusion", "changes"):
        monkeypatch.setattr(f"lnbnn.model.{module}.weights_are_due", lambda n_changes, n_images: n_changes > 2)
    found.partial_fit(images[:1], labels[:1]).relabel(8, "direction 0")
    opened = load(tmp_path / "model")
    assert np.array_equal(opened.weights_, weights)
    assert np.array_equal(scores_of(opened), scores_of(found))
    assert opened.model_.held_out.ids == list(range(9))
    with edit(tmp_path / "model") as editor:
        editor.add(images[1:2], labels[1:2])
    found.partial_fit(images[1:2], labels[1:2])
    again = load(tmp_path / "model")
    assert again.model_.held_out.ids == found.model_.held_out.ids == list(range(11))
    assert np.array_equal(again.model_.held_out.scores, found.model_.held_out.scores, equal_nan=True)
    assert not np.array_equal(again.weights_, weights)
    assert np.array_equal(again.weights_, found.weights_)
    assert again.model_.n_since_weights == found.model_.n_since_weights == 0
    assert again.model_.n_changes == found.model_.n_changes == 3


def test_a_changed_fusion_is_calibrated_again_in_its_folder(tmp_path):
    found = changeable().fit(*images_and_labels())
    found.save(tmp_path / "model")
    changed(tmp_path / "model")
    calibrate(tmp_path / "model")
    again = load(tmp_path / "model")
    changed(found)
    found.calibrate(unknown=True)
    assert found.model_.n_changes == again.model_.n_changes == 0
    for one, other in zip(found.model_.members, again.model_.members, strict=True):
        assert one.calibration.temperature == other.calibration.temperature
    assert np.array_equal(scores_of(again), scores_of(found))
    images, labels = images_and_labels()
    fresh = changeable().fit(images, labels)
    assert fresh.model_.members[0].calibration.temperature != again.model_.members[0].calibration.temperature


def test_fusions_are_merged(tmp_path):
    images, labels = images_and_labels()
    added, added_labels = more()
    changeable().fit(images, labels).save(tmp_path / "one")
    changeable().fit([*added, images[0]], [*added_labels, labels[0]]).save(tmp_path / "other")
    assert merge(tmp_path / "one", tmp_path / "other", tmp_path / "both") == [(10, 0)]
    both = load(tmp_path / "both")
    found = changeable().fit(images, labels).partial_fit(added, added_labels)
    assert [image.id for image in both.images_] == [image.id for image in found.images_]
    for one, other in zip(both.model_.members, found.model_.members, strict=True):
        assert np.array_equal(list(one.iter_scores(queries()[0])), list(other.iter_scores(queries()[0])))
    assert check_model(tmp_path / "both").problems == ()
    pair().fit(images, labels).save(tmp_path / "pair")
    with pytest.raises(InvalidInputError, match="must be fusions of the same methods"):
        merge(tmp_path / "one", tmp_path / "pair", tmp_path / "none")


def test_what_cannot_be_changed_is_refused_before_anything_is(tmp_path):
    found = changeable().fit(*images_and_labels())
    before = scores_of(found)
    with pytest.raises(InvalidInputError, match=r"local-nbnn on dense-sift needs at least .* descriptors to search"):
        found.partial_fit([faint(1)], ["faint"]).remove(range(9))
    assert len(found.images_) == 10
    found.remove(9)
    assert np.array_equal(scores_of(found)[:, :3], before)
    fixed = LateFusion([("nbnn", quick(NBNN)), ("svm", PooledSVM(descriptor=small_sift()))]).fit(*images_and_labels())
    with pytest.raises(InvalidInputError, match="learns from all images together"):
        fixed.remove(0)
    fixed.save(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="'fusion' learns from all images together"), edit(tmp_path / "model"):
        pass
    with pytest.raises(InvalidInputError, match="learns from all images together"):
        merge(tmp_path / "model", tmp_path / "model", tmp_path / "both")


def test_a_batch_that_does_not_fit_is_refused(tmp_path):
    changeable().fit(*images_and_labels()).save(tmp_path / "model")
    with edit(tmp_path / "model") as editor:
        editor.add(*more())
    folder = data_file(tmp_path / "model", "added-000002")
    shutil.copytree(folder / "part1", folder / "part0", dirs_exist_ok=True)
    forge_checksums(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="fit the model again"):
        load(tmp_path / "model")


@pytest.mark.parametrize("failing", ["write_added", "apply"])
def test_a_change_that_fails_leaves_the_folder_as_it_was(failing, tmp_path, monkeypatch):
    changeable().fit(*images_and_labels()).save(tmp_path / "model")
    before = {path: path.read_bytes() for path in (tmp_path / "model").rglob("*") if path.is_file()}
    expected = scores_of(load(tmp_path / "model"))

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FusionModel, failing, fails)
    with pytest.raises((LnbnnError, OSError), match="No space left"), edit(tmp_path / "model") as editor:
        editor.add(*more())
    monkeypatch.undo()
    after = {path: path.read_bytes() for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name != "writer.lock"} == {
        path: data for path, data in before.items() if path.name != "writer.lock"
    }
    assert np.array_equal(scores_of(load(tmp_path / "model")), expected)

"""The classifier that chooses by itself, on small sets."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from synthetic import grating_set

from lnbnn import LateFusion, LocalNBNN, load
from lnbnn.classifiers.auto import Auto
from lnbnn.classifiers.options import make_classifier
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.classifiers.trials import Trials
from lnbnn.errors import InvalidInputError

SIFT, KEYS = ["dense-sift"], ["keypoint-sift"]


def photos(n_classes=3, n_images=3, seed=0):
    return grating_set(n_classes=n_classes, n_images=n_images, seed=seed)


@pytest.fixture(scope="module")
def chosen():
    return Auto(descriptors=["deep", "dense-sift"], n_jobs=1).fit(*photos())


def test_it_tries_fuses_and_tells(chosen):
    names = [trial.name for trial in chosen.choice_.trials]
    assert names == [
        "local-nbnn on deep, location weight 1.4",
        "local-nbnn on deep, location weight 0.7",
        "local-nbnn on deep, location weight 0",
        "pooled-ridge on deep",
        "pooled-ridge on deep, the mean alone",
        "local-nbnn on dense-sift, location weight 1.6",
        "local-nbnn on dense-sift, location weight 0.8",
        "local-nbnn on dense-sift, location weight 0",
        "fisher on dense-sift",
        "fisher on dense-sift, without places",
    ]
    assert any(trial.weight > 0 for trial in chosen.choice_.trials)
    assert (chosen.choice_.n_images, chosen.choice_.n_classes) == (9, 3)
    low, high = chosen.choice_.interval
    assert 0.0 <= low <= chosen.choice_.accuracy <= high <= 1.0
    images, labels = photos(seed=9)
    assert chosen.predict(images).tolist() == labels
    assert chosen.model_.is_calibrated


def test_the_choice_does_not_depend_on_threads(chosen):
    again = Auto(descriptors=["deep", "dense-sift"], n_jobs=2).fit(*photos())
    assert again.choice_ == chosen.choice_
    images, _ = photos(seed=9)
    assert np.array_equal(again.decision_function(images), chosen.decision_function(images))


def test_the_model_keeps_the_choice_and_lives(chosen, tmp_path):
    chosen.save(tmp_path / "model")
    model = load(tmp_path / "model")
    assert model.model_.choice == chosen.choice_.as_json()
    assert model.model_.facts()["choice"]["accuracy"] == chosen.choice_.as_json()["accuracy"]
    images, labels = grating_set(n_classes=5, n_images=2, seed=7)
    model.partial_fit(images, [f"{label}, again" for label in labels])
    assert len(model.classes_) == 8


def test_without_a_network_codes_are_tried():
    names = [name for _, name, _ in Auto().candidates("dense-sift", has_network=False)]
    assert names[3:] == [
        "fisher on dense-sift",
        "fisher on dense-sift, without places",
        "slc on dense-sift",
        "slc on dense-sift, a pyramid of 3 levels",
    ]
    assert [name for _, name, _ in Auto().candidates("dense-sift", has_network=True)] == names[:5]


@pytest.mark.parametrize(("accuracy", "tried"), [(0.9, ["deep", "dense-sift"]), (0.7, ["deep", "dense-sift", *KEYS])])
def test_keypoints_are_tried_where_the_others_do_badly(accuracy, tried, monkeypatch):
    run, seen = Trials.run, []

    def watched(self, names, progress):
        seen.extend(names)
        if names != KEYS:
            run(self, names, progress)

    monkeypatch.setattr(Trials, "run", watched)
    monkeypatch.setattr(Trials, "accuracy_of", lambda self, names: accuracy)
    Auto(n_jobs=1).fit(*photos())
    assert seen == tried


def test_one_photo_per_class_is_a_safe_choice_with_a_warning(caplog, tmp_path):
    images, labels = photos(n_images=1)
    with caplog.at_level(logging.WARNING):
        found = Auto(descriptors=SIFT, n_jobs=1).fit(images, labels)
    assert "nothing can be tried" in caplog.text
    assert found.model_.settings.method == "local-nbnn"
    assert found.choice_.accuracy is None
    assert found.predict(images).tolist() == labels
    found.save(tmp_path / "model")
    assert load(tmp_path / "model").predict(images).tolist() == labels


def test_memory_is_kept_within_its_limit(caplog):
    images, _ = photos(n_images=4)
    found = LateFusion([("head", PooledRidge()), ("near", LocalNBNN())])
    with caplog.at_level(logging.WARNING):
        Auto(max_memory=460 << 20)._keep_within_memory(found, images, None)
    assert "to keep within memory" in caplog.text
    assert found.estimators[1][1].make_descriptor().step_px > 8


def test_options(tmp_path):
    assert isinstance(make_classifier(), Auto)
    assert isinstance(make_classifier(params={"n_jobs": 1, "random_state": 3}), Auto)
    assert make_classifier(descriptors=SIFT).method == "local-nbnn"
    assert make_classifier(descriptors=SIFT, preset="auto").descriptors == SIFT
    for options in ({"methods": ["nbnn"]}, {"params": {"n_neighbors": 3}}):
        with pytest.raises(InvalidInputError, match="the preset auto chooses"):
            make_classifier(**options, preset="auto")
    with pytest.raises(InvalidInputError, match="budget must be a number above 0"):
        make_classifier(params={"budget": 0})
    with pytest.raises(InvalidInputError, match="none of the 4 images"):
        Auto(descriptors=SIFT).fit([np.full((40, 40), 7, np.uint8)] * 4, ["a", "a", "b", "b"])

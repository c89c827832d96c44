"""From a manifest to settings and a model: what it names must be there, fit together, and be what this version has."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from fake_ray import HereCluster
from forged import data_file, forge_checksums, forge_manifest
from quick import fitted, quick
from synthetic import grating_set

from lnbnn import NBNN, LateFusion, LocalNBNN, load
from lnbnn.errors import ModelFormatError
from lnbnn.model.opening import load_model


@pytest.fixture(scope="module")
def fusion():
    members = [("nbnn", quick(NBNN)), ("local", quick(LocalNBNN))]
    return LateFusion(members, n_jobs=1).fit(*grating_set(n_images=3))


def test_a_setting_that_is_gone_opens_with_the_value_that_changes_nothing(tmp_path):
    fitted("local-nbnn").save(tmp_path / "model")
    params = json.loads((tmp_path / "model" / "manifest.json").read_bytes())["params"]
    gone = {"match_score": "difference", "background_rank": None, "normalize_classes": False}
    forge_manifest(tmp_path / "model", params={**params, **gone})
    assert load_model(tmp_path / "model").plain_params() == params
    forge_manifest(tmp_path / "model", params={**params, **gone, "match_score": "ratio"})
    with pytest.raises(ModelFormatError, match="this lnbnn no longer has the setting 'match_score'"):
        load(tmp_path / "model")


def test_models_saved_before_a_setting_was_there_keep_its_former_value(tmp_path):
    fitted("local-nbnn").save(tmp_path / "model")
    params = json.loads((tmp_path / "model" / "manifest.json").read_bytes())["params"]
    del params["scale_weight"]
    forge_manifest(tmp_path / "model", params=params)
    assert load(tmp_path / "model").scale_weight == 0.0


@pytest.mark.parametrize("method", ["best", ["nbnn"], "fusion"])
def test_an_unknown_method(tmp_path, method):
    fitted("local-nbnn").save(tmp_path / "model")
    forge_manifest(tmp_path / "model", method=method)
    with pytest.raises(ModelFormatError):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [1.0]},
        {"weights": [1.0, -1.0]},
        {"weights": "heavy"},
        {"members": ["nbnn"]},
        {"params": {"speed": 1}},
    ],
)
def test_a_damaged_manifest_of_a_fusion(fusion, tmp_path, change):
    fusion.save(tmp_path / "model")
    forge_manifest(tmp_path / "model", **change)
    with pytest.raises(ModelFormatError, match="the manifest is damaged"):
        load(tmp_path / "model")


def test_member_without_a_temperature(fusion, tmp_path):
    fusion.save(tmp_path / "model")
    forge_manifest(data_file(tmp_path / "model", "member0"), without=("temperature",))
    forge_checksums(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="a member of a fusion must be calibrated"):
        load(tmp_path / "model")


# ---- opened again by a worker ----------------------------------------------------------------------------------------


@pytest.fixture(params=["local-nbnn", "fusion"])
def opened(request, tmp_path, fusion):
    made = fusion if request.param == "fusion" else fitted("local-nbnn")
    made.save(tmp_path / "model")
    return load(tmp_path / "model").set_params(n_jobs=1)


def same_scores(classifier):
    images = grating_set(seed=9)[0]
    alone = classifier.decision_function(images)
    on_cluster = classifier.set_params(n_jobs=HereCluster()).decision_function(images)
    classifier.set_params(n_jobs=1)
    return np.array_equal(alone, on_cluster)


def test_a_worker_opens_the_same_model(opened):
    assert opened.fitted().opens_elsewhere
    again = pickle.loads(pickle.dumps(opened.fitted()))
    assert list(again.references) == list(opened.fitted().references)
    assert again.settings.n_jobs == 1
    assert same_scores(opened)


def test_a_model_that_is_not_the_folders_is_asked_here(opened):
    opened.partial_fit(grating_set(n_images=1, seed=4)[0], grating_set(n_images=1, seed=4)[1])
    assert not opened.fitted().opens_elsewhere
    with pytest.raises(pickle.PicklingError, match="save it, and load it from there"):
        pickle.dumps(opened.fitted())
    assert same_scores(opened)


def test_changed_settings_are_not_those_of_the_folder(tmp_path):
    fitted("local-nbnn").save(tmp_path / "model")
    classifier = load(tmp_path / "model").set_params(n_jobs=1, query_budget=7)
    assert not classifier.fitted().opens_elsewhere
    assert same_scores(classifier)


def test_a_calibration_that_was_not_saved_is_used(tmp_path):
    fitted("local-nbnn").save(tmp_path / "model")
    classifier = load(tmp_path / "model").set_params(n_jobs=1).calibrate()
    assert not classifier.fitted().opens_elsewhere
    images = grating_set(seed=9)[0]
    alone = classifier.predict_proba(images)
    assert np.array_equal(classifier.set_params(n_jobs=HereCluster()).predict_proba(images), alone)


def test_a_worker_refuses_a_folder_that_has_changed(opened, tmp_path):
    packed = pickle.dumps(opened.fitted())
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_bytes())
    forge_manifest(tmp_path / "model", n_changes=manifest["n_changes"] + 1)
    with pytest.raises(ModelFormatError, match="was changed while it was asked; run the command again"):
        pickle.loads(packed)

"""From a manifest to settings and a model: what it names must be there, fit together, and be what this version has."""

from __future__ import annotations

import json

import pytest
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

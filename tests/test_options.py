"""A classifier from plain options: presets, several methods or descriptors, settings that nobody has."""

from __future__ import annotations

import pytest

from lnbnn import LateFusion, LocalNBNN
from lnbnn.classifiers.auto import Auto
from lnbnn.classifiers.options import fit_options, make_classifier
from lnbnn.errors import InvalidInputError, UnknownNameError
from lnbnn.params import PRESETS, preset_params


def test_nothing_given_is_the_default_classifier():
    made = make_classifier(preset="balanced")
    assert type(made) is LocalNBNN
    assert made.get_params() == LocalNBNN().get_params()
    assert make_classifier(["local-nbnn"]).get_params() == made.get_params()
    assert type(make_classifier()) is Auto


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"deep", "sift"}))
def test_a_preset_is_where_settings_start(preset):
    made = make_classifier(preset=preset, params={"descriptor_params": {"longest_side": 96}, "n_neighbors": 7})
    expected = LocalNBNN(**preset_params(preset)).get_params()
    expected["descriptor_params"] = (expected["descriptor_params"] or {}) | {"longest_side": 96}
    assert made.get_params() == expected | {"n_neighbors": 7}


def test_a_preset_may_be_a_fusion():
    params = {"descriptor_params": {"longest_side": 96}, "n_neighbors": 7, "n_words": 32, "n_jobs": 1}
    made = make_classifier(preset="sift", params=params)
    assert type(made) is LateFusion
    members = [member for _, member in made.estimators]
    assert [member.method for member in members] == ["local-nbnn", "fisher-slc"]
    assert all(member.descriptor_params == {"longest_side": 96} for member in members)
    near, codes = members
    assert (near.n_neighbors, codes.n_words, codes.max_descriptors, codes.n_gaussians) == (7, 32, None, 512)
    with pytest.raises(InvalidInputError, match="the preset sift is a fusion of its own methods; take another preset"):
        make_classifier(["nbnn"], preset="sift")


def test_none_is_a_value():
    assert make_classifier(params={"stop_confidence": None}).stop_confidence is None
    assert make_classifier(preset="fast", params={"query_budget": None}).query_budget is None


def test_a_presets_grid_is_its_own_descriptors():
    made = make_classifier(["nbnn"], ["root-sift"], preset="fast")
    assert (made.method, made.descriptor, made.descriptor_params) == ("nbnn", "root-sift", None)
    assert made.index_params == PRESETS["fast"]["index_params"]


def test_several_descriptors_are_fused_each_with_its_settings():
    params = {"descriptor_params": {"longest_side": 96, "2:step_px": 5}, "n_jobs": 1}
    made = make_classifier([], ["dense-sift", "root-sift"], params=params)
    assert type(made) is LateFusion
    assert [name for name, _ in made.estimators] == ["member1", "member2"]
    members = [member for _, member in made.estimators]
    assert [member.descriptor for member in members] == ["dense-sift", "root-sift"]
    assert [member.descriptor_params for member in members] == [
        {"longest_side": 96},
        {"longest_side": 96, "step_px": 5},
    ]
    assert made.n_jobs == 1


def test_several_methods_get_the_settings_they_have():
    made = make_classifier(["local-nbnn", "pooled-svm"], params={"n_neighbors": 3})
    assert [member.method for _, member in made.estimators] == ["local-nbnn", "pooled-svm"]
    assert made.estimators[0][1].n_neighbors == 3


@pytest.mark.parametrize(
    ("methods", "descriptors", "params", "words"),
    [
        (["nbnn"], [], {"n_neighbors": 3}, "method 'nbnn' has no n_neighbors; its settings: "),
        (["nbnn", "local-nbnn"], ["dense-sift"] * 3, {}, "2 methods for 3 descriptors; give one of either"),
        ([], [], {"descriptor_params": {"2:step_px": 8}}, "'2:step_px=8' is for descriptor 2, but there are 1"),
        ([], [], {"descriptor_params": {"9" * 30 + ":step_px": 8}}, "but there are 1"),
        ([], [], {"descriptor_params": 5}, "descriptor_params must be settings by name; got 5"),
        ([], [], {"n_neighbors": 0}, "n_neighbors must be a whole number"),
        ([], [], {"descriptor_params": {"no": 1}}, "'dense-sift' has no setting 'no'"),
    ],
)
def test_what_makes_no_sense_is_refused(methods, descriptors, params, words):
    with pytest.raises(InvalidInputError) as caught:
        make_classifier(methods, descriptors, params=params)
    assert words in str(caught.value)


@pytest.mark.parametrize("options", [{"methods": ["no"]}, {"descriptors": ["no"]}, {"preset": "no"}])
def test_unknown_names(options):
    with pytest.raises(UnknownNameError, match=r"Unknown (method|descriptor|preset) 'no'"):
        make_classifier(**options)


def test_settings_as_options():
    settings = {
        "descriptor": "deep@stage6",
        "descriptor_params": {"bin_sizes": [4, 6], "step_px": 8},
        "index_params": {"n_probes": 2},
        "location_weight": 0.8,
    }
    expected = "--descriptor deep@stage6 -D bin_sizes=4,6 -D step_px=8 -I n_probes=2 -M location_weight=0.8"
    assert fit_options(settings) == expected

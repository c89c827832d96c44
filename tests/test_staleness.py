"""A record differs from today's run in its settings, in the parameters of its parts, or in nothing."""

from dataclasses import replace

import pytest

from lnbnn.descriptors.dense_sift import DenseSIFT
from lnbnn.lab import Experiment, Part
from lnbnn.lab.parts import full_params
from lnbnn.lab.provenance import part_digest
from lnbnn.lab.records import make_record
from lnbnn.lab.staleness import differences

SETTINGS = {"n_train": 15, "seeds": [0, 1, 2], "params": {"query_budget": 100}}


def plan(settings):
    params = full_params("local-nbnn", settings["params"])
    return [
        Part("x", {"n_train": settings["n_train"], "seed": seed, "params": params}, None) for seed in settings["seeds"]
    ]


EXPERIMENT = Experiment("x", "", SETTINGS, plan, None, None)


def record(command="lnbnn reproduce x", **settings):
    own = SETTINGS | settings
    parts = [{"commit": "abc", "parts": {part_digest(part): part.title for part in plan(own)}}]
    fields = {"seeds": own["seeds"], "results": {}, "seconds": 1.0, "parts": parts}
    return make_record("x", command, commit="abc", settings=own, **fields)


def test_todays_settings_and_smaller_runs_do_not_differ():
    assert differences(record(), EXPERIMENT) == []
    assert differences(record(seeds=[0, 2]), EXPERIMENT) == []
    assert differences(record("python benchmarks/x.py --train 30", n_train=30), EXPERIMENT) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"params": {"query_budget": 200}}, "params was {'query_budget': 200}"),
        ({"n_train": 30}, "n_train was 30"),
        ({"seeds": [0, 7]}, "seeds was [0, 7]"),
    ],
)
def test_other_settings_differ(settings, said):
    assert differences(record(**settings), EXPERIMENT) == [said]


def test_a_new_setting_differs():
    newer = replace(EXPERIMENT, settings=SETTINGS | {"grid": 3})
    assert differences(record(), newer) == ["grid was not a setting"]


def test_another_default_below_the_settings_differs(monkeypatch):
    then = record(seeds=[1])
    monkeypatch.setattr(DenseSIFT, "version", 7)
    assert differences(then, EXPERIMENT) == ["x, 15 images, split 1 had other parameters"]
    assert differences(replace(then, parts=[]), EXPERIMENT) == []

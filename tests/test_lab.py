"""Parts that are computed once, kept by all that they depend on, and say what they were made with."""

import json
from datetime import UTC, date, datetime

import numpy as np
import pytest
from tiny_lab import counted, grating_lab, sum_of

from lnbnn.descriptors.dense_sift import DenseSIFT
from lnbnn.descriptors.root_sift import RootSIFT
from lnbnn.errors import InvalidInputError
from lnbnn.lab import Experiment, Lab, Part, of_classes
from lnbnn.lab.lab import made_of
from lnbnn.lab.provenance import part_digest


@pytest.fixture
def lab(tmp_path):
    return grating_lab(tmp_path)


def test_a_part_is_computed_once(lab):
    calls = []
    assert lab.get(counted(calls, seed=1))["value"] == 1.0
    assert lab.get(counted(calls, value=2.0, seed=1))["value"] == 1.0
    assert lab.get(counted(calls, value=3.0, seed=2))["value"] == 3.0
    assert calls == [{"seed": 1}, {"seed": 2}]


def test_a_damaged_part_is_computed_again(lab):
    calls = []
    lab.get(counted(calls))
    (path,) = (lab.runs / "parts").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    assert lab.get(counted(calls))["value"] == 1.0
    assert len(calls) == 2


def test_a_run_that_was_stopped_goes_on(lab):
    calls = []

    def fail(lab, settings):
        raise KeyboardInterrupt

    first = counted(calls, seed=0, n_train=2, n_test=1)
    with pytest.raises(KeyboardInterrupt):
        lab.run(sum_of([first, Part("counted", {"seed": 1}, fail)]), {}, command="x")
    told = []
    second = counted(calls, value=2.0, seed=1, n_train=2, n_test=1)
    record = lab.run(sum_of([first, second]), {"k": 1}, command="x", on_part=told.append)
    assert record.results["sum"] == 3.0
    assert [(status.number, status.total, status.kept) for status in told] == [(1, 2, True), (2, 2, False)]
    assert told[-1].seconds_left == 0.0
    assert len(calls) == 2
    assert record.seeds == [0, 1]
    assert record.settings == {"k": 1, "dataset": "gratings", "data": lab.data_is}


def test_splits_are_listed_and_disjoint(lab):
    part = counted([], seed=3, n_train=2, n_test=2)
    record = lab.run(sum_of([part], sum=3), {}, command="x")
    assert list(record.results["splits"]) == ["gratings-2-2-seed3"]
    lists = json.loads((lab.runs / "splits" / "gratings-2-2-seed3.json").read_text(encoding="utf-8"))
    assert (len(lists["train"]), len(lists["test"])) == (6, 6)
    assert not set(lists["train"]) & set(lists["test"])


def test_finished_parts_make_a_record_of_their_own(lab):
    done = []

    def part(seed):
        return Part(
            "count", {"n_train": 4, "n_test": 2, "seed": seed}, lambda *_: done.append(seed) or {"x": np.array(seed)}
        )

    experiment = Experiment(
        name="count",
        title="",
        settings={},
        plan=lambda settings: [part(seed) for seed in (0, 1, 2)],
        summarize=lambda settings, outcomes: {"x": [int(arrays["x"]) for _, arrays in outcomes]},
        tabulate=str,
    )
    with pytest.raises(InvalidInputError, match="no part of count is finished"):
        lab.run(experiment, {}, command="", finished=True)
    for seed in (2, 0):
        lab.get(part(seed))
    record = lab.run(experiment, {}, command="", finished=True)
    assert (record.results["x"], record.seeds, done) == ([0, 2], [0, 2], [2, 0])


def test_a_part_keeps_arrays_and_plain_values(lab):
    part = Part("both", {}, lambda lab, settings: {"x": np.arange(3), "rows": [{"a": (1, None)}]})
    for _ in range(2):
        found = lab.get(part)
        assert found["x"].tolist() == [0, 1, 2]
        assert found["rows"] == [{"a": [1, None]}]
        assert float(found["seconds"]) >= 0


def test_a_part_is_computed_again_when_asked(lab):
    calls = []
    told = []
    experiment = sum_of([counted(calls, seed=0)])
    lab.run(experiment, {}, command="x")
    lab.run(experiment, {}, command="x", again=True, on_part=told.append)
    assert (len(calls), told[0].kept) == (2, False)
    assert str(told[0]).startswith("[1/1] counted, split 0: ")


def test_another_version_of_a_descriptor_is_another_part(lab, monkeypatch):
    nested = Part("x", {"members": {"a": ["nbnn", {"descriptor": "dense-sift"}]}}, None)
    none = Part("x", {"members": {"a": ["nbnn", {"k": 1}]}}, None)
    before = lab.path(nested), lab.path(none)
    monkeypatch.setattr(DenseSIFT, "version", 7)
    assert lab.path(nested) != before[0]
    assert lab.path(none) == before[1]


@pytest.mark.parametrize(
    ("name", "part"),
    [("lnbnn.lab.lab.__version__", Part("x", {}, None)), ("lnbnn.lab.lab.code_of", Part("x", {}, None))]
    + [(f"lnbnn.lab.lab.{name}", Part("x", {}, None, timed=True)) for name in ("versions", "cpu_name", "whole_code")],
)
def test_another_version_or_code_is_another_part(lab, monkeypatch, name, part):
    before = lab.path(part)
    assert lab.path(part) == before
    monkeypatch.setattr(name, "2" if name.endswith("__") else lambda *_: "other")
    assert lab.path(part) != before


def test_other_images_are_another_part(lab, tmp_path):
    part = Part("x", {"seed": 0}, None)
    names = {lab.path(part).name, Lab("other", lab.data, tmp_path / "runs").path(part).name}
    names.add(Lab("gratings", lab.data.take(range(17)), tmp_path / "runs").path(part).name)
    with open(lab.data.paths[0], "ab") as file:
        file.write(b"x")
    names.add(Lab("gratings", lab.data, tmp_path / "runs").path(part).name)
    assert len(names) == 4


def test_a_part_says_what_it_was_made_with(lab, monkeypatch):
    monkeypatch.setattr("lnbnn.lab.provenance.commit", lambda: "abc1234")
    part = counted([], seed=1, params={"descriptor": "root-sift"})
    for _ in range(2):  # computed, then read
        made = made_of(lab.get(part))
        assert (made["commit"], made["descriptors"]) == ("abc1234", {"root-sift": RootSIFT.version})
        assert made["versions"]["numpy"] == np.__version__
        assert date.fromisoformat(made["date"]) <= datetime.now(UTC).date()


def test_a_record_lists_the_commits_of_its_parts(lab, monkeypatch):
    for commit, seed in (("first", 0), ("second", 1)):
        monkeypatch.setattr("lnbnn.lab.provenance.commit", lambda commit=commit: commit)
        lab.get(counted([], seed=seed))
    third = counted([], seed=2)
    record = lab.run(sum_of([counted([], seed=seed) for seed in (0, 1)] + [third]), {}, command="x")
    assert [(group["commit"], list(group["parts"].values())) for group in record.parts] == [
        ("first", ["counted, split 0"]),
        ("second", ["counted, split 1", "counted, split 2"]),
    ]
    assert list(record.parts[1]["parts"])[1] == part_digest(third)
    assert record.settings["data"]["n_images"] == 18
    assert record.settings["data"]["images_per_class"] == [6, 6]


def test_a_part_of_code_that_was_not_committed_is_computed_again_once_it_is(lab, monkeypatch):
    calls = []
    part = counted(calls)
    for module in ("lab", "provenance"):
        monkeypatch.setattr(f"lnbnn.lab.{module}.commit", lambda: "abc-dirty")
    lab.get(part)
    lab.get(part)
    assert len(calls) == 1
    for module in ("lab", "provenance"):
        monkeypatch.setattr(f"lnbnn.lab.{module}.commit", lambda: "abd")
    with pytest.raises(InvalidInputError, match="no part of sum is finished"):
        lab.run(sum_of([part]), {}, command="", finished=True)
    assert made_of(lab.get(part))["commit"] == "abd"
    assert len(calls) == 2


def test_splits_of_some_classes_are_those_of_all(lab):
    settings = {"n_train": 3, "n_test": 2, "seed": 1}
    some = lab.shuffled_classes(1)[:2]
    whole, part = lab.split_of(settings), lab.split_of(settings, some)
    assert [of_classes(side, some) for side in whole] == list(part)
    assert sorted(lab.shuffled_classes(1)) == sorted(set(lab.data.labels))

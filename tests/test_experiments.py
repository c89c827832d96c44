"""Every experiment plans its parts, and the command runs them on a few images."""

import json

import pytest
from typer.testing import CliRunner

from lnbnn.cli import app
from lnbnn.lab import EXPERIMENTS, get_experiment, get_experiments
from lnbnn.lab.records import read_record
from lnbnn.lab.reproduce import start_in_background
from lnbnn.version import __version__


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_whole(name):
    experiment = get_experiment(name)
    assert experiment.name == name
    assert set(experiment.quick) <= set(experiment.settings)
    for settings in (experiment.settings, experiment.settings | experiment.quick):
        json.dumps(settings)
        parts = experiment.plan(settings)
        assert len({json.dumps([part.kind, part.settings], sort_keys=True) for part in parts}) == len(parts)


def test_command_writes_record_and_picture(tmp_path, monkeypatch):
    pytest.importorskip("skimage")
    monkeypatch.setenv("LNBNN_CALTECH101", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "figure-k", "--quick", "--runs", "r", "--output", "o"])
    assert result.exit_code == 0, result.output
    assert "the built-in photographs are used" in result.output
    assert "| k | 1 | 3 | 10 | 30 | 100 |" in result.output
    record = read_record(tmp_path / "o" / "figure-k-quick.json")
    assert record.command == "lnbnn reproduce figure-k --quick"
    assert (tmp_path / "o" / "figure-k-quick.png").stat().st_size > 5000


def test_a_column_of_table2_is_asked_for_by_its_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "table2", "--quick", "--train", "7", "--runs", "r"])
    assert result.exit_code == 2
    assert "table2-methods has columns of 3 or 5 images; got 7" in result.output


def test_the_experiments_of_a_name():
    names = {name: [one.name for one in get_experiments(name)] for name in ("table1", "table2", "table2-nbnn", "all")}
    assert names["table1"] == ["table1"]
    assert names["table2"] == ["table2-methods", "table2-authors-grid", "table2-nbnn", "table2-nbnn-kernel"]
    assert names["table2-nbnn"] == ["table2-nbnn"]
    assert names["all"] == list(EXPERIMENTS)


def test_finished_rows_of_table2_are_recorded_and_the_others_named(tmp_path, monkeypatch):
    pytest.importorskip("skimage")
    monkeypatch.setenv("LNBNN_CALTECH101", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)

    def run(name, *more):
        return CliRunner().invoke(app, ["reproduce", name, "--quick", "--runs", "r", "--output", "o", *more])

    nothing = run("table2", "--finished")
    assert nothing.exit_code == 1
    assert "no part of table2-methods is finished in r; run it first." in str(nothing.exception)
    assert run("table2-nbnn", "--train", "3").exit_code == 0
    some = run("table2", "--finished")
    assert some.exit_code == 0, some.output
    assert "no part of table2-authors-grid is finished" in some.output
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["table2-nbnn-3-quick.json"]
    assert read_record(tmp_path / "o" / "table2-nbnn-3-quick.json").command.endswith("table2-nbnn --quick --finished")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figure-z"], "Unknown experiment 'figure-z'; choose one of: figure-computation"),
        (["table1", "--dataset", "caltech7"], "Unknown data set 'caltech7'"),
        (["table1", "--data", "nowhere"], "nowhere"),
    ],
)
def test_bad_names_and_places(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code != 0
    assert message in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_process_in_the_background_writes_its_log(tmp_path):
    process, log = start_in_background(["--version"], tmp_path / "runs")
    assert process.wait() == 0
    assert log.read_text(encoding="utf-8").strip().endswith(__version__)

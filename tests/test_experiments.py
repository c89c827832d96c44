"""The paper's experiments: results by hand, parts that are kept, and every experiment run on a few images."""

import json
from datetime import UTC, date, datetime

import numpy as np
import pytest
from PIL import Image
from synthetic import grating_set
from typer.testing import CliRunner

from lnbnn.classifiers.kernels import LocalNBNNKernel
from lnbnn.cli import app
from lnbnn.data.folder import LabelledImages, scan_folder
from lnbnn.descriptors.dense_sift import DenseSIFT
from lnbnn.descriptors.root_sift import RootSIFT
from lnbnn.errors import InvalidInputError
from lnbnn.lab import EXPERIMENTS, Experiment, Lab, Part, get_experiment, of_classes
from lnbnn.lab.base import markdown_table, mean_sd
from lnbnn.lab.figure_scaling import growth
from lnbnn.lab.lab import made_of
from lnbnn.lab.parts import accuracy, full_params, kernel_part, per_class, responses_part, scores_part
from lnbnn.lab.provenance import part_digest
from lnbnn.lab.records import read_record
from lnbnn.lab.reproduce import chosen_settings, reproduce, start_in_background
from lnbnn.lab.table1 import summarize as summarize_table1
from lnbnn.lab.table1 import tabulate as tabulate_table1
from lnbnn.lab.table2 import PAPER as PAPER2
from lnbnn.lab.table2 import SETTINGS as TABLE2
from lnbnn.lab.table2 import plan as plan_table2
from lnbnn.lab.table2 import row_of as row_of_table2
from lnbnn.lab.table2 import summarize as summarize_table2
from lnbnn.lab.table2 import tabulate as tabulate_table2
from lnbnn.params import preset_params
from lnbnn.version import __version__


@pytest.fixture
def lab(tmp_path):
    for number, (image, label) in enumerate(zip(*grating_set(n_classes=3, n_images=6), strict=True)):
        (tmp_path / "images" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "images" / label / f"{number}.png")
    return Lab("gratings", scan_folder(tmp_path / "images"), tmp_path / "runs", n_jobs=1)


def counted(calls, value=1.0, **settings):
    """A part that notes each time it is computed."""

    def compute(lab, own):
        assert own == settings
        calls.append(settings)
        return {"value": np.array(value)}

    return Part("counted", settings, compute)


def sum_of(parts, **paper):
    return Experiment(
        name="sum",
        title="",
        settings={},
        plan=lambda settings: parts,
        summarize=lambda settings, outcomes: {"sum": float(sum(arrays["value"] for _, arrays in outcomes))},
        tabulate=lambda results: "",
        paper=paper,
    )


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


def test_a_changed_default_is_another_part():
    params = full_params("local-nbnn", {"n_neighbors": 3})
    assert params["n_neighbors"] == 3
    assert params["location_weight"] == 1.6
    assert params["descriptor_params"]["longest_side"] == 300
    assert "n_probes" in params["index_params"]


def test_accuracy_by_hand():
    # Class 0: one of two right; class 1: one of one. The mean over the classes is 75 %.
    scores, truth = np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 3.0]]), np.array([0, 0, 1])
    assert accuracy(scores, truth) == 75.0
    assert per_class(scores, truth).tolist() == [0.5, 1.0]


def test_mean_sd_and_table():
    assert mean_sd([66.0]) == "66.0"
    assert mean_sd([65.0, 67.0]) == "66.0 ± 1.4"
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def table2_outcomes(n_train=15):
    """Two splits: a method whose whole image is right and whose quarter is wrong, and kernels that are or are not."""
    right, wrong = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    kept = {"truth": np.array([1, 0]), "seconds": np.array(2.0)}
    outcomes = []
    for seed in (0, 1):
        split = {"n_train": n_train, "n_test": 15, "seed": seed}
        responses = responses_part("local-nbnn", split, {"scale_weight": 0.0})
        outcomes.append((responses, kept | {"totals": np.stack([-right, -wrong], axis=1)}))
        for how, scores in (({"machine": "svm", "blend": 0.0}, wrong), ({"response": "unit", "levels": 2}, right)):
            outcomes.append((kernel_part("local-nbnn-kernel", how, responses), kept | {"scores": scores}))
    sizes = responses_part("local-nbnn", split, {"scale_weight": 0.25})
    outcomes.append((kernel_part("local-nbnn-kernel", {"machine": "svm"}, sizes), kept | {"scores": right}))
    paper = scores_part("local-nbnn", split, preset_params("paper"))
    outcomes.append((paper, kept | {"scores": np.array([[0.0, 1.0], [0.0, 1.0]])}))
    outcomes.append((scores_part("spm-hard", split, {}), kept | {"scores": wrong}))
    return outcomes


def test_table2_by_hand():
    results = summarize_table2({}, table2_outcomes())
    rows = results["columns"]["15"]
    assert {name: row["accuracy"] for name, row in rows.items()} == {
        "local-nbnn": [100.0, 100.0],
        "local-nbnn-kernel": [0.0, 0.0],
        "local-nbnn-kernel + blend, logistic regression, quarters": [100.0, 100.0],
        "local-nbnn-kernel + sizes, blend": [100.0],
        "local-nbnn, the authors' grid": [50.0],
        "spm-hard": [0.0],
    }
    assert rows["local-nbnn, the authors' grid"]["per_class"] == [0.0, 1.0]
    assert (rows["spm-hard"]["mean"], rows["spm-hard"]["sd"]) == (0.0, None)
    assert tabulate_table2(results).splitlines()[2:] == [
        "| `local-nbnn` | 100.0 ± 0.0 | 2 | 66.1 ± 1.1 |",
        "| `local-nbnn, the authors' grid` | 50.0 | 1 | 66.1 ± 1.1 |",
        "| `spm-hard` | 0.0 | 1 | 62.5 ± 0.9 |",
        "| `local-nbnn-kernel` | 0.0 ± 0.0 | 2 | suggested only |",
        "| `local-nbnn-kernel + blend, logistic regression, quarters` | 100.0 ± 0.0 | 2 |  |",
        "| `local-nbnn-kernel + sizes, blend` | 100.0 | 1 |  |",
    ]


def test_table2_of_the_other_set_has_its_own_figures():
    results = summarize_table2({}, table2_outcomes(n_train=30)) | {"dataset": "caltech256-quick"}
    assert tabulate_table2(results).splitlines()[2] == "| `local-nbnn` | 100.0 ± 0.0 | 2 | 40.1 |"


def test_table2_has_the_papers_rows_on_five_splits_and_both_columns():
    rows = {}
    for part in plan_table2(TABLE2):
        rows.setdefault(row_of_table2(part), []).append((part.settings["n_train"], part.settings["seed"]))
    assert set(PAPER2["caltech101"]) == set(PAPER2["caltech256"]) <= set(rows)
    for name, splits in rows.items():
        slow = name.startswith("nbnn") or name.endswith("grid")
        assert sorted(splits) == [(n, seed) for n in (15, 30) for seed in range(3 if slow else 5)], name
    for part in plan_table2(TABLE2):  # what the paper's rows are made with
        if (row := row_of_table2(part)) in PAPER2["caltech101"] and not row.startswith("spm"):
            assert part.settings["params"]["scale_weight"] == 0.0
            assert (part.settings.get("blend"), part.settings.get("levels")) in ((None, None), (0.0, 1))


def test_table1_by_hand():
    truth = np.array([0, 1])
    right, wrong = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    kept = Part("log-odds", {"pictures": "longest side 128"}, None)
    arrays = {"truth": truth, "nbnn": right, "all": right, "positive": wrong, "increments": np.array([2.0, 0.5])}
    other = {"truth": truth, "nbnn": right, "all": wrong, "positive": right, "increments": np.array([2.0, 1.5])}
    results = summarize_table1({}, [(kept, arrays), (Part("log-odds", {"pictures": "128 x 128"}, None), other)])
    assert results["longest side 128"]["accuracy"] == {"nbnn": [100.0], "all": [100.0], "positive": [50.0]}
    assert results["longest side 128"]["positive_less_all"] == -50.0
    assert results["longest side 128"]["all_increments_answer_as_nbnn"] == 1.0
    assert results["128 x 128"]["all_increments_answer_as_nbnn"] == 0.5
    assert tabulate_table1(results).splitlines()[2:] == [
        "| 128 x 128 | full NBNN | 2.0 | 101 | 50.0 | 55.2 ± 0.97 |",
        "| 128 x 128 | positive increments only | 1.5 | 55.0 | 100.0 | 55.6 ± 1.17 |",
        "| longest side 128 | full NBNN | 2.0 | 101 | 100.0 | 55.2 ± 0.97 |",
        "| longest side 128 | positive increments only | 0.5 | 55.0 | 50.0 | 55.6 ± 1.17 |",
    ]


@pytest.mark.parametrize(
    ("times", "exponent", "exact"),
    [(lambda n: 3.0 * n, 1.0, "linear_error"), (lambda n: 2.0 + np.log(n), None, "log_error")],
)
def test_growth_by_hand(times, exponent, exact):
    n = np.array([2.0, 4.0, 8.0, 16.0])
    found = growth(n, times(n))
    other = {"linear_error": "log_error", "log_error": "linear_error"}[exact]
    assert found[exact] == 0.0
    assert found[other] > 0.05
    assert found["exponent"] < 0.5 if exponent is None else found["exponent"] == exponent


@pytest.mark.parametrize("machine", ["logistic", "svm"])
def test_kernel_part_scores_as_the_kernel_itself(lab, machine):
    params = {"index": "exact", "descriptor_params": {"bin_sizes": [4], "step_px": 7, "longest_side": 48}}
    split = {"n_train": 4, "n_test": 2, "seed": 0}
    arrays = lab.get(
        kernel_part("local-nbnn-kernel", {"machine": machine}, responses_part("local-nbnn", split, params))
    )
    train, test = lab.split_of({"n_train": 4, "n_test": 2, "seed": 0})
    kernel = LocalNBNNKernel(machine=machine, **params).fit(train.paths, train.labels)
    assert arrays["totals"] == pytest.approx(kernel.totals(test.paths), rel=1e-5)
    assert arrays["scores"] == pytest.approx(kernel.decision_function(test.paths), rel=1e-3, abs=1e-3)
    assert accuracy(-arrays["totals"], arrays["truth"]) == 100.0


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_whole(name):
    experiment = get_experiment(name)
    assert experiment.name == name
    assert set(experiment.quick) <= set(experiment.settings)
    for settings in (experiment.settings, experiment.settings | experiment.quick):
        json.dumps(settings)
        parts = experiment.plan(settings)
        assert len({json.dumps([part.kind, part.settings], sort_keys=True) for part in parts}) == len(parts)


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


def test_command_writes_record_and_picture(tmp_path, monkeypatch):
    pytest.importorskip("skimage")
    monkeypatch.setenv("LNBNN_CALTECH101", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "figure-k", "--quick", "--runs", "r", "--output", "o"])
    assert result.exit_code == 0, result.output
    assert "the built-in photographs stand in" in result.output
    assert "| k | 1 | 3 | 10 | 30 | 100 |" in result.output
    record = read_record(tmp_path / "o" / "figure-k-quick.json")
    assert record.command == "lnbnn reproduce figure-k --quick"
    assert (tmp_path / "o" / "figure-k-quick.png").stat().st_size > 5000


def test_a_column_of_table2_is_asked_for_by_its_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "table2", "--quick", "--train", "7", "--runs", "r"])
    assert result.exit_code == 2
    assert "table2 has columns of 3 or 5 images; got 7" in result.output


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


def test_reproduce_from_python(lab, tmp_path):
    calls = []
    done = reproduce(sum_of([counted(calls, seed=0)]), {}, lab, command="x", output=tmp_path)
    assert (done.path.name, done.picture) == ("sum-gratings.json", None)
    assert read_record(done.path) == done.record


def test_settings_of_the_first_splits_and_of_one_column():
    table2 = get_experiment("table2")
    settings = chosen_settings(table2, splits=1, train=30)
    assert (settings["seeds"], settings["seeds_slow"], settings["n_train"]) == ([0], [0], [30])
    assert table2.settings["seeds"] == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidInputError, match="table2 has columns of 15 or 30 images; got 7"):
        chosen_settings(table2, train=7)


def test_columns_that_the_images_are_too_few_for_are_left_out():
    table2, told = get_experiment("table2"), []
    twenty = LabelledImages(("x",) * 60, ("a",) * 20 + ("b",) * 40)
    assert chosen_settings(table2, images=twenty, note=told.append)["n_train"] == [15]
    assert told == ["30 training images per class: left out, the smallest class has 20 images."]
    thirty = LabelledImages(("x",) * 71, ("a",) * 31 + ("b",) * 40)
    assert chosen_settings(table2, images=thirty)["n_train"] == [15, 30]
    with pytest.raises(InvalidInputError, match=r"trains on 15 images per class or more.* smallest class has 15"):
        chosen_settings(table2, images=LabelledImages(("x",) * 15, ("a",) * 15))


def test_a_process_in_the_background_writes_its_log(tmp_path):
    process, log = start_in_background(["--version"], tmp_path / "runs")
    assert process.wait() == 0
    assert log.read_text(encoding="utf-8").strip().endswith(__version__)

"""Every committed record is whole, and the README's numbers are the records'."""

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from lnbnn.errors import InvalidInputError
from lnbnn.lab import EXPERIMENTS, get_experiment
from lnbnn.lab.records import make_record, read_record, results_digest, write_record
from lnbnn.lab.staleness import differences

HERE = Path(__file__).resolve().parent.parent
RECORDS = sorted((HERE / "results").glob("*.json"))


sys.path.append(str(HERE / "benchmarks"))


def _write_tables():
    return importlib.import_module("write_tables")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_record_is_whole(path):
    record = read_record(path)
    assert record.name == path.stem
    assert record.commit not in ("", "unknown")
    assert record.seconds > 0
    assert record.machine["cores"] >= 1


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_no_record_is_of_code_that_was_not_committed(path):
    assert "-dirty" not in path.read_text(encoding="utf-8"), f"commit, then run: {read_record(path).command}"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_a_record_is_of_todays_settings_or_says_what_is_stale(path):
    if path.stem.startswith("deep"):
        pytest.importorskip("onnxruntime")
    record, tables = read_record(path), _write_tables()
    found = differences(record, tables.experiment_of(path.stem))
    is_listed = path.stem in tables.STALE["stale"] or path.stem in tables.STALE["older"]
    if found or not record.parts:
        assert is_listed, f"{path.stem}: {found}; run '{record.command}', or list it in results/stale.toml"
    else:
        assert not is_listed, f"{path.stem} is up to date: take it off results/stale.toml"


def test_stale_records_are_there_and_listed_once():
    stale = _write_tables().STALE
    names = [*stale["stale"], *stale["older"], *stale["code"]]
    assert len(set(names)) == len(names)
    assert set(names) <= {path.stem for path in RECORDS}


def test_tables_of_stale_records_say_so(monkeypatch):
    tables = _write_tables()
    monkeypatch.setitem(tables.STALE, "stale", {})
    before = {block: tables.render(block) for block in ("growth", "deep", "methods")}
    old = {"growth": "old", "deep-15": "old", "deep-30": "old", "table2": "too old"}
    monkeypatch.setitem(tables.STALE, "stale", old)
    assert tables.render("growth") == before["growth"] + "\nStale: `growth`, old.\n"
    assert tables.render("deep") == before["deep"] + "\nStale: `deep-15`, `deep-30`, old.\n"
    assert tables.render("methods") == before["methods"] + "\nStale: `table2`, too old.\n"


def test_a_table_says_what_part_of_the_set_it_is_of():
    tables = _write_tables()
    record = read_record(RECORDS[0])
    data = {"n_images": 6240, "n_images_published": 29780, "images_per_class": [20, 26]}
    said = tables.part_note(replace(record, settings={"data": data}))
    assert said == "\nOn a part of the set: 6,240 of 29,780 images, 20 to 26 per class.\n"
    assert tables.part_note(replace(record, settings={"data": data | {"n_images": 29780}})) == ""
    assert tables.part_note(replace(record, settings={})) == ""


def test_what_does_not_reproduce_is_told_with_the_figures_of_the_records():
    differences_of = importlib.import_module("differences").render
    columns = {
        "15": {"spm-hard": {"mean": 64.5, "sd": 1.0}, "spm-soft": {"mean": 70.0, "sd": 1.0}},
        "30": {"spm-hard": {"mean": 70.3, "sd": 1.25}, "local-nbnn": {"mean": 71.0, "sd": 3.0}},
    }
    flann = {"index": "flann", "n_classes": [2, 101]}
    found = {
        "table2": {"columns": columns},
        "figure-computation": {
            "curves": [
                {"method": "nbnn", "index": "flann", "values": [1, 4], "cpu_ms": [120.4, 300.0]},
                {"method": "local-nbnn", "index": "flann", "values": [1024, 4096], "cpu_ms": [232.0, 815.0]},
            ]
        },
        "figure-scaling": {
            "curves": [flann | {"method": "nbnn", "exponent": 1.0}, flann | {"method": "local-nbnn", "exponent": 0.25}],
            "nbnn_to_local_at_the_right_end": {"local-nbnn flann": 32.4, "local-nbnn faiss": 122.0},
        },
        "table1": {
            "longest side 128": {
                "accuracy": {"all": [62.0, 63.0], "positive": [64.0, 64.0]},
                "increments": {"positive": 50.5},
                "positive_less_all": 1.5,
            }
        },
        "figure-k": {"accuracy": {"10": [64.0], "15": [65.0], "150": [65.4, 65.6], "400": [63.0]}},
    }
    records = {name: SimpleNamespace(results=results) for name, results in found.items()}
    text = differences_of(records.get)
    assert "it is below: 71.0 against 64.5 and 70.3" in text
    assert "stronger than theirs by 2.0 and 4.0 points" in text
    assert "120 ms against 232 and 815 ms" in text
    assert "32 times at 101 classes, FLANN against FLANN" in text
    assert "NBNN's time grows as n^1.00, Local NBNN's as n^0.25" in text
    assert "62.5 and 64.0, 50.5 of them: positive ones alone are better by 1.5" in text
    assert "64.0 at 10, 65.0 to 65.5 from 15 to 150, 63.0 at 400" in text
    assert "| 1.2 to 3.0 |" in text
    larger = {"nbnn_to_local_at_the_right_end": {"local-nbnn flann": 79.1}}
    records["figure-scaling-caltech256"] = SimpleNamespace(results=larger)
    assert "32 times at 101 classes, 79 at 256, FLANN against FLANN" in differences_of(records.get)
    setup = {"hard pyramid, six scales every 8 px": {"accuracy": [64.0, 65.0]}}
    setup["hard pyramid, three scales every 3 px"] = {"accuracy": [62.0, 62.0]}
    records["paper-setup-15"] = SimpleNamespace(results=setup)
    assert "Of what: six scales every 8 px 64.5; three scales every 3 px 62.0" in differences_of(records.get)
    for mean, is_said in ((64.9, False), (65.1, True), (67.3, False)):
        columns["15"]["local-nbnn, the authors' grid"] = {"mean": mean, "sd": None}
        assert ("it reproduces, within the paper's standard deviation" in differences_of(records.get)) is is_said


def test_the_papers_figures_stand_beside_ours():
    render = importlib.import_module("paper_figures").render
    columns = {"15": {"local-nbnn": {"mean": 65.34}, "local-nbnn + sizes": {"mean": 67.06}, "spm-hard": {"mean": 66.5}}}
    other = {"15": {"local-nbnn": {"mean": 30.0}, "local-nbnn, the authors' grid": {"mean": 33.0}}}
    found = {
        "table2": {"columns": columns},
        "table2-caltech256": {"columns": other},
        "sift-30": {"accuracy_mean": 81.57},
    }
    records = {name: SimpleNamespace(results=results) for name, results in found.items()}
    assert render(records.get).splitlines()[2:] == [
        "| Local NBNN | 66.1 · 65.3 · 67.1 | 71.9 · – · – | 33.5 · 33.0 · – |",
        "| NBNN | 63.2 · – · – | 70.3 · – · – | 30.5 · – · – |",
        "| kernel on Local NBNN | – · – · – | – · – · – | – · – · – |",
        "| spatial pyramid, hard | 62.5 · 66.5 · – | 66.3 · – · – | 27.3 · – · – |",
        "| spatial pyramid, soft | 68.6 · – · – | 76.0 · – · – | 33.2 · – · – |",
        "| our best on SIFT: `--preset sift` | – · – · – | – · – · 81.6 | – · – · – |",
    ]


def test_there_are_records():
    assert {path.stem for path in RECORDS} >= {"caltech101-balanced-15", "dense-sift"}


@pytest.mark.parametrize("page", _write_tables().PAGES)
def test_numbers_in_pages_are_the_records(page):
    text = (HERE / page).read_text(encoding="utf-8")
    assert _write_tables().fill(text) == text, "run: python benchmarks/write_tables.py"


def test_a_changed_page_is_noticed():
    tables = _write_tables()
    text = (HERE / "docs" / "performance.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `balanced` |"))
    assert tables.fill(text.replace(row, row.replace("±", "+"))) == text
    assert tables.fill(re.sub(r"(<!-- frontier.paper-times -->)\d+", r"\g<1>9999", text)) == text
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    assert tables.fill(readme.replace("| Caltech 101, 15 images", "| another set")) == readme


def test_figures_in_the_text_are_computed_from_the_records():
    prose = importlib.import_module("prose")
    column = {
        "local-nbnn": {"seeds": [0, 1], "accuracy": [60.0, 62.0], "mean": 61.0},
        "local-nbnn + sizes": {"seeds": [0, 1, 2], "accuracy": [61.0, 64.5, 90.0], "mean": 71.8},
        "spm-soft": {"seeds": [1, 2], "accuracy": [65.0, 65.0], "mean": 65.0},
        prose.KERNEL.format("sizes, "): {"seeds": [0, 1, 2], "accuracy": [0.0, 66.0, 64.0], "mean": 43.3},
    }
    points = [
        {"grid": "balanced", "n_probes": 8, "accuracy": 62.0, "classify_ms": 20.0},
        {"grid": "balanced", "n_probes": 32, "accuracy": 62.7, "classify_ms": 50.0},
        {"grid": "paper", "n_probes": 8, "accuracy": 59.0, "classify_ms": 500.0},
    ]
    same = {"rerank_factor": 4, "query_budget": 500, "stop_confidence": None}
    found = {
        "table2": {"columns": {"15": column}},
        "table2-caltech256": {"columns": {"15": column}},
        "frontier": {"points": [point | same for point in points], "presets": {"balanced": 0, "paper": 2}},
        "install": {
            "without": {"download_mb": 200.4, "n_packages": 20},
            "added": {"download_mb": 50.3, "n_packages": 7},
        },
    }
    records = {name: SimpleNamespace(results=results) for name, results in found.items()}
    said = {
        "table2.sizes-15": "+1.8",  # of the two splits that both have: 1.0 and 2.5
        "table2.sizes-range": "+1.0 to +2.5",
        "table2.sizes-paper-15": "+5.7",
        "table2.kernel-wins-15": "1 of 2",
        "table2.sizes-30": prose.NOT_YET,
        "table2-256.local-paper": "+27.5",
        "table2-256.soft-paper": "+31.8",
        "table2-256.sizes": "+1.8",
        "table2-256.hard-paper": prose.NOT_YET,
        "frontier.paper-times": "25",
        "frontier.more-lists": "+0.7",
        "frontier.more-lists-times": "2.5",
        "install.download": "251",
        "auto.accuracy": prose.NOT_YET,
    }
    assert {name: prose.figure(name, records.get) for name in said} == said
    with pytest.raises(KeyError):
        prose.figure("table2.unheard-of", records.get)


def test_every_figure_is_in_a_page():
    prose = importlib.import_module("prose")
    pages = [(HERE / page).read_text(encoding="utf-8") for page in _write_tables().PAGES]
    assert {found[1] for page in pages for found in prose.MARK.finditer(page)} == set(prose.FIGURES)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if (HERE / "results" / f"{name}.json").exists()])
def test_pictures_of_experiments_are_drawn_from_the_records(name):
    record = read_record(HERE / "results" / f"{name}.json")
    experiment = get_experiment(name)
    assert experiment.tabulate(record.results).startswith("| ")
    if experiment.draw:
        with Image.open(HERE / "results" / f"{name}.png") as picture:
            assert picture.text["Source"] == results_digest(record), f"run: {record.command}"


def test_write_then_read(tmp_path):
    fields = {"settings": {"k": 10}, "seeds": [0], "results": {"accuracy": 1.0}, "seconds": 2.0}
    record = make_record("x", "command", commit="abc", parts=[{"commit": "abd"}], **fields)
    write_record(tmp_path / "x.json", record)
    assert read_record(tmp_path / "x.json") == record
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_record_that_lacks_a_field_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"name": "x"}), encoding="utf-8")
    with pytest.raises(InvalidInputError, match="not a run record"):
        read_record(path)

"""The command line: each command in its normal use, where its output goes, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from conftest import SMALL_GRID, SMALL_OPTIONS
from networks import endless_network, write_network
from PIL import Image

import lnbnn
from lnbnn.cli import app
from lnbnn.cli.console import print_table
from lnbnn.data.folder import read_images
from lnbnn.descriptors.dense_sift import DenseSIFT
from lnbnn.errors import ModelFormatError
from lnbnn.escaping import guard_formula, line_text
from lnbnn.indexes import vector_table
from lnbnn.indexes.faiss_index import FaissIndex
from lnbnn.model.changes import check_model
from lnbnn.params import preset_params
from lnbnn.trust.audit import audit

CLASSES = ["checks", "columns", "rows"]
COMMANDS = typer.main.get_command(app).commands


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def plain(text):
    """Help without colors, which some environments force."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def csv_rows(text):
    return list(csv.reader(io.StringIO(text)))


def files_in(folder):
    """Every file below a folder, hidden ones too, with its bytes."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- names and labels -----------------------------------------------------------------------------------------------

HOSTILE = {  # labels that differ, and how a table shows them
    "\x1b]0;owned\x07": r"\x1b]0;owned\x07",
    "=cmd|'calc'!A0": "=cmd|'calc'!A0",
    "two\nlines": r"two\x0alines",
    r"two\x0alines": r"two\x5cx0alines",
    "caf\udce9": r"caf\udce9",
    os.fsdecode(b"caf\xea"): r"caf\udcea",
    "[red]$x$": "[red]$x$",
    "cat": "cat",
    "cat ": r"cat\x20",
}
any_name = pytest.mark.skipif(os.name == "nt", reason="such names are possible on POSIX only")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, save_texture):
    """Photos of classes with hostile names, and their model."""
    folder = tmp_path_factory.mktemp("hostile")
    for number, label in enumerate(HOSTILE):
        kind = CLASSES[number % 3]
        for place in range(2):
            save_texture(folder / "photos" / label / f"p\x1b{place}\udcff.png", kind, seed=10 * number + place)
    data = read_images(folder / "photos")
    classifier = lnbnn.LocalNBNN(descriptor_params=SMALL_GRID, index="exact")
    classifier.fit(data.paths, data.labels).save(folder / "model")
    return folder


def lines_of(outcome):
    """The lines of stdout: every letter printable; on stderr nothing but that images are the model's own."""
    assert outcome.code == 0
    for line in outcome.err.split("\n"):
        assert line.isprintable()
        assert line.startswith(("in the model already: ", "warning: ", "the image is in the model")) or not line
    lines = outcome.out.split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines.pop() == ""
    return lines


@any_name
@pytest.mark.parametrize("command", ["info", "list", "predict", "evaluate"])
def test_tables_show_hostile_names_harmless_and_apart(command, hostile, run):
    images = [hostile / "photos"] if command in ("predict", "evaluate") else []
    lines = lines_of(run(command, hostile / "model", *images))
    for shown in HOSTILE.values():
        assert any(re.search(rf"│ {re.escape(shown)} +│", line) for line in lines), shown


@any_name
@pytest.mark.parametrize(("command", "column"), [("info", 0), ("list", 1), ("predict", 2), ("evaluate", 0)])
def test_csv_shows_hostile_names_harmless_and_apart(command, column, hostile, run):
    images = [hostile / "photos"] if command in ("predict", "evaluate") else []
    lines = lines_of(run(command, hostile / "model", *images, "--format", "csv"))
    cells = {row[column] for row in csv_rows("\n".join(lines[1:]))}
    assert cells == {guard_formula(line_text(label)) for label in HOSTILE}
    assert not any(cell[0] in "=+-@" for row in csv_rows("\n".join(lines)) for cell in row if not is_number(cell))


def is_number(text):
    return re.fullmatch(r"-?[0-9.]+", text) is not None


@any_name
def test_json_says_hostile_names_exactly(hostile, run):
    lines = lines_of(run("list", hostile / "model", "--format", "json"))
    images = [json.loads(line) for line in lines]
    assert {image["label"] for image in images} == set(HOSTILE)
    assert all(Path(image["path"]).is_file() for image in images)


@any_name
def test_a_label_of_a_list_is_found_again(hostile, run):
    for label in HOSTILE:
        assert len(lines_of(run("list", hostile / "model", "--label", label, "--format", "json"))) == 2


@any_name
def test_files_for_people_are_harmless(hostile, tmp_path, run):
    assert run("evaluate", hostile / "model", hostile / "photos", "-o", tmp_path / "out").code == 0
    rows = csv_rows((tmp_path / "out" / "confusion.csv").read_text(encoding="utf-8"))
    assert (
        rows[0][1:-1] == [row[0] for row in rows[1:]] == [guard_formula(line_text(label)) for label in sorted(HOSTILE)]
    )
    image = next((hostile / "photos" / "[red]$x$").iterdir())
    outcome = run("explain", hostile / "model", image, "-o", tmp_path / "why.svg", "--against", "two\nlines")
    first, *_ = lines_of(outcome)
    assert first.startswith(line_text(f"{tmp_path / 'why.svg'}: answer [red]$x$; "))
    assert first.endswith(" rather than two\\x0alines")


@any_name
def test_errors_and_notes_are_one_harmless_line(hostile, tmp_path, run_main):
    error = run_main("info", tmp_path / "no\x1b[31m\nmodel\udcff").error
    assert r"/no\x1b[31m\x0amodel\udcff: no such model folder" in error
    bad = tmp_path / "bad\x1b[2J\n.png"
    bad.write_bytes(b"")
    outcome = run_main("predict", hostile / "model", bad)
    assert [line.isprintable() for line in outcome.err.splitlines()] == [True, True]
    assert r"bad\x1b[2J\x0a.png: the file is empty" in outcome.err


@pytest.mark.parametrize("args", [["--no\x1b[31m"], ["no\x1b[31m"], ["info", "--format", "no\x1b[31m", "m"]])
def test_words_that_are_not_understood_are_shown_harmless(args, run_main):
    outcome = run_main(*args)
    assert outcome.code == 2
    assert r"\x1b[31m" in outcome.err
    assert "\x1b[31mno" not in outcome.err
    assert "no\x1b" not in outcome.err


def test_a_traceback_is_harmless():
    command = [sys.executable, "-m", "lnbnn", "--debug", "info", "no\x1b[31m"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert r"no\x1b[31m: no such model folder" in done.stderr.splitlines()[-1]
    assert "\x1b" not in done.stderr


def test_long_names_in_a_narrow_terminal_stay_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    names = ["x" * 60 + "1", "x" * 60 + "2"]
    print_table(["class", "images"], [(name, 3) for name in names])
    shown = "".join(re.findall(r"│ ([x12]*) +│", capsys.readouterr().out))
    assert shown == "".join(names)


@any_name
def test_letters_that_stdout_lacks_are_written_in_codes(hostile):
    command = [sys.executable, "-m", "lnbnn", "list", str(hostile / "model"), "--format"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for form in ("json", "csv", "table"):
        done = subprocess.run([*command, form], env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.isascii()
        if form == "json":
            assert {image["label"] for image in json_lines(done.stdout)} == set(HOSTILE)


# ---- standard output ------------------------------------------------------------------------------------------------


def run_shell(script, *args):
    command = ["bash", "-c", f"set -o pipefail; {script}", "bash", sys.executable, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_closed_standard_output_is_an_error_before_any_work(photos, tmp_path):
    done = run_shell('"$1" -m lnbnn fit "$2" "$3" >&-', photos, tmp_path / "model")
    assert done.returncode == 1
    assert done.stderr == "lnbnn: error: the standard output is closed; send it to a file or to /dev/null.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_closed_standard_error_takes_no_results(model, photos):
    done = run_shell('"$1" -m lnbnn predict "$2" "$3" /no.jpg --format json 2>&- <&-', model, photos / "rows")
    assert (done.returncode, len(json_lines(done.stdout))) == (0, 4)


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_a_reader_that_leaves_ends_the_command_quietly(model, photos, form):
    done = run_shell('"$1" -m lnbnn predict "$2" "$3" --format "$4" | true', model, photos, form)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_a_full_standard_output_is_one_line(model, form):
    done = run_shell('"$1" -m lnbnn list "$2" --format "$3" > /dev/full', model, form)
    assert (done.returncode, done.stderr) == (1, "lnbnn: error: No space left on device\n")


# ---- fit and predict ----------------------------------------------------------------------------------------------


def test_fit_makes_a_model_and_says_so_in_one_line(photos, tmp_path, run):
    outcome = run("fit", photos, tmp_path / "model", *SMALL_OPTIONS)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"{tmp_path / 'model'}: 3 classes, 9 images, 1,701 descriptors; one merged index")
    assert outcome.out.count("\n") == 1
    assert lnbnn.load(tmp_path / "model").classes_.tolist() == CLASSES


def test_fit_takes_every_setting_from_its_options(photos, tmp_path, run):
    options = "-k 7 -a 0.5 --query-budget 0.5 --index exact --seed 3 --jobs 2"
    assert run("fit", photos, tmp_path / "model", *SMALL_OPTIONS, *options.split()).code == 0
    settings = lnbnn.load(tmp_path / "model").get_params(deep=False)
    expected = {"n_neighbors": 7, "location_weight": 0.5, "query_budget": 0.5, "index": "exact", "random_state": 3}
    assert settings.items() >= expected.items()
    assert (settings["descriptor_params"]["step_px"], settings["descriptor_params"]["bin_sizes"]) == (8, [4, 6])


def test_fit_starts_from_a_preset_and_options_change_it(photos, tmp_path, run):
    assert run("fit", photos, tmp_path / "model", "--preset", "fast", "-D", "longest_side=96").code == 0
    settings = lnbnn.load(tmp_path / "model").get_params(deep=False)
    fast = preset_params("fast")
    assert (settings["query_budget"], settings["index_params"]) == (fast["query_budget"], fast["index_params"])
    expected = fast["descriptor_params"] | {"longest_side": 96}
    assert {name: settings["descriptor_params"][name] for name in expected} == expected


def test_fit_takes_a_single_bin_size(photos, tmp_path, run_main):
    outcome = run_main("fit", photos, tmp_path / "model", "-D", "bin_sizes=6", "-D", "longest_side=96")
    assert outcome.code == 0
    assert lnbnn.load(tmp_path / "model").descriptor_.settings()["bin_sizes"] == 6


def test_fit_with_nbnn_gives_a_model_that_predicts(photos, tmp_path, run):
    assert "one index per class" in run("fit", photos, tmp_path / "model", "--method", "nbnn", *SMALL_OPTIONS).out
    answers = json_lines(run("predict", tmp_path / "model", photos / "rows", "--format", "json").out)
    assert [answer["label"] for answer in answers] == ["rows"] * 3


def test_predict_json_is_one_object_a_line_best_first(photos, model, run):
    outcome = run("predict", model, photos / "columns", photos / "rows" / "photo_1.png", "--format", "json")
    assert (outcome.code, outcome.err) == (0, "")
    answers = json_lines(outcome.out)
    assert [list(answer) for answer in answers] == [["path", "label", "ranking"]] * 4
    assert [Path(answer["path"]).name for answer in answers] == [*(f"photo_{n}.png" for n in range(3)), "photo_1.png"]
    assert [answer["label"] for answer in answers] == ["columns"] * 3 + ["rows"]
    for answer in answers:
        scores = [score for _, score in answer["ranking"]]
        assert answer["ranking"][0][0] == answer["label"]
        assert sorted(label for label, _ in answer["ranking"]) == CLASSES
        assert scores == sorted(scores, reverse=True)


def test_predict_agrees_with_the_library(photos, model, run):
    path = photos / "rows" / "photo_0.png"
    (answer,) = json_lines(run("predict", model, path, "--format", "json").out)
    classifier = lnbnn.load(model)
    scores = dict(zip(classifier.classes_, classifier.decision_function([path])[0], strict=True))
    assert dict(answer["ranking"]) == scores


def test_predict_csv_has_a_row_a_rank(photos, model, run):
    rows = csv_rows(run("predict", model, photos / "rows", "--format", "csv", "--top", "2").out)
    assert rows[0] == ["path", "rank", "label", "score"]
    assert [row[1] for row in rows[1:]] == ["1", "2"] * 3
    assert [row[2] for row in rows[1::2]] == ["rows"] * 3
    assert all(float(first[3]) > float(second[3]) for first, second in zip(rows[1::2], rows[2::2], strict=True))


def test_predict_table_and_top(photos, model, run):
    path = photos / "rows" / "photo_0.png"
    table = run("predict", model, path, "--top", "2").out
    assert "│ rows " in table
    assert sum(name in table.replace(str(path), "") for name in CLASSES) == 2
    assert "next best" in table
    assert "next best" not in run("predict", model, path, "--top", "1").out
    (answer,) = json_lines(run("predict", model, path, "--top", "2", "--format", "json").out)
    assert len(answer["ranking"]) == 2


def test_predict_goes_on_past_a_bad_file(photos, model, run):
    good = photos / "rows" / "photo_0.png"
    outcome = run("predict", model, "missing.jpg", good, "--format", "json")
    bad_answer, good_answer = json_lines(outcome.out)
    assert (bad_answer["label"], bad_answer["ranking"], good_answer["label"]) == (None, [], "rows")
    assert bad_answer["error"] == "missing.jpg: no such file."
    assert outcome.code == 0
    assert outcome.err.splitlines()[0] == "skipped: missing.jpg: no such file."
    assert outcome.err.splitlines()[1].startswith("1 of 2 images skipped")
    assert run("predict", model, "missing.jpg").code == 1


def test_the_number_of_threads_changes_no_byte(photos, tmp_path, run):
    answers = []
    for jobs in (1, 2):
        target = tmp_path / f"model-{jobs}"
        options = ["-I", "form=ivf-8bit", "-I", "n_lists=4", "-I", "n_probes=2", "--query-budget", "100"]
        assert run("fit", photos, target, *SMALL_OPTIONS, *options, "--jobs", jobs).code == 0
        answers += [run("predict", target, photos, "--format", "json", "--jobs", n).out for n in (1, 2)]
    assert answers[0].count("\n") == 9
    assert len(set(answers)) == 1


def test_none_is_a_value_of_a_method_setting(photos, tmp_path, run):
    assert run("fit", photos, tmp_path / "m", *SMALL_OPTIONS, "-M", "stop_confidence=none").code == 0
    (facts,) = json_lines(run("info", tmp_path / "m", "--format", "json").out)
    assert facts["settings"]["stop_confidence"] is None


# ---- evaluate, explain, info --------------------------------------------------------------------------------------


@pytest.fixture
def swapped(photos, tmp_path):
    """Two classes of queries: "rows" with a photo of columns among its two, and "unknown" with one of rows."""
    for source, target in (
        ("rows/photo_0.png", "rows/a.png"),
        ("columns/photo_0.png", "rows/b.png"),
        ("rows/photo_1.png", "unknown/c.png"),
    ):
        (tmp_path / "queries" / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photos / source, tmp_path / "queries" / target)
    return tmp_path / "queries"


def test_evaluate_json_has_the_promised_keys(swapped, model, run):
    outcome = run("evaluate", model, swapped, "--format", "json")
    (result,) = json_lines(outcome.out)
    assert result["per_class"] == {"rows": 0.5, "unknown": 0.0}
    assert result["mean_per_class_accuracy"] == 0.25
    assert (result["n_images"], result["n_skipped"]) == (3, 0)
    assert result["seconds"] > 0
    names = [str(swapped / name) for name in ("rows/a.png", "rows/b.png", "unknown/c.png")]
    assert [image["path"] for image in result["in_model"]] == names
    assert [image["model_label"] for image in result["in_model"]] == ["rows", "columns", "rows"]
    assert (result["n_in_model"], result["mean_per_class_accuracy_without_them"]) == (3, None)
    first, *_, last = outcome.err.splitlines()
    assert first == "not in the model, so every image of them counts as wrong: unknown"
    assert f"in the model already: {names[1]} (image 3, labeled columns there)" in outcome.err
    assert last.startswith("warning: 3 of 3 images are in the model itself (same content), so 25.00 % says little")
    assert last.endswith("no image is new.")


def test_evaluate_without_the_images_that_the_model_knows(photos, model, tmp_path, run):
    (tmp_path / "queries" / "rows").mkdir(parents=True)
    shutil.copy(photos / "rows" / "photo_0.png", tmp_path / "queries" / "rows" / "known.png")
    shutil.copy(photos / "columns" / "photo_0.png", tmp_path / "queries" / "rows" / "new.png")
    with open(tmp_path / "queries" / "rows" / "new.png", "ab") as file:
        file.write(b"\0")  # the same picture, other bytes
    outcome = run("evaluate", model, tmp_path / "queries", "-o", tmp_path / "out")
    assert "mean per-class accuracy 50.00 %" in outcome.out
    assert "without the 1 image that is in the model: 0.00 %  (1 images, 1 classes)" in outcome.out
    assert "1 of 2 images is in the model itself (same content), so 50.00 %" in outcome.err
    assert "without it 0.00 %." in outcome.err
    assert "new.png" not in outcome.err


def test_evaluate_csv_and_table(swapped, model, run):
    rows = csv_rows(run("evaluate", model, swapped, "--format", "csv").out)
    assert rows == [["label", "n_images", "accuracy"], ["rows", "2", "0.5"], ["unknown", "1", "0.0"]]
    table = run("evaluate", model, swapped).out
    assert "mean per-class accuracy 25.00 %" in table
    assert "rows answered as columns (1)" in table
    assert "50.0 %" in table


def test_evaluate_writes_the_confusion_matrix(swapped, model, tmp_path, run):
    outcome = run("evaluate", model, swapped, "-o", tmp_path / "new" / "folder", "--format", "json")
    header, *rows = csv_rows((tmp_path / "new" / "folder" / "confusion.csv").read_text())
    assert header == ["true class", *CLASSES, "(no answer)"]
    assert rows == [["rows", "0", "1", "1", "0"], ["unknown", "0", "0", "1", "0"]]
    with Image.open(tmp_path / "new" / "folder" / "confusion.png") as picture:
        assert min(picture.size) > 300
    assert "confusion.csv" in outcome.err
    assert len(json_lines(outcome.out)) == 1


def test_explain_draws_the_evidence(photos, model, tmp_path, run):
    path = photos / "rows" / "photo_0.png"
    outcome = run("explain", model, path, "-o", tmp_path / "why.png")
    assert outcome.code == 0
    assert re.fullmatch(
        r"the image is in the model itself \(image \d+, same content\), and matches itself\n", outcome.err
    )
    assert "answer rows; " in outcome.out
    assert "patches are evidence for rows\n" in outcome.out
    with Image.open(tmp_path / "why.png") as picture:
        assert picture.size[0] > picture.size[1] > 200
    options = ["--label", "columns", "--against", "checks"]
    outcome = run("explain", model, path, "-o", tmp_path / "other.png", *options)
    assert "answer rows; " in outcome.out
    assert "are evidence for columns rather than checks\n" in outcome.out
    assert (tmp_path / "other.png").read_bytes() != (tmp_path / "why.png").read_bytes()


def test_explain_names_the_labeled_photos(photos, model, tmp_path, run, save_texture):
    save_texture(tmp_path / "new.png", "rows", seed=77)
    command = ["explain", model, tmp_path / "new.png", "-o", tmp_path / "why.png"]
    outcome = run(*command, "--format", "json")
    assert (outcome.code, outcome.err) == (0, "")
    (found,) = json_lines(outcome.out)
    assert (found["answer"], found["label"], found["against"], found["itself"]) == ("rows", "rows", None, None)
    assert sum(photo["support"] for photo in found["photos"]) == found["support"] == dict(found["ranking"])["rows"]
    assert sum(photo["share"] for photo in found["photos"]) == pytest.approx(1.0)
    own = {str(path) for path in (photos / "rows").iterdir()}
    assert {photo["path"] for photo in found["photos"]} <= own
    assert all(pair["match"] is not None and pair["path"] in own for pair in found["pairs"])
    header, *rows = csv_rows(run(*command, "--format", "csv").out)
    assert header == ["id", "label", "share", "support", "n_patches", "path"]
    assert [row[5] for row in rows] == [photo["path"] for photo in found["photos"]]
    table = run(*command).out
    assert f"│ {100 * found['photos'][0]['share']:.1f} %" in table


def test_explain_says_so_where_no_labeled_photo_stands_out(photos, tmp_path, run):
    assert run("fit", photos, tmp_path / "model", "--method", "pooled-ridge").code == 0
    outcome = run("explain", tmp_path / "model", photos / "rows" / "photo_0.png", "-o", tmp_path / "why.png")
    assert outcome.code == 0
    assert "no labeled photo stands out" in outcome.out
    assert "share of the evidence" not in outcome.out


def test_explain_finds_photos_that_were_moved(photos, model, tmp_path, run, save_texture):
    save_texture(tmp_path / "new.png", "rows", seed=77)
    (tmp_path / "empty").mkdir()
    shutil.copytree(photos, tmp_path / "moved")
    command = ["explain", model, tmp_path / "new.png", "-o", tmp_path / "why.png", "--format", "json"]
    outcome = run(*command, "--images", tmp_path / "empty")
    (found,) = json_lines(outcome.out)
    assert all(pair["match"] is None for pair in found["pairs"])
    n_drawn = len({pair["path"] for pair in found["pairs"]})
    *names, last = outcome.err.splitlines()
    assert names == [f"not found, or changed: {photo['path']}" for photo in found["photos"][:n_drawn]]
    assert last == (f"{n_drawn} of {n_drawn} labeled photos are not drawn; say where they are: --images FOLDER")
    outcome = run(*command, "--images", tmp_path / "moved")
    assert outcome.err == ""
    assert all(pair["match"] is not None for pair in json_lines(outcome.out)[0]["pairs"])


def test_explain_refuses_what_it_cannot_show(photos, model, tmp_path, run_main):
    command = ["explain", model, photos / "rows" / "photo_0.png", "-o"]
    for option in ("--label", "--against"):
        error = run_main(*command, tmp_path / "why.png", option, "nonsense").error
        assert "no class 'nonsense'; it knows 3: checks, columns, rows" in error
    assert "same class" in run_main(*command, tmp_path / "why.png", "--label", "rows", "--against", "rows").error
    assert run_main(*command, tmp_path / "why.txt").code == 2
    assert list(tmp_path.iterdir()) == []


def test_info_says_what_a_model_holds(model, run):
    (facts,) = json_lines(run("info", model, "--format", "json").out)
    assert (facts["method"], facts["n_classes"], facts["n_images"]) == ("local-nbnn", 3, 9)
    assert facts["bytes_on_disk"] == sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    assert facts["bytes_in_memory"] >= facts["n_descriptors"] * 130
    assert facts["settings"]["n_neighbors"] == 10
    assert sum(entry["n_descriptors"] for entry in facts["classes"].values()) == facts["n_descriptors"]
    rows = csv_rows(run("info", model, "--format", "csv").out)
    assert rows[0] == ["label", "n_images", "n_descriptors"]
    assert [row[:2] for row in rows[1:]] == [[name, "3"] for name in CLASSES]


def test_what_commands_print_is_what_the_library_says(model, photos, run):
    opened = lnbnn.load(model)
    assert json_lines(run("info", model, "--format", "json").out) == [opened.fitted().facts()]
    assert json_lines(run("list", model, "--format", "json").out) == [image.as_json() for image in opened.images_]
    assert json_lines(run("check", model, "--format", "json").out) == [check_model(model).as_json()]
    paths = sorted(map(str, (photos / "rows").iterdir()))
    answers = [answer.as_json(2) for answer in opened.iter_answers(paths)]
    assert json_lines(run("predict", model, *paths, "--top", "2", "--format", "json").out) == answers
    found = json_lines(run("audit", model, "--format", "json").out)
    assert found == [json.loads(json.dumps(audit(opened).as_dict()))]


def test_facts_of_a_model_that_was_never_saved(photos):
    data = read_images(photos)
    facts = lnbnn.LocalNBNN(descriptor_params=SMALL_GRID).fit(data.paths, data.labels).fitted().facts()
    assert (facts["bytes_on_disk"], facts["n_images"]) == (None, 9)


def test_info_table_names_its_facts(model, run):
    table = run("info", model).out
    for name in ("classes", "images", "descriptors", "bytes on disk", "bytes in memory", *CLASSES):
        assert f"│ {name} " in table
    assert re.search(r"location.weight +│ 1\.6 ", table)


# ---- extract, split, demo -----------------------------------------------------------------------------------------


def test_extract_fills_a_cache_that_is_used_again(make_photos, save_texture, tmp_path, run, monkeypatch):
    photos = make_photos(tmp_path / "photos")
    outcome = run("extract", photos, tmp_path / "cache", *SMALL_OPTIONS)
    assert outcome.code == 0
    assert f"{tmp_path / 'cache'}: 9 images, 1,701 descriptors" in outcome.out
    extracted = []
    extract = DenseSIFT.extract
    monkeypatch.setattr(DenseSIFT, "extract", lambda self, image: extracted.append(1) or extract(self, image))
    assert "9 images, 1,701 descriptors" in run("extract", photos, tmp_path / "cache", *SMALL_OPTIONS).out
    assert run("fit", photos, tmp_path / "model", *SMALL_OPTIONS, "--cache", tmp_path / "cache").code == 0
    assert len(extracted) == 0
    save_texture(photos / "rows" / "photo_0.png", "rows", seed=999)
    run("extract", photos, tmp_path / "cache", *SMALL_OPTIONS)
    assert len(extracted) == 1
    run("extract", photos, tmp_path / "cache", *SMALL_OPTIONS, "-D", "step_px=9")
    assert len(extracted) == 10


def read_split(folder):
    return [csv_rows((folder / name).read_text())[1:] for name in ("train.csv", "test.csv")]


def test_split_lists_are_seeded_disjoint_and_relative(photos, tmp_path, run):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        outcome = run("split", photos, tmp_path / name, "--train", "1", "--seed", seed)
        assert outcome.out == f"{tmp_path / name}: train.csv 3 images, test.csv 6 images\n"
    train, test = read_split(tmp_path / "a")
    assert [label for _, label in train] == CLASSES
    assert not {path for path, _ in train} & {path for path, _ in test}
    assert not any(os.path.isabs(path) for path, _ in train + test)
    found = {os.path.normpath(tmp_path / "a" / path) for path, _ in train + test}
    assert found == {str(path) for path in photos.rglob("*.png")}
    assert read_split(tmp_path / "b") == [train, test]
    assert read_split(tmp_path / "c") != [train, test]


def test_split_lists_are_read_by_fit_and_evaluate(photos, tmp_path, run):
    run("split", photos, tmp_path / "split", "--train", "2", "--test", "1")
    assert "6 images" in run("fit", tmp_path / "split" / "train.csv", tmp_path / "model", *SMALL_OPTIONS).out
    outcome = run("evaluate", tmp_path / "model", tmp_path / "split" / "test.csv", "--format", "json")
    (result,) = json_lines(outcome.out)
    assert (result["n_images"], result["mean_per_class_accuracy"]) == (3, 1.0)


def test_demo_on_a_folder_of_ones_own(photos, tmp_path, run):
    outcome = run("demo", "--data", photos, "-o", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert "reference: 6 images of 3 classes" in outcome.out
    assert "query: 3 images" in outcome.out
    assert "mean per-class accuracy: 100.0 %" in outcome.out
    pictures = [Path(line.removeprefix("picture: ")) for line in outcome.out.splitlines() if line.startswith("picture")]
    assert [picture.name for picture in pictures] == ["confusion.png", *(f"evidence_{n}.png" for n in (1, 2, 3))]
    for picture in pictures:
        Image.open(picture).verify()
    assert run("predict", tmp_path / "out" / "model", photos / "rows").code == 0


def test_demo_with_a_missing_folder_makes_nothing(tmp_path, run_main):
    assert "no such folder" in run_main("demo", "--data", tmp_path / "missing", "-o", tmp_path / "out").error
    assert list(tmp_path.iterdir()) == []


# ---- how a run ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_tells_of_every_argument_and_option(command, run):
    outcome = run(command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    text = plain(outcome.out)
    for param in COMMANDS[command].params:
        name = max(param.opts, key=len) if param.param_type_name == "option" else param.name
        assert name in text
        assert param.help


def test_help_lists_every_command(run):
    text = plain(run("--help").out)
    assert all(f" {name} " in text for name in COMMANDS)
    assert run("--version").out == f"lnbnn {lnbnn.__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["fit"],
        ["fit", "photos", "model", "--no-such-option"],
        ["fit", "photos", "model", "-k", "0"],
        ["fit", "photos", "model", "-k", "many"],
        ["fit", "photos", "model", "-D", "step_px"],
        ["fit", "photos", "model", "--query-budget", "some"],
        ["fit", "photos", "model", "--method", "nbnn", "-k", "3"],
        ["predict", "model"],
        ["predict", "model", "a.jpg", "--format", "xml"],
        ["predict", "model", "a.jpg", "--top", "0"],
        ["explain", "model", "a.jpg"],
        ["extract", "photos", "cache", "-D", "no=1"],
    ],
)
def test_a_command_not_understood_ends_with_2(args, tmp_path, run_main, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = run_main(*args)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--preset", "--method", "--descriptor", "--index"])
def test_an_unknown_name_ends_with_2_and_the_choices(option, photos, tmp_path, run_main):
    outcome = run_main("fit", photos, tmp_path / "model", option, "nonsense")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"lnbnn: error: Unknown {option[2:]} 'nonsense'; choose one of: ")
    assert outcome.err.count("\n") == 1


def test_debug_shows_the_traceback(tmp_path, run_main):
    with pytest.raises(ModelFormatError, match="no such model folder"):
        run_main("--debug", "info", tmp_path / "missing")


def test_a_model_is_replaced_only_by_force(photos, tmp_path, fit):
    assert fit(photos, tmp_path / "model").code == 0
    before = files_in(tmp_path)
    error = fit(photos, tmp_path / "model", "-k", "5").error
    assert "a model is here already" in error
    assert "--force" in error
    assert "a model is here already" in fit(tmp_path / "missing", tmp_path / "model").error  # before any image is read
    assert files_in(tmp_path) == before
    assert fit(photos, tmp_path / "model", "-k", "5", "--force").code == 0
    assert lnbnn.load(tmp_path / "model").n_neighbors == 5
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_force_never_replaces_what_is_no_model(make_photos, photos, tmp_path, fit):
    make_photos(tmp_path / "precious")
    (tmp_path / "file").write_text("precious too")
    before = files_in(tmp_path)
    assert "holds other files" in fit(photos, tmp_path / "precious", "--force").error
    assert "a file is in the way" in fit(photos, tmp_path / "file", "--force").error
    assert files_in(tmp_path) == before


def interrupt(*_args, **_kwargs):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("place", "name"), [(DenseSIFT, "extract"), (FaissIndex, "_build_rows"), (vector_table, "save_stacked")]
)
def test_ctrl_c_leaves_nothing_half_written(place, name, photos, tmp_path, fit, monkeypatch):
    monkeypatch.setattr(place, name, interrupt)
    outcome = fit(photos, tmp_path / "model", "--jobs", "1")
    assert outcome.code != 0
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_a_model_is_replaced_keeps_the_old_one(photos, model, tmp_path, fit, monkeypatch):
    shutil.copytree(model, tmp_path / "model")
    before = files_in(tmp_path)

    def stopped(move):
        return lambda source, target: interrupt() if ".partial-" in str(source) else move(source, target)

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, stopped(getattr(os, name)))
    assert fit(photos, tmp_path / "model", "--force").code != 0
    (tmp_path / "model" / "writer.lock").unlink()
    assert files_in(tmp_path) == before


def test_several_descriptors_are_fused(photos, tmp_path, run, run_main):
    options = ["--descriptor", "dense-sift", "--descriptor", "deep", "-k", "5", "-D", "longest_side=96"]
    model = tmp_path / "model"
    done = run_main("fit", photos, model, *options, "-D", "1:step_px=8")
    assert done.code == 0, done.err
    assert "local-nbnn on dense-sift" in done.out
    assert "local-nbnn on deep" in done.out
    assert json.loads(run("evaluate", model, photos, "--format", "json").out)["mean_per_class_accuracy"] > 0.9
    members = [member.plain_params() for member in lnbnn.load(model).estimators_]
    assert [member["descriptor"] for member in members] == ["dense-sift", "deep"]
    assert members[0]["descriptor_params"]["step_px"] == 8
    assert members[1]["descriptor_params"]["longest_side"] == 96
    photo = photos / "rows" / "photo_0.png"
    assert run("explain", model, photo, "-o", tmp_path / "why.png", "--label", "rows", "--against", "checks").code == 0
    assert (tmp_path / "why.png").stat().st_size > 10_000


def test_a_setting_for_a_descriptor_that_is_not_there(photos, tmp_path, run_main):
    outcome = run_main("fit", photos, tmp_path / "model", "-D", "2:step_px=8")
    assert outcome.code == 2
    assert "is for descriptor 2, but there are 1" in " ".join(outcome.err.replace("│", " ").split())


@pytest.mark.parametrize("preset", ["fast", "paper"])
def test_a_presets_grid_is_not_forced_on_another_descriptor(photos, tmp_path, run, preset):
    model = tmp_path / "model"
    options = ["--preset", preset, "--descriptor", "deep", "-D", "longest_side=64"]
    assert run("fit", photos, model, *options).code == 0
    assert "bin_sizes" not in lnbnn.load(model).plain_params()["descriptor_params"]


def test_export_onnx(photos, tmp_path, run, run_main):
    network = tmp_path / "lite0.onnx"
    outcome = run("export-onnx", "deep@stage5", network)
    assert outcome.code == 0
    assert outcome.out.startswith(f"{network}: ")
    options = ["-k", "5", "-D", "longest_side=64"]
    for model, descriptor in (("a", "deep@stage5"), ("b", f"onnx:{network}")):
        assert run("fit", photos, tmp_path / model, "--descriptor", descriptor, *options).code == 0
    answers = [run("predict", tmp_path / model, photos, "--format", "json").out for model in ("a", "b")]
    assert answers[0] == answers[1]
    assert run_main("export-onnx", "deep", network).code == 2
    assert "dense-sift cannot be written as ONNX" in run_main("export-onnx", "dense-sift", tmp_path / "x.onnx").error
    assert not (tmp_path / "x.onnx").exists()


def test_a_bad_network_is_one_line(photos, tmp_path, run_main):
    (tmp_path / "net.onnx").write_bytes(b"not a network")
    outcome = run_main("fit", photos, tmp_path / "model", "--descriptor", f"onnx:{tmp_path / 'net.onnx'}")
    assert outcome.code == 2
    assert "not a usable ONNX file" in " ".join(outcome.err.replace("│", " ").split())
    assert not (tmp_path / "model").exists()


def test_several_methods_are_fused(run, tmp_path, make_photos):
    photos = make_photos(tmp_path / "photos")
    pair = ("--method", "local-nbnn", "--method", "pooled-svm")
    outcome = run("fit", photos, tmp_path / "both", *pair, "-k", "3")
    assert outcome.code == 0, outcome.err
    assert "local-nbnn on dense-sift + " in outcome.out.replace("\n", " ")
    assert "pooled-svm on dense-sift" in outcome.out.replace("\n", " ")
    three = ("--descriptor", "dense-sift") * 3
    outcome = run("fit", photos, tmp_path / "three", *pair, *three)
    assert outcome.code == 2
    assert "2 methods for 3 descriptors" in outcome.err.replace("\n", " ")
    outcome = run("fit", photos, tmp_path / "none", "--method", "pooled-svm", "-k", "3")
    assert outcome.code == 2
    assert "has no n_neighbors" in outcome.err


def test_a_network_that_never_ends_is_ended_by_a_signal(photos, tmp_path):
    network = write_network(tmp_path / "net.onnx", endless_network())
    code = f"""
from lnbnn.cli import main
from lnbnn.descriptors import onnx_file
make = onnx_file._session
onnx_file._session = lambda *args: (make(*args), print("made", flush=True))[0]
main(["extract", {str(photos)!r}, {str(tmp_path / "cache")!r}, "--descriptor", "onnx:{network}"])
"""
    numbers = (signal.SIGTERM, signal.SIGINT)
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in numbers]
    for process in processes:
        assert process.stdout.readline() == b"made\n"
    time.sleep(0.5)
    for process, number in zip(processes, numbers, strict=True):
        assert process.poll() is None
        process.send_signal(number)
    for process, number in zip(processes, numbers, strict=True):
        try:
            process.communicate(timeout=20)
        finally:
            process.kill()
        assert process.returncode == 128 + number


# ---- what a command loads -------------------------------------------------------------------------------------------

HEAVY = ["cv2", "faiss", "numba", "PIL", "matplotlib", "sklearn", "scipy.optimize", "scipy.stats", "rich"]
HEAVY += ["onnxruntime", "joblib"]
SEARCH = "cv2 faiss numba PIL"
LOADED = {  # the heavy libraries that each command may load; a new one would slow down every use of the command
    "--help": "rich",
    "predict MODEL IMAGE": f"{SEARCH} rich",
    "predict MODEL IMAGE --format json": SEARCH,
    "predict MODEL PHOTOS --format json": f"{SEARCH} joblib",
    "predict MODEL IMAGE --format json --reject 0.2": f"{SEARCH} joblib scipy.optimize",
    "evaluate MODEL PHOTOS --format json": f"{SEARCH} joblib",
    "explain MODEL IMAGE -o why.png": f"{SEARCH} matplotlib rich",
    "info MODEL --format json": SEARCH,
    "audit MODEL --format json": f"{SEARCH} joblib",
    "list MODEL": "cv2 PIL rich",
    "add MODEL --label otter NEW": "cv2 numba PIL",
    "relabel MODEL --image 9 --label rows": "cv2 PIL",
    "remove MODEL --image 9": "cv2 PIL",
    "calibrate MODEL": f"{SEARCH} joblib scipy.optimize",
    "check MODEL": SEARCH,
    "compact MODEL": SEARCH,
    "merge MODEL OTHER merged": SEARCH,
    "fit PHOTOS fitted GRID": f"{SEARCH} joblib",
    "fit PHOTOS fitted GRID --jobs 1 --force": SEARCH,
    "extract PHOTOS cache GRID": "cv2 numba PIL joblib",
    "split PHOTOS split --train 1": "cv2 PIL",
}


def test_each_command_loads_only_what_it_needs(model, photos, tmp_path, save_texture):
    for name in ("model", "other"):
        shutil.copytree(model, tmp_path / name)
    places = {
        "MODEL": [tmp_path / "model"],
        "OTHER": [tmp_path / "other"],
        "PHOTOS": [photos],
        "IMAGE": [photos / "rows" / "photo_0.png"],
        "NEW": [save_texture(tmp_path / "new.png", "rows", seed=77)],
        "GRID": SMALL_OPTIONS,
    }
    code = (
        "import sys, atexit; from lnbnn.cli import main; "
        f"atexit.register(lambda: print('loaded', *[name for name in {HEAVY} if name in sys.modules], file=sys.stderr))"
        "; main(sys.argv[1:])"
    )
    for words, allowed in LOADED.items():
        args = [str(arg) for word in words.split() for arg in places.get(word, [word])]
        done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
        loaded = done.stderr.splitlines()[-1].split()[1:]
        assert set(loaded) <= set(allowed.split()), words

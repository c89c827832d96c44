"""Bad input, as people meet it: each gives one clear line, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from conftest import Outcome
from forged import data_file, forge_checksums, forge_manifest
from matplotlib.figure import Figure
from PIL import Image

import lnbnn
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.data import folder as folder_module
from lnbnn.errors import InvalidInputError
from lnbnn.indexes import faiss_lists, vector_table
from lnbnn.model import writer as model_writer
from lnbnn.params import resolve

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def png_bytes(width, height, data=b"\0"):
    """A PNG file with a hand-made header: it may claim any size, whatever data follows."""

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def content(folder):
    """Every file below a folder, hidden ones too, with its bytes; folders with None."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def truncated_jpeg(path, save_texture):
    save_texture(path, "rows")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BAD_FILES = {
    "missing.jpg": (lambda path, _: None, "no such file"),
    "zero-byte.jpg": (lambda path, _: path.write_bytes(b""), "empty"),
    "empty-picture.png": (lambda path, _: path.write_bytes(png_bytes(0, 0)), "not a picture"),
    "truncated.jpg": (truncated_jpeg, "cut short"),
    "text.jpg": (lambda path, _: path.write_text("dear diary"), "not a picture"),
    "one-pixel.png": (lambda path, _: Image.new("L", (1, 1), 99).save(path), "flat or too small"),
    "flat.png": (lambda path, _: Image.new("RGB", (80, 80), "teal").save(path), "flat or too small"),
    "bomb.png": (lambda path, _: path.write_bytes(png_bytes(60_000, 60_000)), "million pixels"),
    "folder.jpg": (lambda path, _: path.mkdir(), "no images in this folder"),
}


# ---- one image ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=BAD_FILES)
def bad_file(request, tmp_path, save_texture):
    """The path of a bad image, and words of the line that is expected about it."""
    make, words = BAD_FILES[request.param]
    make(tmp_path / request.param, save_texture)
    return tmp_path / request.param, words


def test_a_bad_image_stops_a_strict_run_with_one_line(bad_file, model, run_main):
    path, words = bad_file
    error = run_main("predict", model, path, "--strict").error
    assert str(path) in error
    assert words in error


def test_a_bad_image_cannot_be_explained(bad_file, model, tmp_path, run_main):
    path, words = bad_file
    error = run_main("explain", model, path, "-o", tmp_path / "why.png").error
    assert words in error or "expected an image file" in error
    assert not (tmp_path / "why.png").exists()


def test_a_picture_20000_pixels_wide_is_read_as_any_other(model, tmp_path, run_main):
    stripes = np.tile(np.repeat(np.array([60, 190], np.uint8), 1_000)[:, None], (2, 20_000))
    Image.fromarray(stripes).save(tmp_path / "wide.png", compress_level=1)
    outcome = run_main("predict", model, tmp_path / "wide.png", "--format", "json")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["label"] == "rows"


def test_a_file_that_may_not_be_read(model, photos, run_main, monkeypatch):
    def denied(self):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)
    error = run_main("predict", model, photos / "rows" / "photo_0.png", "--strict").error
    assert "photo_0.png: cannot be read (Permission denied)" in error


# ---- a folder of images -------------------------------------------------------------------------------------------


@pytest.fixture
def photos_with_three_bad(make_photos, tmp_path, save_texture):
    folder = make_photos(tmp_path / "photos")
    for name, place in (("zero-byte.jpg", "rows"), ("truncated.jpg", "checks"), ("text.jpg", "rows")):
        BAD_FILES[name][0](folder / place / name, save_texture)
    return folder


def test_fit_finishes_without_three_bad_files_and_names_them(photos_with_three_bad, tmp_path, fit):
    outcome = fit(photos_with_three_bad, tmp_path / "model")
    assert outcome.code == 0
    *named, count = outcome.err.splitlines()
    assert [Path(line.split(": ")[1]).name for line in named] == ["truncated.jpg", "text.jpg", "zero-byte.jpg"]
    assert count.startswith("3 of 12 images skipped")
    assert len(lnbnn.load(tmp_path / "model").images_) == 9


def test_strict_fit_stops_at_a_bad_file_and_leaves_no_model(photos_with_three_bad, tmp_path, fit):
    error = fit(photos_with_three_bad, tmp_path / "model", "--strict", "--jobs", "1").error
    assert "truncated.jpg" in error
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_strict_fit_says_one_line_with_other_images_still_in_work(photos_with_three_bad, tmp_path):
    command = [sys.executable, "-m", "lnbnn", "fit", photos_with_three_bad, tmp_path / "model", "--strict", "--jobs=2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "truncated.jpg" in Outcome(done.returncode, done.stdout, done.stderr).error
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_evaluate_counts_bad_files_apart(photos_with_three_bad, model, run_main):
    outcome = run_main("evaluate", model, photos_with_three_bad, "--format", "json")
    result = json.loads(outcome.out)
    assert (outcome.code, result["n_images"], result["n_skipped"]) == (0, 9, 3)
    assert outcome.err.count("skipped: ") == 3


def test_fit_says_why_when_every_image_is_bad(tmp_path, fit):
    (tmp_path / "photos" / "empty").mkdir(parents=True)
    (tmp_path / "photos" / "empty" / "a.jpg").touch()
    error = fit(tmp_path / "photos", tmp_path / "model").error
    assert "none of the 1 images can be used" in error
    assert not (tmp_path / "model").exists()


def test_a_flat_image_among_others_is_left_out_and_named(make_photos, tmp_path, fit):
    Image.new("L", (80, 80), 128).save(make_photos(tmp_path / "photos") / "rows" / "flat.png")
    outcome = fit(tmp_path / "photos", tmp_path / "model")
    assert outcome.code == 0
    assert "flat.png: no descriptors" in outcome.err
    assert len(lnbnn.load(tmp_path / "model").images_) == 9


def test_a_class_with_one_image_is_a_class_as_any_other(make_photos, tmp_path, fit, run_main):
    folder = make_photos(tmp_path / "photos")
    for name in ("photo_1.png", "photo_2.png"):
        (folder / "rows" / name).unlink()
    assert fit(folder, tmp_path / "model").code == 0
    outcome = run_main("evaluate", tmp_path / "model", folder, "--format", "json")
    assert json.loads(outcome.out)["per_class"] == {"checks": 1.0, "columns": 1.0, "rows": 1.0}
    assert "class 'rows' has 1 images" in run_main("split", folder, tmp_path / "split", "--train", "1").error


def test_a_class_folder_without_images_is_left_out_and_named(make_photos, tmp_path, fit):
    (make_photos(tmp_path / "photos") / "nothing").mkdir()
    outcome = fit(tmp_path / "photos", tmp_path / "model")
    assert outcome.code == 0
    assert outcome.err == "class 'nothing' has no images: left out\n"
    assert lnbnn.load(tmp_path / "model").classes_.tolist() == ["checks", "columns", "rows"]


def test_one_class_only_is_always_the_answer(photos, tmp_path, fit, run_main):
    shutil.copytree(photos / "rows", tmp_path / "photos" / "rows")
    assert fit(tmp_path / "photos", tmp_path / "model").code == 0
    outcome = run_main("predict", tmp_path / "model", photos / "columns", "--format", "json")
    assert [json.loads(line)["label"] for line in outcome.out.splitlines()] == ["rows"] * 3


@pytest.mark.parametrize("command", ["fit", "extract", "split"])
@pytest.mark.parametrize(("name", "words"), [("missing", "no such folder"), ("empty", "no images found")])
def test_a_set_that_is_missing_or_empty(command, name, words, tmp_path, run_main):
    (tmp_path / "empty").mkdir()
    assert words in run_main(command, tmp_path / name, tmp_path / "target").error


def deny_folder(monkeypatch, folder):
    """Let every listing of a folder fail, as one of another user's does."""

    def unless_denied(listing):
        def list_folder(path="."):
            if not isinstance(path, int) and os.fspath(path) == str(folder):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
            return listing(path)

        return list_folder

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, unless_denied(getattr(os, name)))


def test_a_set_that_may_not_be_opened(photos, tmp_path, fit, monkeypatch):
    deny_folder(monkeypatch, photos)
    assert "cannot be opened (Permission denied)" in fit(photos, tmp_path / "model").error


def test_a_class_folder_that_may_not_be_opened_is_named(photos, tmp_path, fit, monkeypatch):
    deny_folder(monkeypatch, photos / "rows")
    outcome = fit(photos, tmp_path / "model")
    assert outcome.code == 0
    assert f"{photos / 'rows'}: cannot be opened" in outcome.err
    assert lnbnn.load(tmp_path / "model").classes_.tolist() == ["checks", "columns"]


def test_predict_names_a_folder_that_may_not_be_opened(photos, model, run_main, monkeypatch):
    deny_folder(monkeypatch, photos / "rows")
    outcome = run_main("predict", model, photos, "--format", "json")
    assert len(outcome.out.splitlines()) == 6
    assert f"{photos / 'rows'}: cannot be opened" in outcome.err


# ---- names --------------------------------------------------------------------------------------------------------

ODD_NAMES = {"two words": "rows", "ünï côde": "columns", "-dash": "checks"}


@pytest.fixture
def odd_photos(tmp_path, save_texture):
    """Classes with odd names; every class has a file of the same name."""
    for name, kind in ODD_NAMES.items():
        save_texture(tmp_path / "photos" / name / "same.png", kind)
    return tmp_path / "photos"


def test_odd_class_names_and_equal_file_names(odd_photos, tmp_path, fit, run_main, monkeypatch):
    outcome = fit(odd_photos, tmp_path / "model")
    assert (outcome.code, outcome.err) == (0, "")
    monkeypatch.chdir(odd_photos)
    paths = [f"{name}/same.png" for name in ODD_NAMES]
    answers = run_main("predict", tmp_path / "model", "--format", "json", "--", *paths).out.splitlines()
    assert [json.loads(answer)["path"] for answer in answers] == paths
    assert [json.loads(answer)["label"] for answer in answers] == list(ODD_NAMES)
    table = run_main("predict", tmp_path / "model", ".").out
    assert all(f"│ {name} " in table for name in ODD_NAMES)


def test_odd_class_names_survive_split_and_explain(odd_photos, tmp_path, fit, run_main, save_texture):
    for name, kind in ODD_NAMES.items():
        save_texture(odd_photos / name / "other.png", kind, seed=101)
    assert run_main("split", odd_photos, tmp_path / "split", "--train", "1").code == 0
    assert fit(tmp_path / "split" / "train.csv", tmp_path / "model").code == 0
    query = odd_photos / "-dash" / "same.png"
    options = ["-o", tmp_path / "why.png", "--label", "-dash", "--against", "two words"]
    assert (
        "are evidence for -dash rather than two words" in run_main("explain", tmp_path / "model", query, *options).out
    )


def test_a_picture_with_a_name_the_font_lacks_comes_without_a_warning(
    odd_photos, tmp_path, fit, run_main, save_texture
):
    save_texture(odd_photos / "車" / "same.png", "rows", seed=102)
    fit(odd_photos, tmp_path / "model")
    outcome = run_main("evaluate", tmp_path / "model", odd_photos, "-o", tmp_path / "out")
    assert outcome.code == 0
    others = [line for line in outcome.err.splitlines() if "in the model" not in line]
    assert len(others) == 1


@pytest.mark.parametrize("name", ["[red] car", "a:smile:"])
def test_tables_show_names_as_they_are(name, tmp_path, fit, run_main, save_texture):
    save_texture(tmp_path / "photos" / name / "a.png", "rows")
    fit(tmp_path / "photos", tmp_path / "model")
    assert f"│ {name} " in run_main("info", tmp_path / "model").out
    assert f"│ {name} " in run_main("predict", tmp_path / "model", tmp_path / "photos").out
    assert f"│ {name} " in run_main("evaluate", tmp_path / "model", tmp_path / "photos").out


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_file_name_that_is_not_unicode_loses_nothing_else(make_photos, tmp_path, fit):
    folder = os.fsencode(make_photos(tmp_path / "photos") / "rows")
    os.rename(folder + b"/photo_0.png", folder + b"/caf\xe9.png")
    outcome = fit(tmp_path / "photos", tmp_path / "model")
    assert outcome.code == 0
    assert len(lnbnn.load(tmp_path / "model").images_) >= 8


def test_class_names_unknown_to_a_model_of_numbers_count_as_wrong(photos, tmp_path, run_main, save_texture):
    images = [photos / "rows" / "photo_0.png", photos / "columns" / "photo_0.png"]
    lnbnn.LocalNBNN(descriptor_params={"longest_side": 96}).fit(images, [1, 2]).save(tmp_path / "model")
    for name, kind in (("1", "rows"), ("2", "columns"), ("other", "rows")):
        save_texture(tmp_path / "photos" / name / "a.png", kind)
    outcome = run_main("evaluate", tmp_path / "model", tmp_path / "photos", "--format", "json")
    assert json.loads(outcome.out)["per_class"] == {"1": 1.0, "2": 1.0, "other": 0.0}


# ---- settings -----------------------------------------------------------------------------------------------------


def test_k_must_be_below_the_number_of_descriptors(photos, model, tmp_path, fit, run_main):
    n = sum(image.n_descriptors for image in lnbnn.load(model).images_)
    for k in (n, n + 1):
        error = fit(photos, tmp_path / "model", "-k", k).error
        assert f"n_neighbors must be at most {n - 1}" in error
        assert f"got {k}" in error
        assert not (tmp_path / "model").exists()
    assert fit(photos, tmp_path / "model", "-k", n - 1).code == 0
    assert run_main("predict", tmp_path / "model", photos / "rows").code == 0


@pytest.mark.parametrize(
    "setting", ["-Dstep_px=wide", "-Dstep_px=inf", "-Dbin_sizes=4,", "-Dno=1", "-In_probes=x", "-Iseed=x", "-anan"]
)
def test_a_setting_that_makes_no_sense_is_a_usage_error(setting, photos, tmp_path, run_main):
    outcome = run_main("fit", photos, tmp_path / "model", "-I", "form=ivf-8bit", setting)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "model").exists()


# ---- the model folder ---------------------------------------------------------------------------------------------

DATA_FILES = [
    "branch_sizes.npy",
    "branches.npy",
    "centers.npy",
    "ids.npy",
    "list_sizes.npy",
    "lists.npy",
    "table.json",
    "vectors.npy",
]
MODEL_FILES = ["manifest.json", *DATA_FILES]


@pytest.fixture
def own_model(model, tmp_path):
    """A copy of the model, to be damaged."""
    return Path(shutil.copytree(model, tmp_path / "model"))


def file_of(model, name):
    return model / name if name == "manifest.json" else data_file(model, name)


def test_the_model_has_the_files_that_are_damaged_below(model):
    data = data_file(model, "")
    assert sorted(path.name for path in model.iterdir()) == [data.name, "manifest.json"]
    assert sorted(path.name for path in data.iterdir()) == DATA_FILES


@pytest.mark.parametrize("command", ["predict", "evaluate", "info"])
def test_a_missing_model(command, photos, tmp_path, run_main):
    images = [] if command == "info" else [photos]
    assert "no such model folder" in run_main(command, tmp_path / "model", *images).error


def test_a_folder_that_is_no_model(photos, run_main):
    assert "not a model folder" in run_main("info", photos).error


@pytest.mark.parametrize("name", MODEL_FILES)
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_model_cut_short(name, keep, own_model, run_main):
    file = file_of(own_model, name)
    file.write_bytes(file.read_bytes()[: int(keep * file.stat().st_size)])
    assert name in run_main("info", own_model).error


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_model_with_a_missing_file(name, own_model, run_main):
    file_of(own_model, name).unlink()
    error = run_main("info", own_model).error
    assert name in error
    assert "missing" in error


@pytest.mark.parametrize("old", [b"{", b"}", b")", b"descr", b"NUMPY"])
def test_a_model_with_a_damaged_array_of_the_right_size(old, own_model, run_main):
    file = data_file(own_model, "vectors.npy")
    data = file.read_bytes()
    file.write_bytes(data[:128].replace(old, b" " * len(old)) + data[128:])
    assert "vectors.npy: its checksum is wrong" in run_main("info", own_model).error
    forge_checksums(own_model)
    assert "vectors.npy" in run_main("info", own_model).error


@pytest.mark.parametrize("version", [0, 1, 999, "2", None])
def test_a_model_of_another_format_version(version, own_model, run_main):
    forge_manifest(own_model, format_version=version)
    error = run_main("info", own_model).error
    assert f"model format {version!r}" in error
    assert "reads formats 2 and 3" in error


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "data-000001/../../secret", "data-000002/vectors.npy"])
def test_a_model_cannot_point_outside_its_folder(name, own_model, run_main):
    forge_manifest(own_model, files={name: [3, "0" * 64]})
    assert "not a path inside the model folder" in run_main("info", own_model).error


# ---- writing ------------------------------------------------------------------------------------------------------


def fill_the_disk(monkeypatch, step):
    """Let one step of writing a model fail as on a full disk, after a part of its file was written."""

    def half(path, *_args, **_kwargs):
        Path(path).write_bytes(b"half")
        raise FULL

    if step == "arrays":
        monkeypatch.setattr(vector_table, "save_stacked", half)
    elif step == "index":
        monkeypatch.setattr(faiss_lists, "save_stacked", half)
    elif step == "manifest":
        monkeypatch.setattr(model_writer, "atomic_path", lambda path: half(path.with_name(".partial-x")))
    else:
        monkeypatch.setattr(Path, "mkdir", lambda *_, **__: half(os.devnull))


@pytest.mark.parametrize("step", ["folder", "arrays", "index", "manifest"])
def test_a_full_disk_leaves_no_part_of_a_model(step, photos, tmp_path, fit, monkeypatch):
    fill_the_disk(monkeypatch, step)
    error = fit(photos, tmp_path / "model", "-I", "form=ivf-8bit", "-I", "n_lists=4").error
    assert "cannot be written" in error
    assert "No space left on device" in error
    assert content(tmp_path) == {}


@pytest.mark.parametrize("step", ["folder", "arrays", "index", "manifest"])
def test_a_full_disk_leaves_the_old_model_as_it_was(step, own_model, photos, tmp_path, fit, monkeypatch):
    before = content(tmp_path)
    fill_the_disk(monkeypatch, step)
    assert "No space left" in fit(photos, own_model, "--force", "-I", "form=ivf-8bit", "-I", "n_lists=4").error
    after = content(tmp_path)
    after.pop("model/writer.lock", None)
    assert after == before


def test_a_full_disk_leaves_whole_cache_entries_only(photos, tmp_path, run_main, monkeypatch):
    whole = np.savez
    calls = []

    def second_fails(file, **arrays):
        calls.append(file)
        if len(calls) == 2:
            file.write(b"half")
            raise FULL
        whole(file, **arrays)

    monkeypatch.setattr(np, "savez", second_fails)
    assert "No space left" in run_main("extract", photos, tmp_path / "cache", "--jobs", "1").error
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.suffix for path in files] == [".npz"]
    assert len(np.load(files[0])["descriptors"]) > 0


def test_a_full_disk_leaves_the_old_lists_as_they_were(photos, tmp_path, run_main, monkeypatch):
    assert run_main("split", photos, tmp_path / "split", "--train", "1").code == 0
    before = content(tmp_path)

    class FullWriter:
        def __init__(self, file, **_):
            self.file = file

        def writerow(self, row):
            self.file.write("half")
            self.file.flush()
            raise FULL

        writerows = writerow

    monkeypatch.setattr(folder_module.csv, "writer", FullWriter)
    error = run_main("split", photos, tmp_path / "split", "--train", "2").error
    assert "No space left" in error
    assert content(tmp_path) == before


def test_a_full_disk_leaves_no_part_of_a_picture(photos, model, tmp_path, run_main, monkeypatch):
    def half(self, path, *_args, **_kwargs):
        Path(path).write_bytes(b"half")
        raise FULL

    monkeypatch.setattr(Figure, "savefig", half)
    error = run_main("explain", model, photos / "rows" / "photo_0.png", "-o", tmp_path / "why.png").error
    assert "No space left" in error
    assert content(tmp_path) == {}


# ---- numbers that are too large -------------------------------------------------------------------------------------

DIGITS = "9" * 5000  # Python refuses to read more than 4,300 of them as a number


@pytest.mark.parametrize("digits", [DIGITS, "9" * 400, f"-{DIGITS}"], ids=["5000", "400", "-5000"])
@pytest.mark.parametrize(
    "options",
    [
        ["-k", "{}"],
        ["--query-budget", "{}"],
        ["--max-memory", "{}"],
        ["--max-memory", "{}GiB"],
        ["--location-weight", "{}"],
        ["--jobs", "{}"],
        ["-D", "step_px={}"],
        ["-D", "bin_sizes=4,{}"],
        ["-D", "{}:step_px=8"],
        ["-M", "location_weight={}"],
        ["-M", "scale_weight={}"],
        ["-I", "n_probes={}"],
        ["--method", "spm-hard", "-M", "C={}"],
        ["--method", "local-nbnn-kernel", "-M", "C={}"],
    ],
    ids=" ".join,
)
def test_an_option_with_too_many_digits(options, digits, photos, tmp_path, run_main):
    if options[0] in ("--jobs", "--query-budget", "-k") and len(digits) == 400:
        pytest.skip("a number that can be read, and means all")
    outcome = run_main("fit", photos, tmp_path / "model", *(option.format(digits) for option in options))
    assert outcome.code in (1, 2)
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert "set_int_max_str_digits" not in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["remove", "relabel"])
def test_an_id_with_too_many_digits(command, model, run_main):
    before = (model / "manifest.json").read_bytes()
    label = ["--label", "rows"] if command == "relabel" else []
    outcome = run_main(command, model, "--image", DIGITS, *label)
    assert outcome.code == 2
    assert "expected ids of images" in outcome.err
    assert (model / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("number", [10**400, -(10**400)])
@pytest.mark.parametrize("setting", ["location_weight", "scale_weight", "n_neighbors", "query_budget", "random_state"])
def test_a_manifest_with_a_number_too_large(setting, number, model, tmp_path, run_main):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    params = json.loads((copy / "manifest.json").read_bytes())["params"]
    forge_manifest(copy, params=params | {setting: number})
    assert "the manifest is damaged" in run_main("info", copy).error


def test_a_calibration_with_a_number_too_large(model, tmp_path, run_main):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    forge_manifest(copy, temperature=10**400)
    assert "temperature" in run_main("info", copy).error


def test_a_manifest_with_too_many_digits(model, tmp_path, run_main):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    manifest = copy / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"generation":1', f'"generation":{DIGITS}'))
    assert "cannot be read as a model's manifest" in run_main("info", copy).error


@pytest.mark.parametrize("setting", ["C", "blend"])
def test_settings_of_a_kernel_that_have_no_float(setting):
    with pytest.raises(InvalidInputError, match=setting):
        resolve(CLASSIFIERS, "local-nbnn-kernel", "method")(**{setting: 10**400}).check_settings()


def test_a_regularization_that_has_no_float():
    with pytest.raises(InvalidInputError, match="regularization"):
        resolve(CLASSIFIERS, "nbnn-affine", "method")(regularization=10**400).check_settings()


def test_a_list_with_nul(tmp_path, run_main):
    (tmp_path / "list.csv").write_bytes(b"path,label\na\0.jpg,cat\n")
    error = run_main("fit", tmp_path / "list.csv", tmp_path / "model").error
    assert "list.csv: line 2: expected text without NUL characters" in error
    assert [path.name for path in tmp_path.iterdir()] == ["list.csv"]

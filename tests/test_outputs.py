"""Places that cannot be written to are refused before the work, and trying them leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import lnbnn
from lnbnn.errors import InvalidInputError
from lnbnn.files.outputs import check_file, check_folder
from lnbnn.model.model import Model
from lnbnn.model.writer import check_target


def tree(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


@pytest.fixture
def places(tmp_path):
    """Places where nothing can be written, even by root."""
    (tmp_path / "file").write_text("a file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    return {
        "below a file": (tmp_path / "file" / "model", "not a folder"),
        "below a dangling link": (tmp_path / "dangling" / "model", "a broken link"),
        "below a loop": (tmp_path / "loop" / "model", "a broken link"),
        "long": (tmp_path / ("x" * 300), "name too long"),
        "no file system for it": ("/proc/model", "cannot be written"),
        "nothing": (tmp_path / "a\0b", "null"),
    }


MODEL_PLACES = {
    "dangling": "a link to no model",
    "loop": "a link to no model",
    "link": "a link to no model",
    "file": "a file is in the way",
    "x" * 240: "name too long",  # with what is added while it is written
}


def test_folders(places, tmp_path):
    before = tree(tmp_path)
    for place, message in places.values():
        with pytest.raises(InvalidInputError, match=f"(?i){message}") as caught:
            check_folder(place)
        assert str(caught.value).startswith(f"{place}: ")
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "newer" / "newest")
    check_folder(tmp_path / "link" / "new")
    assert tree(tmp_path) == before


def test_files(places, tmp_path):
    before = tree(tmp_path)
    for place in (tmp_path / "empty", "/dev/null", tmp_path / "missing" / "page.html", "/proc/page.html"):
        with pytest.raises(InvalidInputError, match="cannot be written"):
            check_file(place)
    check_file(tmp_path / "page.html")
    check_file(tmp_path / "file")
    assert tree(tmp_path) == before


def test_models(places, tmp_path, monkeypatch):
    before = tree(tmp_path)
    more = {name: (tmp_path / name, message) for name, message in MODEL_PLACES.items()}
    for place, message in [*places.values(), *more.values()]:
        with pytest.raises(InvalidInputError, match=f"(?i){message}|in the way"):
            check_target(place, overwrite=True)
    check_target(tmp_path / "new" / "model", overwrite=False)
    check_target(tmp_path / "empty", overwrite=False)
    assert tree(tmp_path) == before
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    with pytest.raises(InvalidInputError, match="a file system is mounted here"):
        check_target(tmp_path / "empty", overwrite=False)


def test_commands_do_not_begin(places, photos, model, tmp_path, run_main, monkeypatch):
    def begin(*args, **kwargs):
        raise AssertionError("it began")

    for name in ("fit", "absorb", "iter_answers", "iter_scores"):
        monkeypatch.setattr(Model, name, begin)
    monkeypatch.setattr("lnbnn.files.images.read_bytes", begin)
    bad, file = tmp_path / "file" / "out", tmp_path / "missing" / "out"
    before = tree(tmp_path)
    for command in (
        ["fit", photos, bad],
        ["fit", photos, tmp_path / "dangling"],
        ["merge", model, model, bad],
        ["split", photos, bad],
        ["extract", photos, bad],
        ["demo", "-o", bad],
        ["reproduce", "table1", "-o", bad],
        ["reproduce", "table1", "-o", tmp_path / "results", "--runs", bad],
        ["evaluate", model, photos, "-o", bad],
        ["explain", model, photos / "rows" / "photo_0.png", "-o", file.with_suffix(".png")],
        ["audit", model, "-o", file.with_suffix(".html")],
        ["export-onnx", "deep", file.with_suffix(".onnx")],
        ["data", "caltech101", bad],
    ):
        error = run_main(*command).error
        assert "cannot be written" in error or "in the way" in error, error
    assert tree(tmp_path) == before


def test_permissions(tmp_path):
    """As another user where the tests run as root, whom permissions do not stop."""
    code = f"""
import os
from pathlib import Path
from lnbnn.errors import InvalidInputError
from lnbnn.model.model import Model
from lnbnn.model.writer import check_target
os.setuid(65534) if os.getuid() == 0 else None
for name in ("closed/model", "closed/new/model", "closed"):
    try:
        check_target(Path({str(tmp_path)!r}) / name, overwrite=True)
    except InvalidInputError as error:
        print(error)
"""
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0o500)
    for parent in (tmp_path, *list(tmp_path.parents)[:3]):
        if parent.stat().st_uid == os.getuid() and str(parent).count("/") > 1:
            parent.chmod(0o755)
    try:
        command = [sys.executable, "-c", code]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert len(lines) == 3 if os.getuid() == 0 else 2 <= len(lines) <= 3
    assert all("Permission denied" in line for line in lines)


@pytest.mark.parametrize("form", ["ivf-8bit", "ivf-4bit"])
def test_a_name_that_is_not_utf8_is_opened_again(photos, tmp_path, form):
    from lnbnn.data.folder import read_images

    data = read_images(photos)
    path = os.path.join(tmp_path, os.fsdecode(b"caf\xe9"))
    try:
        os.mkdir(path)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    params = {"bin_sizes": [4, 6], "step_px": 8, "longest_side": 96}
    classifier = lnbnn.LocalNBNN(5, descriptor_params=params, index_params={"form": form, "n_lists": 4})
    classifier.fit(data.paths, data.labels).save(path)
    again = lnbnn.load(path)
    assert (again.decision_function(data.paths) == classifier.decision_function(data.paths)).all()
    with lnbnn.edit(path) as model:
        model.relabel(0, "rows")
    again.refresh()
    assert again.images_[0].label == "rows"

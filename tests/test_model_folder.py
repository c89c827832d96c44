"""The model folder under bad conditions: writers killed, disks full, folders read-only, files damaged or forged.

The long form is ``make soak``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from forged import data_file, forge_checksums
from synthetic import make_features

from lnbnn import LocalNBNN, load
from lnbnn.errors import LnbnnError, ModelFormatError
from lnbnn.model.changes import check_model, edit
from lnbnn.model.folder import open_model
from lnbnn.model.manifest import image_fields
from lnbnn.model.writer import _ROW_BYTES, write_model
from lnbnn.references import Reference

HERE = Path(__file__).parent


def run_script(name, *args):
    command = [sys.executable, str(HERE / name), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def features(seed):
    return make_features(np.random.default_rng(seed).integers(0, 128, (12, 8), dtype=np.uint8), seed=seed)


@pytest.fixture
def folder(tmp_path):
    model = LocalNBNN(n_neighbors=5, index="exact", n_jobs=1)
    model.fit([features(seed) for seed in range(4)], list("aabb")).save(tmp_path / "model")
    return tmp_path / "model"


def test_killed_writers_leave_the_model_as_before_or_as_after(tmp_path):
    result = run_script("killing.py", tmp_path, "--kills", 10, "--signals", 20, "--full-disks", 6, "--commands", 2)
    assert result["killed"]["sent"] == {"SIGKILL": 10}
    assert sum(result["signaled"]["sent"].values()) == 20
    assert result["full_disks"] == 6


def test_damaged_models_are_refused(tmp_path):
    found = run_script("fuzzing.py", tmp_path, "--model", 150, "--forged", 150)
    assert set(found["model"]) <= {"refused", "unchanged", "means the same"}
    assert found["model"]["refused"] > 120
    assert set(found["forged"]) <= {"refused", "opened", "unchanged"}
    assert found["forged"]["refused"] > 30


def test_damaged_pictures_are_refused_or_read(tmp_path):
    found = run_script("fuzzing.py", tmp_path, "--images", 300)
    assert found["images"]["refused"] > 100
    assert sum(found["images"].values()) == 300


def test_a_read_only_folder_is_read_and_not_changed(folder):
    """As another user where the tests run as root, whom permissions do not stop."""
    code = f"""
import os
import lnbnn
from lnbnn.errors import LnbnnError
lnbnn.edit, lnbnn.load({str(folder)!r})
os.setuid(65534) if os.getuid() == 0 else None
print(len(lnbnn.load({str(folder)!r}).images_))
for change in (lambda model: model.remove(0), lambda model: model.relabel(1, "c")):
    try:
        with lnbnn.edit({str(folder)!r}) as model:
            change(model)
    except LnbnnError as error:
        print(error)
"""
    root = Path(tempfile.gettempdir())
    for path in folder.parents:  # so that the other user gets there
        if root in path.parents:
            path.chmod(path.stat().st_mode | 0o055)
    folder.chmod(0o555)
    before = (folder / "manifest.json").read_bytes()
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    folder.chmod(0o755)
    lines = out.stdout.splitlines()
    assert lines[0] == "4", out.stderr
    assert all("cannot be changed (Permission denied); nothing was changed" in line for line in lines[1:])
    assert len(lines) == 3
    assert (folder / "manifest.json").read_bytes() == before


def test_out_of_memory_in_a_change_leaves_the_model(folder, monkeypatch):
    def no_memory(*_):
        raise MemoryError

    monkeypatch.setattr("lnbnn.model.changes.write_batch", no_memory)

    def add():
        with edit(folder) as model:
            model.add([features(50)], ["c"])

    with pytest.raises(MemoryError):
        add()
    monkeypatch.undo()
    assert check_model(folder).n_images == 4
    assert [path.name for path in sorted(data_file(folder, "").iterdir())] == [
        "ids.npy",
        "table.json",
        "vectors.npy",
    ]


def test_leftovers_of_a_killed_fit_are_cleaned_up_by_the_next(folder, tmp_path):
    (tmp_path / ".model2.partial-abc" / "data-000001").mkdir(parents=True)
    load(folder).save(tmp_path / "model2")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["model", "model2"]


def test_a_lock_file_that_points_elsewhere_is_not_followed(folder, tmp_path):
    (tmp_path / "precious").write_text("precious")
    (folder / "writer.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(LnbnnError, match="regular files only"), edit(folder):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_damaged_model_can_be_replaced(folder):
    model = load(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ModelFormatError):
        load(folder)
    model.save(folder, overwrite=True)
    assert check_model(folder).problems == ()


def test_files_that_are_not_read_on_opening_are_still_of_their_size(folder, monkeypatch):
    monkeypatch.setattr("lnbnn.model.folder._VERIFY_UP_TO_BYTES", 0)
    file = data_file(folder, "vectors.npy")
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(ModelFormatError, match=r"vectors.npy: cut short or damaged"):
        open_model(folder)


def test_ids_that_are_not_those_of_the_images(folder):
    path = data_file(folder, "ids.npy")
    ids = np.load(path)
    ids[0] = 3 << 20
    np.save(path, ids)
    forge_checksums(folder)
    assert check_model(folder).problems == ("the ids of the index are not those of the images",)


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_writer_that_fails_around_its_commit(folder, monkeypatch, step):
    """A crash just before the manifest is renamed leaves the old model, one just after it the new."""
    replace = os.replace

    def stop(source, target):
        if step == "after":
            replace(source, target)
        raise KeyboardInterrupt

    def relabel():
        with edit(folder) as model:
            model.relabel(0, "z")

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        relabel()
    monkeypatch.undo()
    assert check_model(folder).problems == ()
    assert (load(folder).classes_.tolist() == ["a", "b", "z"]) == (step == "after")


def test_a_model_too_large_to_list_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("lnbnn.model.writer.MAX_MANIFEST_BYTES", 100)
    with pytest.raises(LnbnnError, match="list of images may take"):
        write_model(tmp_path / "model", {"x": "y" * 200}, lambda folder: None)
    assert list(tmp_path.iterdir()) == []


def test_too_many_images_are_refused_before_they_are_read(photos, tmp_path, monkeypatch, run_main):
    monkeypatch.setattr("lnbnn.model.writer.MAX_MANIFEST_BYTES", 1000)
    told = run_main("fit", photos, tmp_path / "model").error
    assert "list of images may take 1,000 bytes; got 9 images, which take more: divide them over several" in told
    assert not (tmp_path / "model").exists()


def test_an_image_takes_what_is_counted_before():
    """That count is at most what the manifest takes, and near it."""
    images = [Reference(7, f"photos/{place:08d}.JPEG", "a", 62, "0" * 64) for place in range(100)]
    row = len(json.dumps(image_fields(images)["images"], separators=(",", ":"))) / 100
    assert row - 5 < _ROW_BYTES + len(images[0].name) <= row

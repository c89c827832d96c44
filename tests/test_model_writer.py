"""A writer that is stopped at any call, by an error, a signal or a power cut: the long form is ``make soak``."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat

import pytest
from faults import SIGNALS, _system_error, cut_the_power, fail_everywhere, features, fitted, lines_that_sync, state_of
from forged import data_file, forge_manifest

from lnbnn import load
from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError, ModelInUseError
from lnbnn.model import writer as model_writer
from lnbnn.model.changes import compact, edit
from lnbnn.model.writer import discard_model


@pytest.fixture
def folder(tmp_path):
    fitted().save(tmp_path / "model")
    return tmp_path / "model"


def relabel(folder, label="z"):
    with edit(folder) as model:
        model.relabel(0, label)


@pytest.mark.parametrize("change", ["add", "compact", "fit --force", "fit"])
@pytest.mark.parametrize(
    "kind",
    [
        ("EIO instead of", _system_error("EIO"), False),
        ("EIO after", _system_error("EIO"), True),
        ("SIGINT after", SIGNALS["SIGINT"], True),
    ],
    ids=lambda kind: kind[0],
)
def test_every_call_may_fail(tmp_path, change, kind):
    counts = fail_everywhere(tmp_path, changes=[change], kinds=[kind])
    assert counts["failures"] > 10
    assert counts["changed"] > 0
    assert counts["kept"] > 0


@pytest.mark.parametrize("change", ["add", "relabel", "compact", "fit --force", "fit", "discard"])
def test_a_power_cut_at_any_moment(tmp_path, change):
    assert cut_the_power(tmp_path, change) >= 16


@pytest.mark.parametrize("line", lines_that_sync())
def test_a_writer_that_does_not_wait_for_the_disk_is_found_out(tmp_path, line):
    """The power cuts above fail as they should: each wait that is left out loses a model in one of them."""
    found = []
    for change in ("compact", "fit", "discard"):
        try:
            cut_the_power(tmp_path / change, change, without=line)
        except AssertionError as error:
            found.append(error)
    assert found


def test_a_manifest_without_its_data_is_refused_and_nothing_is_removed(folder, tmp_path):
    """As after restoring an old manifest, or when only the manifest of another machine has arrived."""
    before = (folder / "manifest.json").read_bytes()
    old = shutil.copytree(folder, tmp_path / "old")
    fitted(7).save(folder, overwrite=True)
    newer = state_of(folder)
    manifest = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(before)
    for change in (relabel, compact):
        with pytest.raises(ModelFormatError, match="missing"):
            change(folder)
    (folder / "manifest.json").write_bytes(manifest)
    assert state_of(folder) == newer
    assert state_of(old) is not None


def test_data_that_no_manifest_named_is_left_alone_until_the_model_is_compacted(folder):
    """An older manifest that was put back must not cost the data of the newer one."""
    shutil.copytree(data_file(folder, ""), folder / "data-000009-0123456789abcdef")
    relabel(folder)
    assert (folder / "data-000009-0123456789abcdef").exists()
    compact(folder)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == [data_file(folder, "").name]


def test_files_that_a_reader_holds_go_with_a_later_change(folder):
    held = data_file(folder, "")
    reader = load(folder)
    compact(folder)
    assert held.exists()
    reader.refresh()
    relabel(folder)
    assert not held.exists()


def test_names_of_data_folders_never_repeat(folder):
    names = {data_file(folder, "").name}
    for _ in range(3):
        fitted().save(folder, overwrite=True)
        names.add(data_file(folder, "").name)
        shutil.copyfile(folder / "manifest.json", folder / "kept.json")
        compact(folder)
        names.add(data_file(folder, "").name)
    assert len(names) == 7


def test_an_error_after_the_rename_is_not_called_no_change(folder, monkeypatch):
    real = model_writer.sync

    def sync(path):
        if path == folder:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path)

    monkeypatch.setattr(model_writer, "sync", sync)
    with pytest.raises(LnbnnError, match="the model was changed, but the disk reported an error"):
        relabel(folder)
    monkeypatch.undo()
    assert load(folder).classes_.tolist() == ["a", "b", "c", "z"]


def test_compacting_does_not_launder_a_damaged_file(folder, monkeypatch):
    monkeypatch.setattr("lnbnn.model.folder._VERIFY_UP_TO_BYTES", 0)
    file = data_file(folder, "vectors.npy")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ModelFormatError, match=r"vectors\.npy: its checksum is wrong"):
        compact(folder)
    assert file.read_bytes() == data


def test_stray_unfinished_files_and_folders_do_not_block_a_writer(folder):
    (folder / ".partial-folder" / "inside").mkdir(parents=True)
    (folder / ".partial-file").write_text("x")
    (data_file(folder, "") / ".partial-folder").mkdir()
    relabel(folder)
    assert not list(folder.rglob(".partial-*"))


def test_a_batch_left_by_a_killed_writer_is_not_taken_for_another(folder):
    (data_file(folder, "") / "added-000002").mkdir()
    with edit(folder) as model:
        model.add([features(50)], ["d"])
    assert (data_file(folder, "") / "added-000003" / "table.json").exists()
    assert load(folder).classes_.tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_modes_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        fitted().save(tmp_path / "model")
        relabel(tmp_path / "model")
        compact(tmp_path / "model")
    finally:
        os.umask(before)
    for path in [tmp_path / "model", *(tmp_path / "model").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_a_model_of_the_format_before_can_be_changed(folder):
    """Format 2 had data folders without the random part of their names, and listed none that were superseded."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    data_file(folder, "").rename(folder / "data-000001")
    files = {f"data-000001/{name.split('/', 1)[1]}": entry for name, entry in manifest["files"].items()}
    del manifest["superseded"]
    manifest |= {"format_version": 2, "data": "data-000001", "files": files}
    manifest["sha256"] = model_writer.digest_of_manifest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    relabel(folder)
    compact(folder)
    assert load(folder).classes_.tolist() == ["a", "b", "c", "z"]
    assert sum(path.is_dir() for path in folder.iterdir()) == 1


def test_a_change_that_could_not_be_read_again_is_not_made(folder):
    """A forged manifest at the last generation there can be: the next one would be refused by every reader."""
    forge_manifest(folder, generation=10**15 - 1)
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(ModelFormatError, match="the generation must be a whole number"):
        relabel(folder)
    assert (folder / "manifest.json").read_bytes() == before
    assert load(folder).classes_.tolist() == ["a", "b", "c"]


def test_a_signal_in_the_middle_of_cleaning_up_is_no_failure_of_the_disk(folder, monkeypatch):
    """``shutil.rmtree`` closes a handle twice if a signal comes in between, and hides the signal behind the error."""

    def interrupted(path, ignore_errors):
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compact(folder)
    monkeypatch.undo()
    assert state_of(folder)[3] == 2


def test_what_cannot_be_cleaned_up_is_no_failure_of_the_change(folder, monkeypatch):
    def no_answer(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(model_writer, "is_read", no_answer)
    compact(folder)
    monkeypatch.undo()
    assert sum(path.is_dir() for path in folder.iterdir()) == 2
    compact(folder)
    assert sum(path.is_dir() for path in folder.iterdir()) == 1


def test_a_model_is_discarded_whole_and_nothing_else(folder, tmp_path):
    reader = load(folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds other files"):
        discard_model(folder)
    (folder / "notes.txt").unlink()
    with edit(folder), pytest.raises(ModelInUseError):
        discard_model(folder)
    assert state_of(folder) is not None
    discard_model(folder)
    assert list(tmp_path.iterdir()) == []
    assert len(reader.images_) > 0
    with pytest.raises(ModelFormatError, match="no such model folder"):
        discard_model(folder)

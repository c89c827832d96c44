"""Atomic writes, synced to the disk where asked."""

import os
import time

import pytest

from lnbnn.files.atomic import PARTIAL, atomic_path, remove_abandoned, sync


def test_a_file_appears_at_the_end(tmp_path):
    (tmp_path / "x.txt").write_text("old")
    with atomic_path(tmp_path / "x.txt") as partial:
        partial.write_text("new")
        assert (tmp_path / "x.txt").read_text() == "old"
        assert partial.name.startswith(PARTIAL)
    assert (tmp_path / "x.txt").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


def test_a_file_that_failed_leaves_nothing(tmp_path):
    def fail():
        with atomic_path(tmp_path / "x.txt") as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_is_unfinished_may_lie_in_another_folder(tmp_path):
    (tmp_path / "unfinished").mkdir()
    with atomic_path(tmp_path / "x.txt", tmp_path / "unfinished") as partial:
        assert partial.parent == tmp_path / "unfinished"
        partial.write_text("new")
    assert (tmp_path / "x.txt").read_text() == "new"
    assert list((tmp_path / "unfinished").iterdir()) == []


def test_only_what_nobody_writes_any_more_is_abandoned(tmp_path):
    old, young, other = (tmp_path / name for name in (f"{PARTIAL}1.npz", f"{PARTIAL}2.npz", "entry.npz"))
    for path, age_s in ((old, 100.0), (young, 10.0), (other, 100.0)):
        path.write_text("x")
        os.utime(path, (time.time() - age_s,) * 2)
    remove_abandoned(tmp_path, 50.0)
    assert sorted(tmp_path.iterdir()) == sorted([young, other])
    remove_abandoned(tmp_path / "missing", 50.0)


@pytest.mark.parametrize("name", ["file", "."])
def test_sync_waits_for_the_disk(tmp_path, monkeypatch, name):
    (tmp_path / "file").write_text("x")
    waited = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: waited.append(os.readlink(f"/proc/self/fd/{handle}")) or real(handle)
    )
    sync(tmp_path / name)
    assert waited == [str(tmp_path / name)]

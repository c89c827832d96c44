"""Atomic writes, synced to the disk where asked."""

import os

import pytest

from lnbnn.files.atomic import PARTIAL, atomic_path, sync


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

"""Model folders that hold links, pipes and devices: refused at once, by readers and writers, and nothing is touched."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from forged import data_file, forge_checksums, forge_manifest
from synthetic import make_features

from lnbnn import LateFusion, LocalNBNN, edit, load
from lnbnn.errors import ModelFormatError
from lnbnn.files.regular import is_regular, not_regular, open_regular, read_regular
from lnbnn.model.changes import check_model, compact, list_images


@pytest.fixture(autouse=True)
def no_hang():
    """A read of a pipe that nobody writes to ends the test."""

    def stop(number, frame):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def features(seed):
    return make_features(np.random.default_rng(seed).integers(0, 128, (12, 8), dtype=np.uint8), seed=seed)


@pytest.fixture
def folder(tmp_path):
    model = LocalNBNN(n_neighbors=5, index="exact", n_jobs=1)
    model.fit([features(seed) for seed in range(4)], list("aabb")).save(tmp_path / "model")
    return tmp_path / "model"


def put_pipe(path):
    os.mkfifo(path)


def put_link(path):
    path.symlink_to(path.parent / "other")


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)
        server.bind(path.name)


KINDS = {"pipe": put_pipe, "link": put_link, "socket": put_socket}


def change(folder):
    with edit(folder) as model:
        model.relabel(0, "b")


@pytest.mark.parametrize("use", [load, change, compact, check_model, list_images], ids=lambda use: use.__name__)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["manifest.json", "data", "data/removed.npy", "data/table.json", "data-000009"])
def test_only_regular_files_are_opened(folder, monkeypatch, use, kind, name):
    monkeypatch.chdir(folder)
    path = folder / name.replace("data", data_file(folder, "").name, 1) if name.startswith("data") else folder / name
    if name == "data-000009":
        path = folder / name
    if path.exists():
        path.rename(path.with_name("other"))
    KINDS[kind](path)
    before = sorted(folder.rglob("*"))
    with pytest.raises(ModelFormatError, match=path.name.replace(".", r"\.")) as caught:
        use(folder)
    assert len(str(caught.value).splitlines()) == 1
    assert sorted(folder.rglob("*")) == before


def test_members_of_a_fusion_lie_inside(tmp_path, folder):
    parts = [("a", LocalNBNN(5, index="exact")), ("b", LocalNBNN(6, index="exact"))]
    LateFusion(parts).fit([features(seed) for seed in range(4)], list("aabb")).save(tmp_path / "fusion")
    member = data_file(tmp_path / "fusion", "member0")
    shutil.rmtree(member)
    member.symlink_to(folder)
    for use in (load, list_images):
        with pytest.raises(ModelFormatError, match="member0: a model holds regular files only"):
            use(tmp_path / "fusion")


def test_fusions_of_fusions_are_refused_before_they_are_opened(tmp_path):
    parts = [("a", LocalNBNN(5, index="exact")), ("b", LocalNBNN(6, index="exact"))]
    LateFusion(parts).fit([features(seed) for seed in range(4)], list("aabb")).save(tmp_path / "fusion")
    for place in range(2):
        forge_manifest(data_file(tmp_path / "fusion", f"member{place}"), method="fusion", without=["images"])
    forge_checksums(tmp_path / "fusion")
    with pytest.raises(ModelFormatError, match="member0: "):
        load(tmp_path / "fusion")


def test_the_model_folder_itself_may_be_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert len(load(tmp_path / "link").images_) == 4
    change(tmp_path / "link")
    assert load(folder).images_[0].label == "b"


def test_read_regular(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"12345")
    link.symlink_to(path)
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(path, 4)
    with pytest.raises(OSError, match="a link, which is not followed"):
        read_regular(link, 5)
    assert read_regular(link, 5, follow_link=True) == b"12345"
    for other in (tmp_path, "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(other)
    assert is_regular(path)
    assert not is_regular(link)
    assert not_regular(tmp_path) == link


def test_a_pipe_does_not_hang_the_command(folder):
    data = data_file(folder, "")
    data.rename(folder / "other")
    os.mkfifo(data)
    done = subprocess.run(
        [sys.executable, "-m", "lnbnn", "info", folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1

"""`lnbnn data`: from the publisher, from an archive in the folder, or there already."""

import hashlib
from collections import namedtuple

import pytest
from publisher import Publisher, make_archive, make_set, make_tar, pictures

from lnbnn.data import DATASETS, download, fetch
from lnbnn.data.fetch import fetch_set
from lnbnn.data.folder import read_list
from lnbnn.data.published import Archive

CONTENT = make_archive()


@pytest.fixture
def publisher(monkeypatch):
    monkeypatch.setattr(download, "_PAUSES_S", (0.0, 0.0))
    server = Publisher(CONTENT)
    yield server
    server.close()


@pytest.fixture
def tiny(publisher, monkeypatch):
    """The tiny set, under its name."""
    monkeypatch.setitem(DATASETS, "tiny", "test_fetch:TINY")
    change_tiny(monkeypatch, url=publisher.url)
    return publisher


def change_tiny(monkeypatch, **changes):
    monkeypatch.setitem(globals(), "TINY", make_set(CONTENT, **changes))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_downloaded_checked_and_unpacked(tiny, tmp_path, run_main):
    outcome = run_main("data", "tiny", tmp_path / "new" / "data")
    folder = tmp_path / "new" / "data"
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        f"{folder / 'Set'}: 2 classes, 4 images",
        f"{folder / 'tiny'}.csv: the list of them, without none",
    ]
    assert names(folder) == ["Set", "tiny.csv"]
    assert names(folder / "Set") == ["ant", "bee", "none"]
    for name, content in pictures():
        assert (folder / name).read_bytes() == content
    images = read_list(folder / "tiny.csv")
    assert images.labels == ("ant", "ant", "bee", "bee")
    assert images.paths[0] == str(folder / "Set" / "ant" / "image_0001.jpg")


def test_a_whole_set_is_left_alone(tiny, tmp_path, run_main):
    first = run_main("data", "tiny", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert run_main("data", "tiny", tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert len(tiny.asked) == 1


def test_a_set_that_is_not_whole_is_never_touched(tiny, tmp_path, run_main):
    run_main("data", "tiny", tmp_path)
    (tmp_path / "Set" / "bee" / "image_0002.jpg").write_bytes(b"")
    error = run_main("data", "tiny", tmp_path).error
    assert "expected 2 classes and 4 images of Tiny Set; got 2 and 3. Move the folder away" in error
    assert len(tiny.asked) == 1
    assert names(tmp_path / "Set" / "bee") == ["image_0001.jpg", "image_0002.jpg"]


def test_an_archive_that_lies_there_is_used_and_kept(tiny, tmp_path, run_main):
    (tmp_path / "set.zip").write_bytes(CONTENT)
    assert run_main("data", "tiny", tmp_path).code == 0
    assert tiny.asked == []
    assert names(tmp_path) == ["Set", "set.zip", "tiny.csv"]


def test_another_archive_of_the_same_pictures(tiny, tmp_path, run_main, monkeypatch):
    inner = make_tar(pictures())
    second = Archive("Set.tar.gz", len(inner), f"sha256:{hashlib.sha256(inner).hexdigest()}")
    change_tiny(monkeypatch, url=tiny.url, archives=(*TINY.archives, second))  # noqa: F821
    (tmp_path / "Set.tar.gz").write_bytes(inner)
    assert run_main("data", "tiny", tmp_path).code == 0
    assert tiny.asked == []


def test_a_wrong_archive_that_lies_there_is_refused_and_kept(tiny, tmp_path, run_main):
    (tmp_path / "set.zip").write_bytes(CONTENT[:-1] + b"?")
    assert "expected the sha256 checksum" in run_main("data", "tiny", tmp_path).error
    assert names(tmp_path) == ["set.zip"]


def test_without_a_network_one_line_says_what_to_do(tiny, tmp_path, run_main):
    tiny.close()
    error = run_main("data", "tiny", tmp_path).error
    assert "cannot be reached" in error
    assert f"By hand: fetch {tiny.url} (1 MB; its page: https://publisher.example/tiny), put it at" in error
    assert f"{tmp_path / 'set.zip'} and run the command again." in error
    assert names(tmp_path) == []


def test_not_found_says_it_too(tiny, tmp_path, run_main):
    tiny.status = 404
    error = run_main("data", "tiny", tmp_path).error
    assert "404 Not Found" in error
    assert "By hand: fetch" in error


def test_a_full_disk_is_said_before_the_download(tiny, tmp_path, run_main, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 50_000_000))
    assert "are needed on this disk; 0.1 GB are free" in run_main("data", "tiny", tmp_path).error
    assert tiny.asked == []


def test_an_archive_without_all_the_pictures_leaves_nothing_half_done(tiny, tmp_path, run_main, monkeypatch):
    change_tiny(monkeypatch, url=tiny.url, n_images=5)
    assert "expected 2 classes and 5 images of Tiny Set; got 2 and 4" in run_main("data", "tiny", tmp_path).error
    assert names(tmp_path) == ["set.zip"]  # whole and checked: not fetched again


def test_images_counted_with_the_background(tiny, tmp_path, monkeypatch):
    change_tiny(monkeypatch, url=tiny.url, n_images=6, n_background=2)
    assert len(fetch_set(TINY, tmp_path, lambda *args: None)) == 4  # noqa: F821


def test_what_a_killed_run_left_is_cleared(tiny, tmp_path, run_main):
    (tmp_path / ".unpacking-Set" / "ant").mkdir(parents=True)
    (tmp_path / ".unpacking-Set" / "ant" / "image_0009.jpg").write_bytes(b"x")
    assert run_main("data", "tiny", tmp_path).code == 0
    assert names(tmp_path) == ["Set", "tiny.csv"]


def test_unknown_name(run_main, tmp_path):
    outcome = run_main("data", "imagenet", tmp_path)
    assert outcome.code == 2
    assert "choose one of: caltech101, caltech256" in outcome.err


@pytest.mark.data
def test_caltech101_beside_the_project_is_whole(tmp_path, run_main):
    from lnbnn.data.caltech import CALTECH101
    from lnbnn.data.published import find_set
    from lnbnn.errors import DatasetError

    try:
        place = find_set(CALTECH101)
    except DatasetError as error:
        pytest.skip(str(error))
    (tmp_path / CALTECH101.folder).symlink_to(place.resolve())
    outcome = run_main("data", "caltech101", tmp_path)
    assert outcome.out.splitlines()[0] == f"{tmp_path / CALTECH101.folder}: 101 classes, 8,677 images"

"""Photos beside the model: kept by their content, found again, cleaned up, and never under a name that was sent."""

from __future__ import annotations

import hashlib
import json
import os

import pytest
from paging import bomb, picture

from lnbnn.errors import ImageReadError, LnbnnError
from lnbnn.page.photo_store import PhotoStore, photo_store_folder
from lnbnn.references import Reference


@pytest.fixture
def photo_store(tmp_path):
    made = PhotoStore(tmp_path / "model.photos")
    yield made
    made.close()


@pytest.fixture
def keep(photo_store, tmp_path):
    """``keep(content, name)``: a stored photo, by its digest."""

    def keep_it(content, name="photo.png"):
        (tmp_path / "sent").write_bytes(content)
        return photo_store.keep(tmp_path / "sent", name)

    return keep_it


def reference(digest, name="somewhere/else.png"):
    return Reference(0, name, "rows", 9, digest)


def test_it_is_beside_the_model(tmp_path):
    assert photo_store_folder(tmp_path / "my-model") == tmp_path / "my-model.photos"
    assert photo_store_folder(f"{tmp_path}/my-model/") == tmp_path / "my-model.photos"


def test_a_photo_is_kept_under_its_content(photo_store, keep, tmp_path):
    content = picture("rows", 1)
    digest = keep(content, "holiday.PNG")
    assert digest == hashlib.sha256(content).hexdigest()
    assert photo_store.path_of(digest) == tmp_path / "model.photos" / f"{digest}.png"
    assert photo_store.path_of(digest).read_bytes() == content
    assert photo_store.name_of(reference(digest)) == "holiday.PNG"
    assert photo_store.find(reference(digest)) == str(photo_store.path_of(digest))
    assert photo_store.picture(reference(digest), 256)[:3] == b"\xff\xd8\xff"
    assert keep(content, "again.jpg") == digest
    assert [path.suffix for path in (tmp_path / "model.photos").glob(f"{digest}.*")] == [".png"]


@pytest.mark.parametrize(
    "name",
    ["../../evil.png", "/etc/passwd", "a\0b.png", "..\\..\\x.exe", "x" * 5000, "con.png", "<b>.svg", "photo.png/../.."],
)
def test_no_name_that_is_sent_becomes_a_path(photo_store, keep, tmp_path, name):
    digest = keep(picture("rows", 2), name)
    there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    own = {f"model.photos/{digest}{suffix}" for suffix in (".png", ".jpg")}
    assert there - own == {
        "sent",
        f"model.photos/small/{digest}.jpg",
        "model.photos/names.jsonl",
        "model.photos/page.lock",
    }
    assert PhotoStore(tmp_path / "model.photos").name_of(reference(digest)) == name


@pytest.mark.parametrize(
    "content", [b"", b"<svg onload=alert(1)>", b"\x89PNG\r\n\x1a\n", bomb()], ids=["empty", "svg", "cut", "bomb"]
)
def test_what_is_no_picture_is_not_kept(photo_store, keep, tmp_path, content):
    with pytest.raises(ImageReadError):
        keep(content)
    left = [path.name for path in (tmp_path / "model.photos").rglob("*") if path.is_file()]
    assert left == ["page.lock"]


@pytest.mark.parametrize("digest", ["../../etc/passwd", "0" * 63, "0" * 65, "G" * 64, "", None, "0" * 64 + "\n"])
def test_a_digest_that_is_none_has_no_file(photo_store, digest):
    assert photo_store.path_of(digest) is None


def test_a_link_is_not_followed(photo_store, keep, tmp_path):
    digest = keep(picture("rows", 3))
    path = photo_store.path_of(digest)
    path.unlink()
    os.symlink("/etc/passwd", path)
    assert photo_store.path_of(digest) is None


def test_photos_elsewhere_are_shown_only_if_they_are_what_the_model_holds(tmp_path):
    content = picture("rows", 4)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(content)
    known = reference(hashlib.sha256(content).hexdigest(), str(tmp_path / "photos" / "a.png"))
    photo_store = PhotoStore(tmp_path / "model.photos")
    assert photo_store.picture(known, 256)[:2] == b"\xff\xd8"
    assert photo_store.folders_of([known]) == [str(tmp_path / "model.photos"), str(tmp_path / "photos")]
    (tmp_path / "photos" / "a.png").write_bytes(picture("rows", 5))
    assert photo_store.picture(known, 1024) is None
    assert not (tmp_path / "model.photos").exists(), "looking makes no folder"
    assert PhotoStore(tmp_path / "model.photos", [tmp_path / "other"]).find(known) is None


def test_small_copies_of_photos_elsewhere_take_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("lnbnn.page.photo_store._MAX_COPIES_BYTES", 100_000)
    photo_store = PhotoStore(tmp_path / "model.photos")
    for seed in range(12):
        content = picture("checks", seed, (300, 300))
        (tmp_path / f"{seed}.png").write_bytes(content)
        photo_store.picture(reference(hashlib.sha256(content).hexdigest(), str(tmp_path / f"{seed}.png")), 256)
    assert 0 < sum(map(len, photo_store._copies.values())) <= 100_000


def test_cleaning_leaves_what_is_needed_held_or_not_ours(photo_store, keep, tmp_path):
    needed, held, loose = (keep(picture("rows", seed)) for seed in (1, 2, 3))
    for digest in (needed, loose):
        photo_store.release(digest)
    (tmp_path / "model.photos" / "mine.jpg").write_bytes(b"mine")
    (tmp_path / "model.photos" / ".partial-0123.jpg").write_bytes(b"half")
    assert photo_store.clean({needed}) == 1
    assert [photo_store.path_of(digest) is not None for digest in (needed, held, loose)] == [True, True, False]
    assert (tmp_path / "model.photos" / "mine.jpg").exists()
    assert not (tmp_path / "model.photos" / ".partial-0123.jpg").exists()
    assert not (tmp_path / "model.photos" / "small" / f"{loose}.jpg").exists()
    photo_store.release(held)
    assert photo_store.clean({needed}) == 1


def test_one_server_at_a_time(photo_store, keep, tmp_path):
    keep(picture("rows", 1))
    with pytest.raises(LnbnnError, match="another lnbnn serve"):
        PhotoStore(tmp_path / "model.photos").open()
    photo_store.close()
    second = PhotoStore(tmp_path / "model.photos")
    second.open()
    second.close()


def test_notes_are_kept_and_damaged_ones_passed_over(photo_store, tmp_path):
    photo_store.note(fitted_on=3)
    photo_store.note(decisions={"a": "keep"})
    assert PhotoStore(tmp_path / "model.photos").notes == {"fitted_on": 3, "decisions": {"a": "keep"}}
    for damaged in (b"[1]", b"{", b"\xff", b"[" * 100_000):
        (tmp_path / "model.photos" / "notes.json").write_bytes(damaged)
        assert PhotoStore(tmp_path / "model.photos").notes == {}


def test_a_list_of_names_that_was_cut_short_is_read_up_to_there(photo_store, keep, tmp_path):
    digest = keep(picture("rows", 1), "first.png")
    with open(tmp_path / "model.photos" / "names.jsonl", "a") as file:
        file.write('\n["0000')
    other = keep(picture("rows", 2), "second.png")
    found = PhotoStore(tmp_path / "model.photos")
    assert [found.name_of(reference(one)) for one in (digest, other)] == ["first.png", "second.png"]
    assert json.loads((tmp_path / "model.photos" / "names.jsonl").read_text().splitlines()[-1]) == [other, "second.png"]

"""Files of labeled images: found where they were or where one says, and only if they are what the model holds."""

from __future__ import annotations

import hashlib
import os

import pytest
from synthetic import make_features, noise_image

from lnbnn.reading.extraction import content_digest
from lnbnn.references import Reference
from lnbnn.trust.photos import find_photo, image_digest, is_inside, read_photo

CONTENT = b"the bytes of a picture"


@pytest.fixture
def photo(tmp_path):
    """A labeled image whose file is at photos/cat/1.jpg."""
    path = tmp_path / "photos" / "cat" / "1.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return Reference(0, str(path), "cat", 5, hashlib.sha256(CONTENT).hexdigest())


def test_where_it_was(photo):
    assert read_photo(photo) == CONTENT
    assert find_photo(photo) == photo.name


def test_another_file_in_its_place_is_not_read(photo, tmp_path):
    (tmp_path / "photos" / "cat" / "1.jpg").write_bytes(CONTENT + b"!")
    assert read_photo(photo) is None
    assert read_photo(photo, [tmp_path]) is None


def test_nothing_is_known_without_a_digest(photo):
    assert read_photo(Reference(0, photo.name, "cat", 5, None)) is None


def test_gone(photo):
    os.remove(photo.name)
    assert read_photo(photo) is None
    assert find_photo(photo) is None
    assert read_photo(Reference(0, "image 0", "cat", 5, photo.digest)) is None


def test_moved_with_its_folders(photo, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    os.rename(tmp_path / "photos", tmp_path / "elsewhere" / "pictures")
    assert read_photo(photo) is None
    assert read_photo(photo, [tmp_path / "elsewhere"]) is None
    assert read_photo(photo, [tmp_path, tmp_path / "elsewhere" / "pictures"]) == CONTENT
    assert read_photo(photo, [tmp_path / "elsewhere" / "pictures" / "cat"]) == CONTENT


def test_only_inside_the_folders_if_any_are_named(photo, tmp_path):
    (tmp_path / "other").mkdir()
    assert read_photo(photo, [tmp_path / "other"]) is None
    (tmp_path / "other" / "1.jpg").symlink_to(photo.name)
    assert read_photo(photo, [tmp_path / "other"]) is None, "a link leads out of the folder"
    up = Reference(0, "../photos/cat/1.jpg", "cat", 5, photo.digest)
    assert read_photo(up, [tmp_path / "other"]) is None
    assert read_photo(photo, [tmp_path / "photos"]) == CONTENT


@pytest.mark.parametrize("start", ["/", "//"])
def test_a_name_of_another_machine_is_not_opened(photo, start):
    name = start + photo.name.lstrip("/")
    found = read_photo(Reference(0, name, "cat", 5, photo.digest))
    assert found == (CONTENT if start == "/" else None)


def test_is_inside(tmp_path):
    assert is_inside(tmp_path / "a" / "b", [tmp_path / "c", tmp_path / "a"])
    assert not is_inside(tmp_path / "ab", [tmp_path / "a"])
    assert not is_inside(tmp_path / "a", [])
    assert not is_inside("a\0b", [tmp_path])


def test_image_digest(photo, tmp_path):
    features = make_features(noise_image(3, 4))
    assert image_digest(photo.name) == photo.digest
    assert image_digest(features) == content_digest(features) != image_digest(noise_image(3, 4))
    assert image_digest(tmp_path / "missing.jpg") == ""

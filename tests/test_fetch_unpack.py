"""Unpacking: what is written, and what an evil archive cannot do."""

import gzip
import io
import tarfile

import pytest
from publisher import make_archive, make_set, make_tar, make_zip, pictures

from lnbnn.data.fetch import unpack
from lnbnn.errors import DatasetError


def unpacked(tmp_path, content, **changes):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "archive").write_bytes(content)
    target = tmp_path / "out" / "target"
    n_images = unpack(tmp_path / "in" / "archive", make_set(content, "", **changes), target, lambda *args: None)
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert n_images == len(found)
    return found


ALL = {"target" + name.removeprefix("Set") for name, _ in pictures()}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_tar_file(tmp_path, mode):
    assert unpacked(tmp_path, make_tar(pictures(), mode)) == ALL
    for name, content in pictures():
        assert (tmp_path / "out" / ("target" + name.removeprefix("Set"))).read_bytes() == content


def test_a_tar_file_in_a_zip_file(tmp_path):
    assert unpacked(tmp_path, make_archive()) == ALL


def test_names_with_a_leading_dot(tmp_path):
    assert unpacked(tmp_path, make_tar([("./" + name, content) for name, content in pictures()])) == ALL


def link(name, target, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


EVIL = [
    ("../image_0001.jpg", b"x"),
    ("Set/../../image_0001.jpg", b"x"),
    ("Set/../image_0001.jpg", b"x"),
    ("/Set/ant/image_0003.jpg", b"x"),
    ("Set//ant/image_0003.jpg", b"x"),
    ("Set/ant/../image_0003.jpg", b"x"),
    ("Set/ant/image_0003.jpg\n", b"x"),
    ("Set/ant/RENAME2", b"x"),
    ("Set/ant/greg/image_0003.jpg", b"x"),
    ("Other/ant/image_0003.jpg", b"x"),
    link("Set/ant/image_0003.jpg", "../../../secret", tarfile.SYMTYPE),
    link("Set/ant/image_0004.jpg", "/etc/passwd", tarfile.LNKTYPE),
    link("Set/bee", "/tmp", tarfile.SYMTYPE),
    link("Set/ant/image_0005.jpg", "", tarfile.FIFOTYPE),
    link("Set/ant/image_0006.jpg", "", tarfile.CHRTYPE),
]


def test_nothing_but_the_sets_pictures_is_written(tmp_path):
    assert unpacked(tmp_path, make_tar([*EVIL, *pictures()])) == ALL
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_more_than_the_set_holds_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="more than the 350,000 bytes of Tiny Set"):
        unpacked(tmp_path, make_tar(pictures()), unpacked_bytes=350_000)


def test_a_member_that_claims_to_be_huge_is_refused_unread(tmp_path):
    info = tarfile.TarInfo("Set/ant/image_0001.jpg")
    info.size = 1 << 40
    content = gzip.compress(info.tobuf() + bytes(1024))
    with pytest.raises(DatasetError, match="more than the 1,000,000 bytes"):
        unpacked(tmp_path, content)


def test_archives_that_are_none(tmp_path):
    broken = io.BytesIO(make_tar(pictures())).read(200_000)
    for number, content in enumerate([b"no archive", b"", broken, make_tar(pictures(), "w")[:150_000]]):
        place = tmp_path / str(number)
        place.mkdir()
        with pytest.raises(DatasetError, match=r"cannot be unpacked|bytes in the archive"):
            unpacked(place, content)


def test_a_zip_file_without_the_tar_file(tmp_path):
    with pytest.raises(DatasetError, match=r"expected one Set\.tar\.gz in it; got 0"):
        unpacked(tmp_path, make_zip([("a.txt", b"x")]))

"""Folders and lists of labeled images."""

from __future__ import annotations

import csv
import os

import pytest

from lnbnn.data.folder import LabeledImages, find_images, read_images, read_list, scan_folder, write_list
from lnbnn.data.splits import split_images
from lnbnn.errors import DatasetError


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def relative(root, images):
    return [os.path.relpath(path, root).replace(os.sep, "/") for path in images.paths]


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_scan_in_order_of_class_and_name(tmp_path):
    touch(tmp_path, "cat/b.jpg", "cat/a.PNG", "ant/z.jpeg", "cat/more/c.tif", "cat/more/deep/d.webp")
    images = scan_folder(tmp_path)
    assert relative(tmp_path, images) == [
        "ant/z.jpeg",
        "cat/a.PNG",
        "cat/b.jpg",
        "cat/more/c.tif",
        "cat/more/deep/d.webp",
    ]
    assert images.labels == ("ant", "cat", "cat", "cat", "cat")
    assert images.notes == ()
    assert len(images) == 5


def test_what_is_passed_over(tmp_path):
    touch(tmp_path, "cat/a.jpg", "cat/notes.txt", "cat/.hidden.jpg", ".git/x.jpg", "cat/.cache/y.jpg", "loose.jpg")
    (tmp_path / "empty").mkdir()
    touch(tmp_path, "words/readme.md")
    images = scan_folder(tmp_path)
    assert relative(tmp_path, images) == ["cat/a.jpg"]
    notes = "\n".join(images.notes)
    assert "class 'empty' has no images" in notes
    assert "class 'words' has no images" in notes
    assert "2 files that are not pictures" in notes


def test_unusual_names(tmp_path):
    names = ["a class", "-rf", "ünï 犬", "100%", "comma, quote\" and 'tick'"]
    for name in names:
        touch(tmp_path, f"{name}/x.jpg")
    images = scan_folder(tmp_path)
    assert sorted(images.labels) == sorted(names)
    assert list(images.labels) == sorted(images.labels)


def test_same_file_name_in_two_classes(tmp_path):
    touch(tmp_path, "a/1.jpg", "b/1.jpg")
    assert scan_folder(tmp_path).labels == ("a", "b")


def test_bad_folders(tmp_path):
    with pytest.raises(DatasetError, match="no such folder"):
        scan_folder(tmp_path / "missing")
    with pytest.raises(DatasetError, match="no images found; expected class folders"):
        scan_folder(tmp_path)
    touch(tmp_path, "loose.jpg")
    with pytest.raises(DatasetError, match="no images found"):
        scan_folder(tmp_path)


def test_find_images(tmp_path):
    touch(tmp_path, "a/2.jpg", "a/1.jpg", "a/x.txt", "b.jpg", "empty/x.txt")
    found, notes = find_images([tmp_path / "b.jpg", tmp_path / "a", "not-there.jpg"])
    assert notes == []
    assert found == [
        str(tmp_path / "b.jpg"),
        str(tmp_path / "a" / "1.jpg"),
        str(tmp_path / "a" / "2.jpg"),
        "not-there.jpg",
    ]
    with pytest.raises(DatasetError, match="no images in this folder"):
        find_images([tmp_path / "empty"])


# ---- lists -----------------------------------------------------------------------------------------------------------


def test_list_round_trip(tmp_path):
    for name in ("a class", "ünï 犬", 'comma, "quote"', "-x"):
        touch(tmp_path, f"photos/{name}/x 1.jpg")
    images = scan_folder(tmp_path / "photos")
    (tmp_path / "lists").mkdir()
    path = tmp_path / "lists" / "train.csv"
    write_list(path, images)
    again = read_list(path)
    assert again == images
    assert read_images(path) == images
    assert read_images(tmp_path / "photos") == images
    text = path.read_text(encoding="utf-8")
    assert text.startswith("path,label\n")
    assert str(tmp_path) not in text, "paths are relative: the list can move with its photos"


def test_list_with_a_byte_order_mark(tmp_path):
    """As spreadsheet programs write CSV."""
    path = tmp_path / "list.csv"
    path.write_text("path,label\r\nx.jpg,cat\r\n", encoding="utf-8-sig", newline="")
    assert read_list(path).labels == ("cat",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "starts with the line 'path,label'"),
        ("x.jpg,cat\n", "starts with the line 'path,label'"),
        ("path,label\n", "the list is empty"),
        ("path,label\nx.jpg\n", r"line 2: expected a path and a label; got \['x.jpg'\]"),
        ("path,label\na.jpg,a\n,cat\n", "line 3"),
        ("path,label\na.jpg,\n", "line 2"),
        ("path,label\na.jpg,a,b\n", "line 2"),
        ('path,label\n"a.jpg,a\n', "cannot be read as a list"),
    ],
)
def test_bad_lists(tmp_path, text, message):
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DatasetError, match=message):
        read_list(path)


def test_list_that_is_no_text(tmp_path):
    path = tmp_path / "list.csv"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    with pytest.raises(DatasetError, match=r"list\.csv: (cannot be read as a list|expected a CSV file)"):
        read_list(path)
    with pytest.raises(DatasetError, match="cannot be read as a list"):
        read_list(tmp_path / "missing.csv")


@pytest.mark.skipif(os.name == "nt", reason="file names are bytes on POSIX only")
def test_class_name_that_is_no_utf_8(tmp_path):
    label = os.fsdecode(b"caf\xe9")
    images = LabeledImages(tuple(f"{label}/{n}.jpg" for n in range(4)), (label,) * 4)
    train, test = split_images(images, n_train=2)
    assert len(train) == len(test) == 2
    write_list(tmp_path / "train.csv", train)
    assert read_list(tmp_path / "train.csv").labels == (label, label)


@pytest.mark.parametrize("label", ["=1+1", "-odd-", "'=x", "'tis", "+a", "@b", "\tc", "two\nlines", "re\rturn", "\rd"])
def test_a_list_keeps_every_name_and_starts_no_formula(tmp_path, label):
    images = LabeledImages((str(tmp_path / label / "1.jpg"), str(tmp_path / "x.jpg")), (label, "x"))
    write_list(tmp_path / "list.csv", images)
    assert read_list(tmp_path / "list.csv") == images
    with open(tmp_path / "list.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, strict=True))
    assert all(cell[0] not in "=+-@\t\r\n" for row in rows for cell in row)


@pytest.mark.parametrize("row", ["a\0.jpg,cat", "a.jpg,c\0at", "a.jpg,cat\0"])
def test_a_list_with_nul_is_refused(tmp_path, row):
    (tmp_path / "list.csv").write_text(f"path,label\nb.jpg,dog\n{row}\n")
    with pytest.raises(DatasetError, match=r"list.csv: line 3: expected text without NUL characters"):
        read_list(tmp_path / "list.csv")


def test_links_that_make_a_folder_its_own_class_are_named(make_photos, tmp_path):
    photos = make_photos(tmp_path / "photos")
    expected = scan_folder(photos)
    (photos / "again").symlink_to(photos)
    (photos / "dot").symlink_to(".")
    (photos / "above").symlink_to(tmp_path)
    (photos / "loop").symlink_to("loop")
    (photos / "gone").symlink_to("nowhere")
    found = scan_folder(photos)
    assert (found.paths, found.labels) == (expected.paths, expected.labels)
    names = {"again", "dot", "above", "loop", "gone"}
    assert {note.partition(":")[0] for note in found.notes} == {str(photos / name) for name in names}
    for name in ("again", "dot", "above"):
        assert any(f"{name}: a link to a folder that contains it" in note for note in found.notes)


def test_a_link_to_a_class_elsewhere_is_a_class(make_photos, tmp_path):
    photos = make_photos(tmp_path / "photos")
    (photos / "rows").rename(tmp_path / "elsewhere")
    (photos / "rows").symlink_to(tmp_path / "elsewhere")
    found = scan_folder(photos)
    assert found.labels.count("rows") == 3
    assert found.notes == ()

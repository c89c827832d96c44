"""A folder ``<class>/*.jpg``, or a CSV list of paths and labels, as labeled images."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lnbnn.errors import DatasetError
from lnbnn.escaping import guard_formula, unguard_formula
from lnbnn.files.atomic import atomic_path
from lnbnn.files.images import IMAGE_SUFFIXES
from lnbnn.params import old_names

__all__ = ["ANY_NAME", "LabeledImages", "find_images", "read_images", "read_list", "scan_folder", "write_list"]

ANY_NAME = "surrogateescape"
"""The error handler that preserves file names that are not valid UTF-8 in text files."""

_COLUMNS = ["path", "label"]

__getattr__ = old_names(__name__, LabelledImages="LabeledImages")


@dataclass(frozen=True)
class LabeledImages:
    """Paths and their labels, and notes on what was skipped (one line each)."""

    paths: tuple[str, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, places: Sequence[int], notes: tuple[str, ...] = ()) -> LabeledImages:
        """The images at these places, in their order."""
        return LabeledImages(tuple(self.paths[n] for n in places), tuple(self.labels[n] for n in places), notes)


def read_images(source: str | os.PathLike[str]) -> LabeledImages:
    """Labeled images from a folder of class folders, or from a CSV list."""
    return read_list(source) if Path(source).is_file() else scan_folder(source)


def scan_folder(folder: str | os.PathLike[str]) -> LabeledImages:
    """Every picture in ``folder/<class>/``, subfolders included, in order of class and name.

    Hidden files and folders, and files without the extension of a picture, are skipped.
    """
    root = Path(folder)
    classes, notes = _class_folders(root)
    paths: list[str] = []
    labels: list[str] = []
    n_other = 0
    for class_folder in classes:
        found, others, unreadable = _walk(class_folder)
        n_other += others
        notes += [f"{place}: cannot be opened, left out" for place in unreadable]
        if not found:
            notes.append(f"class {class_folder.name!r} has no images: left out")
        paths += found
        labels += [class_folder.name] * len(found)
    if n_other:
        notes.append(f"{n_other} file{'s' if n_other > 1 else ''} that are not pictures: left out")
    if not paths:
        raise DatasetError(
            f"{folder}: no images found; expected class folders with pictures, as {folder}/<class>/*.jpg"
        )
    return LabeledImages(tuple(paths), tuple(labels), tuple(notes))


def find_images(paths: Sequence[str | os.PathLike[str]]) -> tuple[list[str], list[str]]:
    """Files as given, folders as the pictures in them at any depth, in order; and notes on what was skipped."""
    result: list[str] = []
    notes: list[str] = []
    for path in paths:
        if Path(path).is_dir():
            found, _, unreadable = _walk(Path(path))
            notes += [f"{place}: cannot be opened, left out" for place in unreadable]
            if not found:
                raise DatasetError(f"{path}: no images in this folder; expected files such as *.jpg or *.png")
            result += found
        else:
            result.append(os.fspath(path))
    return result, notes


def read_list(path: str | os.PathLike[str]) -> LabeledImages:
    """Labeled images from a CSV file with the columns ``path`` and ``label``; paths are relative to the file.

    An apostrophe in front of what would be a spreadsheet formula (``'=cat``) is not part of the text.
    """
    base = Path(path).parent
    try:
        with open(path, newline="", encoding="utf-8-sig", errors=ANY_NAME) as file:
            rows = list(csv.reader(file, strict=True))
    except (OSError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read as a list of images ({error}).") from error
    if not rows or rows.pop(0) != _COLUMNS:
        raise DatasetError(f"{path}: expected a CSV file that starts with the line 'path,label'.")
    for number, row in enumerate(rows, start=2):
        if len(row) != 2 or not row[0] or not row[1]:
            raise DatasetError(f"{path}: line {number}: expected a path and a label; got {row}.")
        if "\0" in row[0] or "\0" in row[1]:
            raise DatasetError(f"{path}: line {number}: expected text without NUL characters; write the list again.")
    if not rows:
        raise DatasetError(f"{path}: the list is empty; expected a path and a label per line.")
    names, labels = zip(*(map(unguard_formula, row) for row in rows), strict=True)
    return LabeledImages(tuple(os.path.normpath(base / name) for name in names), labels)


def write_list(path: str | os.PathLike[str], images: LabeledImages) -> None:
    """Write a CSV list that :func:`read_list` reads; paths become relative to the file."""
    base = os.path.abspath(Path(path).parent)
    with atomic_path(path) as partial, open(partial, "w", newline="", encoding="utf-8", errors=ANY_NAME) as file:
        writer = csv.writer(file, lineterminator="\n")
        quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(_COLUMNS)
        for image, label in zip(images.paths, images.labels, strict=True):
            name = os.path.relpath(os.path.abspath(image), base)
            row = [guard_formula(name), guard_formula(label)]
            (quoting if "\r" in name + label else writer).writerow(row)  # a return alone is not quoted by itself


def _class_folders(root: Path) -> tuple[list[Path], list[str]]:
    """The class folders, in order, and notes on links that cannot be used, such as those to a parent folder."""
    found: list[Path] = []
    notes: list[str] = []
    try:
        real = os.path.realpath(root)
        for path in sorted(root.iterdir(), key=lambda path: path.name):
            if path.name.startswith("."):
                continue
            target = os.path.realpath(path) if path.is_symlink() else None
            if target is not None and not path.exists():
                notes.append(f"{path}: a broken link, left out")
            elif target is not None and os.path.commonpath([target, real]) == target:
                notes.append(f"{path}: a link to a folder that contains it, {target}: left out")
            elif path.is_dir():
                found.append(path)
        return found, notes
    except FileNotFoundError:
        raise DatasetError(f"{root}: no such folder; expected class folders with pictures in it.") from None
    except OSError as error:
        raise DatasetError(f"{root}: cannot be opened ({error.strerror}); check its permissions.") from error


def _walk(folder: Path) -> tuple[list[str], int, list[str]]:
    """Picture files below a folder, in order; the number of other files; the folders that cannot be opened."""
    found: list[str] = []
    n_other = 0
    unreadable: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unreadable.append(str(error.filename))):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        visible = sorted(name for name in files if not name.startswith("."))
        pictures = [name for name in visible if Path(name).suffix.lower() in IMAGE_SUFFIXES]
        found += [os.path.join(parent, name) for name in pictures]
        n_other += len(visible) - len(pictures)
    return found, n_other, unreadable

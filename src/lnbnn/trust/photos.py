"""The files of labeled images, looked for at the paths in the model; read only if their content is that of the
model."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from lnbnn.errors import ImageReadError
from lnbnn.files.images import open_bytes
from lnbnn.reading.extraction import ImageLike, content_digest
from lnbnn.references import Reference

__all__ = ["Folders", "find_photo", "image_digest", "is_inside", "read_photo"]

Folders = Sequence[str | os.PathLike[str]]


def image_digest(image: ImageLike) -> str:
    """The SHA-256 of an image's content, as a model keeps it; empty for a file that cannot be read."""
    if not isinstance(image, str | os.PathLike):
        return content_digest(image)
    try:
        with open_bytes(image) as data:
            return hashlib.sha256(data).hexdigest()
    except ImageReadError:
        return ""


def is_inside(path: str | os.PathLike[str], folders: Folders) -> bool:
    """Whether a path, links resolved, is in one of the folders."""
    try:
        resolved = os.path.realpath(path)
        roots = [os.path.realpath(folder) for folder in folders]
        return any(os.path.commonpath([root, resolved]) == root for root in roots)
    except ValueError:  # no path at all, or on another drive
        return False


def read_photo(image: Reference, folders: Folders = ()) -> bytes | None:
    """The content of a labeled image's file, or None if it is missing or has changed.

    It is looked for at its path or, if folders are given, only inside these: under the last parts of its path, as many
    as fit. A model may name any file, so a file whose SHA-256 is not in the model is never returned.
    """
    return next((data for _, data in _found(image, folders)), None)


def find_photo(image: Reference, folders: Folders = ()) -> str | None:
    """The path of a labeled image's file, looked for as :func:`read_photo` does."""
    return next((path for path, _ in _found(image, folders)), None)


def _found(image: Reference, folders: Folders) -> Iterator[tuple[str, bytes]]:
    for path in _candidates(image.name, folders):
        try:
            with open_bytes(path) as data:
                if image.digest is not None and hashlib.sha256(data).hexdigest() == image.digest:
                    yield path, data
        except ImageReadError:
            continue


def _candidates(name: str, folders: Folders) -> Iterator[str]:
    if not folders:
        if not name.startswith(("//", "\\\\")):  # which may name another machine
            yield name
        return
    if is_inside(name, folders):
        yield name
    parts = PurePath(name).parts
    for folder in folders:
        for first in range(len(parts)):
            path = os.path.join(folder, *parts[first:])
            if is_inside(path, [folder]):
                yield path

"""What is known of a published set of images: where its publisher keeps it, its layout, and how to read it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lnbnn.data.folder import LabeledImages, scan_folder
from lnbnn.errors import DatasetError

__all__ = ["Archive", "PublishedSet", "find_set", "load_set"]


@dataclass(frozen=True)
class Archive:
    """A file of the publisher: its name, exact size and checksum (``"sha256:..."`` or ``"md5:..."``)."""

    name: str
    n_bytes: int
    checksum: str


@dataclass(frozen=True)
class PublishedSet:
    """A published set of labeled images, ``<folder>/<class>/<image>``.

    Attributes
    ----------
    name, title : str
        The public name, and the one people know it by.
    folder : str
        The publisher's name of the folder of class folders.
    image_pattern : str
        The form of ``<class>/<image>``: whatever else is in the folder or its archive is skipped.
    background : str
        The class of pictures of no class, which is left out.
    n_classes, n_images : int
        How many there are: without the background, but for the ``n_background`` images that the publisher counts.
    page, url : str
        The publisher's page, and the address of the first of ``archives``.
    archives : tuple of Archive
        The file the publisher offers, then others that hold the same pictures.
    unpacked_bytes : int
        No more than this is written when it is unpacked.
    variable : str
        The environment variable that may hold its path.
    """

    name: str
    title: str
    folder: str
    image_pattern: str
    background: str
    n_classes: int
    n_images: int
    page: str
    url: str
    archives: tuple[Archive, ...]
    unpacked_bytes: int
    variable: str
    n_background: int = 0

    @property
    def n_without_background(self) -> int:
        """How many images its classes have."""
        return self.n_images - self.n_background


def find_set(kind: PublishedSet, path: str | os.PathLike[str] | None = None) -> Path:
    """The folder of class folders: at the path given, or that of the variable, or one beside the project."""
    places = [path] if path else [os.environ.get(kind.variable), f"../shared/data/{kind.name}"]
    for place in places:
        if place and Path(place).is_dir():
            inner = Path(place) / kind.folder
            return inner if inner.is_dir() else Path(place)
    raise DatasetError(
        f"{kind.title} is not at {path or 'any known place'}; fetch it with 'lnbnn data {kind.name} DIR' "
        f"(or from {kind.page}) and give that path, or set {kind.variable} to it."
    )


def load_set(kind: PublishedSet, path: str | os.PathLike[str] | None = None) -> LabeledImages:
    """All images of a set's classes; the background, and files that do not belong to the set, are left out."""
    folder = find_set(kind, path)
    images = scan_folder(folder)
    fits = re.compile(kind.image_pattern).fullmatch
    is_ours = [bool(fits(Path(path).relative_to(folder).as_posix())) for path in images.paths]
    kept = [n for n, label in enumerate(images.labels) if is_ours[n] and label != kind.background]
    n_classes = len({images.labels[n] for n in kept})
    if n_classes != kind.n_classes:
        raise DatasetError(f"{folder}: expected the {kind.n_classes} classes of {kind.title}; got {n_classes}.")
    notes = images.notes
    if n_others := is_ours.count(False):
        notes += (f"{n_others} picture{'s' if n_others > 1 else ''} not named as {kind.title}'s: left out",)
    if len(kept) < kind.n_without_background:
        notes += (f"a part of {kind.title}: {len(kept):,} of {kind.n_without_background:,} images",)
    return images.take(kept, notes)

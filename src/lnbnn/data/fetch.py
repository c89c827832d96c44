"""A published set on this machine: there already, from an archive that lies there, or from its publisher."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from lnbnn.data.download import Report, check_archive, download
from lnbnn.data.folder import LabelledImages, write_list
from lnbnn.data.published import PublishedSet, load_set
from lnbnn.data.unpack import unpack
from lnbnn.errors import DatasetError

__all__ = ["fetch_set"]

_SPARE_BYTES = 50_000_000  # left free on the disk


def fetch_set(kind: PublishedSet, folder: Path, report: Report) -> LabelledImages:
    """Make ``folder/<kind.folder>`` whole, and ``folder/<kind.name>.csv``, the list of its images without background.

    A whole set is left as it is; one that is not whole is refused, never touched. One of the publisher's archives in
    ``folder`` is used in place of a download. The class folders appear when all of them are there.
    """
    place = folder / kind.folder
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(kind, folder, place, report)
    _check_whole(kind, place)
    images = load_set(kind, folder)
    if not (folder / f"{kind.name}.csv").exists():
        write_list(folder / f"{kind.name}.csv", images)
    return images


def _make(kind: PublishedSet, folder: Path, place: Path, report: Report) -> None:
    known = [archive for archive in kind.archives if (folder / archive.name).exists()]
    if known:
        path = folder / known[0].name
        check_archive(path, known[0], report)
        _check_space(folder, kind.unpacked_bytes)
    else:
        part = folder / f"{kind.archives[0].name}.part"
        have = part.stat().st_size if part.exists() else 0
        _check_space(folder, kind.archives[0].n_bytes - have + kind.unpacked_bytes)
        try:
            path = download(kind.url, kind.archives[0], folder, report)
        except DatasetError as error:
            raise DatasetError(f"{error} By hand: {_by_hand(kind, folder)}") from error
    building = folder / f".unpacking-{kind.folder}"
    shutil.rmtree(building, ignore_errors=True)
    try:
        unpack(path, kind, building, report)
        _check_whole(kind, building)
        building.rename(place)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if not known:
        path.unlink()


def _check_whole(kind: PublishedSet, place: Path) -> None:
    """Raise unless all classes and images of the set are there."""
    fits = re.compile(kind.image_pattern).fullmatch
    names = [path.relative_to(place).as_posix() for path in place.glob("*/*") if path.is_file() and path.stat().st_size]
    classes = [name.split("/")[0] for name in names if fits(name)]
    n_classes = len(set(classes) - {kind.background})
    n_images = len(classes) - (0 if kind.counts_background else classes.count(kind.background))
    if (n_classes, n_images) != (kind.n_classes, kind.n_images):
        raise DatasetError(
            f"{place}: expected {kind.n_classes} classes and {kind.n_images:,} images of {kind.title}; got {n_classes} "
            f"and {n_images:,}. Move the folder away and run the command again."
        )


def _check_space(folder: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < n_bytes + _SPARE_BYTES:
        raise DatasetError(
            f"{folder}: about {n_bytes / 1e9:.1f} GB are needed on this disk; {free / 1e9:.1f} GB are free."
        )


def _by_hand(kind: PublishedSet, folder: Path) -> str:
    archive = kind.archives[0]
    return (
        f"fetch {kind.url} ({archive.n_bytes / 1e6:,.0f} MB; its page: {kind.page}), put it at "
        f"{folder / archive.name} and run the command again."
    )

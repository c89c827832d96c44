"""Make a published set available: from the folder, from an archive in it, or from its publisher.

Archives are not trusted: only files named like the set's pictures are written.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from lnbnn.data.download import check_archive, download
from lnbnn.data.folder import LabeledImages, write_list
from lnbnn.data.published import PublishedSet, load_set
from lnbnn.errors import DatasetError
from lnbnn.reading.extraction import Progress

__all__ = ["fetch_set", "unpack"]

_SPARE_BYTES = 50_000_000  # left free on the disk


def fetch_set(kind: PublishedSet, folder: Path, report: Progress) -> LabeledImages:
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


def _make(kind: PublishedSet, folder: Path, place: Path, report: Progress) -> None:
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
            raise DatasetError(
                f"{error} By hand: fetch {kind.url} ({kind.archives[0].n_bytes / 1e6:,.0f} MB; its page: {kind.page}), "
                f"put it at {folder / kind.archives[0].name} and run the command again."
            ) from error
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
    n_images = len(classes) - (0 if kind.n_background else classes.count(kind.background))
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


def unpack(path: Path, kind: PublishedSet, folder: Path, report: Progress) -> int:
    """Write the pictures of an archive to ``folder/<class>/<image>``; returns how many there were.

    ``path`` is a tar file, compressed or not, or a zip file that holds one. A member is written only if it is a plain
    file and its name is ``<kind.folder>/<class>/<image>`` in the set's own form, which no absolute path, no ``..`` and
    no link has. Everything else is skipped. More than ``kind.unpacked_bytes`` in all is refused.
    """
    fits = re.compile(kind.image_pattern).fullmatch
    n_images = n_bytes = 0
    try:
        with _open_tar(path, kind) as archive:
            for member in archive:
                n_bytes += member.size
                if n_bytes > kind.unpacked_bytes:
                    raise DatasetError(f"{path}: holds more than the {kind.unpacked_bytes:,} bytes of {kind.title}.")
                top, _, name = member.name.removeprefix("./").partition("/")
                if top != kind.folder or not fits(name) or not member.isreg():
                    continue
                _write(archive.extractfile(member), folder / name, member.size)
                n_images += 1
                report("unpacking", n_images, max(n_images, kind.n_images))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DatasetError(f"{path}: cannot be unpacked ({error}).") from error
    return n_images


@contextmanager
def _open_tar(path: Path, kind: PublishedSet) -> Iterator[tarfile.TarFile]:
    """The tar file, read as a stream; from within a zip file if that is what ``path`` is."""
    with ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(open(path, "rb"))
        if zipfile.is_zipfile(stream):
            packed = stack.enter_context(zipfile.ZipFile(stream))
            names = [name for name in packed.namelist() if Path(name).name.startswith(f"{kind.folder}.tar")]
            if len(names) != 1:
                raise DatasetError(f"{path}: expected one {kind.folder}.tar.gz in it; got {len(names)}.")
            stream = stack.enter_context(packed.open(names[0]))
        else:
            stream.seek(0)
        yield stack.enter_context(tarfile.open(fileobj=stream, mode="r|*"))


def _write(source: IO[bytes] | None, target: Path, n_bytes: int) -> None:
    assert source is not None  # a plain file has content
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "xb") as file:
        shutil.copyfileobj(source, file)
        if file.tell() != n_bytes:
            raise DatasetError(f"{target.name}: expected {n_bytes:,} bytes in the archive; got {file.tell():,}.")

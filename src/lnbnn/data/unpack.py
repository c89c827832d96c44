"""Archives of pictures, unpacked with suspicion: only what has the form of the set's pictures is ever written."""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from lnbnn.data.download import Report
from lnbnn.data.published import PublishedSet
from lnbnn.errors import DatasetError

__all__ = ["unpack"]

_BLOCK = 1 << 18


def unpack(path: Path, kind: PublishedSet, folder: Path, report: Report) -> int:
    """Write the pictures of an archive to ``folder/<class>/<image>``; returns how many there were.

    ``path`` is a tar file, compressed or not, or a zip file that holds one. A member is written only if it is a plain
    file and its name is ``<kind.folder>/<class>/<image>`` in the set's own form, which no absolute path, no ``..`` and
    no link has. Everything else is passed over. More than ``kind.unpacked_bytes`` in all is refused.
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
        while block := source.read(_BLOCK):
            file.write(block)
        if file.tell() != n_bytes:
            raise DatasetError(f"{target.name}: expected {n_bytes:,} bytes in the archive; got {file.tell():,}.")

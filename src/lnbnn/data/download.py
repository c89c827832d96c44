"""Downloads: resumed after an interruption, checked against size and checksum before they get their name."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from lnbnn.data.published import Archive
from lnbnn.errors import DatasetError
from lnbnn.reading.extraction import Progress

__all__ = ["check_archive", "download"]

_BLOCK = 1 << 18
_MEGABYTE = 1_000_000
_TIMEOUT_S = 60.0
_PAUSES_S = (1.0, 3.0, 10.0)  # before the connection is tried again after it was cut, as long as nothing comes

_log = logging.getLogger(__name__)


class _Cut(Exception):
    """The connection ended before the end of the file."""


def download(url: str, archive: Archive, folder: Path, report: Progress) -> Path:
    """Fetch ``url`` to ``folder/<archive.name>``; what has come is kept in ``<name>.part`` until it is whole.

    A part left by an earlier run is resumed if the server supports HTTP ranges, and downloaded again otherwise. A
    broken connection is retried; the count of retries starts over whenever data arrived.
    """
    target = folder / archive.name
    part = folder / f"{archive.name}.part"
    n_tries = 0
    while _size(part) != archive.n_bytes:
        before = _size(part)
        try:
            _receive(url, archive, part, report)
        except _Cut as error:
            n_tries = 1 if _size(part) > before else n_tries + 1
            if n_tries > len(_PAUSES_S):
                raise DatasetError(
                    f"{url}: the connection was cut ({error}) at {_size(part):,} of {archive.n_bytes:,} bytes, which "
                    f"are kept in {part}; run the command again to go on from there."
                ) from error
            _log.info("%s: cut at %d bytes (%s); trying again", url, _size(part), error)
            time.sleep(_PAUSES_S[n_tries - 1])
    try:
        check_archive(part, archive, report)
    except DatasetError as error:
        part.unlink()
        raise DatasetError(f"{error} What was downloaded has been removed; run the command again.") from error
    os.replace(part, target)
    return target


def check_archive(path: Path, archive: Archive, report: Progress) -> None:
    """Raise unless the file has the archive's size and checksum."""
    if _size(path) != archive.n_bytes:
        raise DatasetError(f"{path}: expected {archive.n_bytes:,} bytes; got {_size(path):,}.")
    kind, _, expected = archive.checksum.partition(":")
    digest = hashlib.new(kind, usedforsecurity=False)
    done = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            report("checking (MB)", done // _MEGABYTE, archive.n_bytes // _MEGABYTE)
    if digest.hexdigest() != expected:
        raise DatasetError(f"{path}: expected the {kind} checksum {expected}; got {digest.hexdigest()}.")


def _receive(url: str, archive: Archive, part: Path, report: Progress) -> None:
    """One connection: append to the part what it lacks, or begin it again."""
    have = _size(part)
    if have > archive.n_bytes:
        part.unlink()
        have = 0
    headers = {"User-Agent": "lnbnn", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S) as answer:
            first, total = _range_of(answer)
            if total not in (None, archive.n_bytes):
                raise DatasetError(
                    f"{url}: expected a file of {archive.n_bytes:,} bytes; the server offers one of {total:,}, so the "
                    "publisher may have changed it."
                )
            if first not in (0, have):
                raise _Cut(f"the server sent from byte {first:,}, not {have:,}")
            with open(part, "r+b" if first else "wb") as file:
                file.seek(done := first)
                while done < archive.n_bytes:
                    if not (block := answer.read(min(_BLOCK, archive.n_bytes - done))):
                        raise _Cut("it ended early")
                    file.write(block)
                    done += len(block)
                    report("downloading (MB)", done // _MEGABYTE, archive.n_bytes // _MEGABYTE)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:  # the part is no beginning of what the server has
            part.unlink()
            raise _Cut("the server has no such range") from error
        if error.code >= 500:
            raise _Cut(f"the server answered {error.code} {error.reason}") from error
        raise DatasetError(f"{url}: the server answered {error.code} {error.reason}.") from error
    except urllib.error.URLError as error:
        if have:
            raise _Cut(str(error.reason)) from error
        raise DatasetError(f"{urlsplit(url).netloc} cannot be reached ({error.reason}).") from error
    except (http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _Cut(str(error) or type(error).__name__) from error


def _range_of(answer: http.client.HTTPResponse) -> tuple[int, int | None]:
    """The first byte that is sent, and the size of the whole file where the server says it."""
    if answer.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", "").strip())
        if not found:
            raise _Cut("the server did not say which part it sends")
        return int(found[1]), None if found[2] == "*" else int(found[2])
    length = answer.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

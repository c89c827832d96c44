"""Photos sent with a question, kept for a while by content, so that they need not be sent again."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lnbnn.page.replies import Refused

__all__ = ["Uploads"]

_MOST_PHOTOS = 512
_MOST_BYTES = 1 << 30
_BLOCK = 1 << 16


class _Partial:
    """A photo that is still arriving."""

    def __init__(self, path: Path, file: BinaryIO, most: int) -> None:
        self.path, self.file, self.size, self._most = path, file, 0, most
        self.content = hashlib.sha256()

    def write(self, block: bytes) -> None:
        self.size += len(block)
        if self.size > self._most:
            raise Refused(413, f"a photo may have at most {self._most >> 20} MiB; shrink it first.")
        self.content.update(block)
        self.file.write(block)


class Uploads:
    """A temporary folder with the latest photos; the oldest that are not in use are dropped first.

    Parameters
    ----------
    photo_bytes : int
        The largest photo accepted.
    """

    def __init__(self, photo_bytes: int, *, n_photos: int = _MOST_PHOTOS, n_bytes: int = _MOST_BYTES) -> None:
        self._photo_bytes, self._n_photos, self._n_bytes = photo_bytes, n_photos, n_bytes
        self._folder = Path(tempfile.mkdtemp(prefix="lnbnn-page-"))
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._held: Counter[str] = Counter()
        self._guard = threading.Lock()

    def close(self) -> None:
        """Remove all photos."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def take(self, blocks: AsyncIterator[bytes]) -> str:
        """Receive a photo block by block; returns its digest."""
        with self._new() as photo:
            async for block in blocks:
                photo.write(block)
            return self._put(photo)

    def take_file(self, source: BinaryIO) -> str:
        """Copy a photo from an open file; returns its digest."""
        with self._new() as photo:
            while block := source.read(_BLOCK):
                photo.write(block)
            return self._put(photo)

    @contextmanager
    def _new(self) -> Iterator[_Partial]:
        path = self._folder / f"partial-{secrets.token_hex(8)}"
        try:
            with open(path, "xb") as file:
                yield _Partial(path, file, self._photo_bytes)
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _put(self, photo: _Partial) -> str:
        photo.file.flush()
        if photo.size == 0:
            raise Refused(422, "the photo is empty (0 bytes); send its content.")
        digest = photo.content.hexdigest()
        with self._guard:
            os.replace(photo.path, self._folder / digest)
            self._sizes[digest] = photo.size
            self._sizes.move_to_end(digest)
            for old in list(self._sizes):
                if len(self._sizes) <= self._n_photos and sum(self._sizes.values()) <= self._n_bytes:
                    break
                if not self._held[old] and old != digest:
                    del self._sizes[old]
                    (self._folder / old).unlink(missing_ok=True)
        return digest

    @contextmanager
    def hold(self, digest: str) -> Iterator[Path]:
        """The file of a photo, for as long as it is needed."""
        with self._guard:
            if digest not in self._sizes:
                raise Refused(404, "this photo is no longer here; send it again.")
            self._held[digest] += 1
            self._sizes.move_to_end(digest)
        try:
            yield self._folder / digest
        finally:
            with self._guard:
                self._held[digest] -= 1
                self._held += Counter()

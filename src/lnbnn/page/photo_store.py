"""The photos stored beside a model: files named by their content, thumbnails, and the notes of the page."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lnbnn.errors import LnbnnError, ModelInUseError
from lnbnn.files.atomic import PARTIAL, atomic_path, sync
from lnbnn.files.images import IMAGE_SUFFIXES, jpeg_thumbnail
from lnbnn.files.locks import Lock, write_lock
from lnbnn.files.regular import is_regular, read_regular
from lnbnn.references import Reference
from lnbnn.trust.photos import Folders, find_photo

__all__ = ["PhotoStore", "photo_store_folder"]

_KEPT = re.compile(r"([0-9a-f]{64})(\.[a-z0-9]{1,5})")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOTES, _NAMES, _LOCK, _SMALL = "notes.json", "names.jsonl", "page.lock", "small"
_MAX_NOTES_BYTES = 64 << 20
_SIDE = 256  # pixels of a small copy
_MAX_COPIES_BYTES = 64 << 20


def photo_store_folder(model: str | os.PathLike[str]) -> Path:
    """Where the photos of a model are stored: beside it, under its name."""
    target = Path(os.path.abspath(model))
    return target.with_name(f"{target.name}.photos")


class PhotoStore:
    """Photos by the SHA-256 of their content; no name from outside becomes part of a path.

    Parameters
    ----------
    folder : Path
        Created with the first photo.
    elsewhere : folders
        Where to look for photos added in other ways; by default where they were when they were added.
    """

    def __init__(self, folder: Path, elsewhere: Folders = ()) -> None:
        self.folder, self._elsewhere = folder, list(elsewhere)
        self._held: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._lock: Lock | None = None
        self._copies: dict[str, bytes] = {}
        self._copies_bytes = 0
        self._names: dict[str, str] | None = None
        self._notes: dict[str, Any] | None = None

    # ---- the folder ---------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the folder if it exists; one server at a time may use it."""
        if self.folder.is_dir():
            self._take()

    def _take(self) -> None:
        with self._guard:
            if self._lock is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                try:
                    self._lock = write_lock(self.folder / _LOCK)
                except ModelInUseError:
                    raise LnbnnError(f"{self.folder}: another lnbnn serve has this model; open its page.") from None

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # ---- photos -------------------------------------------------------------------------------------------------

    def keep(self, file: Path, name: str) -> str:
        """Copy a picture into the store, atomically, and return its digest.

        The photo stays until :meth:`release`, even if no model has it. What is not a picture raises
        ``ImageReadError``.
        """
        self._take()
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        with self._guard:
            self._held[digest] += 1
        try:
            if not self._small_file(digest).is_file():
                self._write(self._small_file(digest), lambda partial: partial.write_bytes(jpeg_thumbnail(file, _SIDE)))
            if self.path_of(digest) is None:
                suffix = os.path.splitext(name)[1].lower()
                suffix = suffix if suffix in IMAGE_SUFFIXES else ".jpg"
                self._write(self.folder / f"{digest}{suffix}", lambda partial: shutil.copyfile(file, partial))
                self._note_name(digest, name)
        except BaseException:
            self.release(digest)
            raise
        return digest

    def _write(self, target: Path, fill: Callable[[Path], object]) -> None:
        target.parent.mkdir(exist_ok=True)
        with atomic_path(target) as partial:
            fill(partial)
            sync(partial)
        sync(target.parent)

    def release(self, digest: str) -> None:
        """From now on the photo may be deleted if no model has it."""
        with self._guard:
            self._held[digest] -= 1
            self._held += Counter()

    def path_of(self, digest: str | None) -> Path | None:
        """The file of a stored photo."""
        if digest is None or not _DIGEST.fullmatch(digest):
            return None
        paths = (self.folder / f"{digest}{suffix}" for suffix in sorted(IMAGE_SUFFIXES))
        return next((path for path in paths if is_regular(path)), None)

    def find(self, image: Reference) -> str | None:
        """The file of a labeled image, here or elsewhere; None if it is missing or has changed."""
        kept = self.path_of(image.digest)
        if kept is not None:
            return str(kept)
        return find_photo(image, self._elsewhere)

    def folders_of(self, images: list[Reference]) -> list[str]:
        """The folders where the files of these images may be."""
        where = [] if self._elsewhere else [os.path.dirname(image.name) for image in images]
        return [str(self.folder), *map(str, self._elsewhere), *{folder for folder in where if _is_local(folder)}]

    def picture(self, image: Reference, side: int) -> bytes | None:
        """A labeled image as a small JPEG; None if its file is missing or has changed."""
        small = None if image.digest is None else self._small_file(image.digest)
        if side <= _SIDE and small is not None and is_regular(small):
            return small.read_bytes()
        if side <= _SIDE and image.digest in self._copies:
            return self._copies[image.digest]
        path = self.find(image)
        if path is None:
            return None
        data = jpeg_thumbnail(path, max(side, _SIDE))
        if side <= _SIDE and image.digest is not None:
            self._remember(image.digest, data)
        return data

    def _remember(self, digest: str, data: bytes) -> None:
        """Cache the thumbnail of a photo stored elsewhere; the oldest ones are dropped."""
        with self._guard:
            self._copies_bytes += len(data) - len(self._copies.pop(digest, b""))
            self._copies[digest] = data
            while self._copies_bytes > _MAX_COPIES_BYTES:
                self._copies_bytes -= len(self._copies.pop(next(iter(self._copies))))

    def _small_file(self, digest: str) -> Path:
        assert _DIGEST.fullmatch(digest)
        return self.folder / _SMALL / f"{digest}.jpg"

    def clean(self, needed: set[str]) -> int:
        """Delete partial files and the photos that are neither needed nor held; returns their number."""
        if self._lock is None:
            return 0
        n_removed = 0
        with self._guard:
            for entry in list(self.folder.iterdir()):
                found = _KEPT.fullmatch(entry.name)
                if entry.name.startswith(PARTIAL):
                    _remove(entry)
                elif found and found[1] not in needed and not self._held[found[1]]:
                    _remove(entry)
                    _remove(self._small_file(found[1]))
                    n_removed += 1
        return n_removed

    # ---- names and notes -----------------------------------------------------------------------------------------

    def name_of(self, image: Reference) -> str:
        """The name a photo was uploaded under, or that of its file."""
        if self._names is None:
            self._names = dict(self._read_names())
        return self._names.get(image.digest or "", os.path.basename(image.name))

    def _read_names(self) -> Iterator[tuple[str, str]]:
        try:
            lines = read_regular(self.folder / _NAMES, _MAX_NOTES_BYTES).decode("ascii", "replace").splitlines()
        except OSError:
            return
        for line in lines:
            with suppress(ValueError, RecursionError):  # the last may be cut short
                entry = json.loads(line)
                if isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
                    yield entry[0], entry[1]

    def _note_name(self, digest: str, name: str) -> None:
        with self._guard:
            if self._names is None:
                self._names = dict(self._read_names())
            self._names[digest] = name
            with open(self.folder / _NAMES, "a", encoding="ascii") as file:
                file.write(f"\n{json.dumps([digest, name])}")

    @property
    def notes(self) -> dict[str, Any]:
        """What the page knows about the model: on how many photos it was fitted, decisions about audit entries."""
        if self._notes is None:
            try:
                found = json.loads(read_regular(self.folder / _NOTES, _MAX_NOTES_BYTES).decode("utf-8"))
            except (OSError, ValueError, RecursionError):
                found = {}
            self._notes = found if isinstance(found, dict) else {}
        return self._notes

    def note(self, **content: Any) -> None:
        """Store notes, atomically."""
        self._take()
        self._notes = {**self.notes, **content}
        text = json.dumps(self._notes)
        self._write(self.folder / _NOTES, lambda partial: partial.write_text(text, encoding="ascii"))


def _is_local(folder: str) -> bool:
    return bool(folder) and not folder.startswith(("//", "\\\\"))


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)

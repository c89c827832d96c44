"""A model on disk: checksummed files that are never changed, and one manifest, replaced whole, that names them.

Opening and checking are here, changes in :mod:`lnbnn.model.writer`. The layout is described in
``docs/model-format.md``. Nothing in it is ever unpickled, and every size, count and path is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnbnn.errors import LnbnnError, ModelFormatError
from lnbnn.files.locks import Lock, read_lock
from lnbnn.files.regular import is_regular, not_regular, open_regular, read_regular
from lnbnn.model.manifest import check_fields, short

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "MANIFEST",
    "MAX_MANIFEST_BYTES",
    "Snapshot",
    "batch_folder",
    "check_sizes",
    "damaged_files",
    "digest_of_manifest",
    "file_digest",
    "is_model",
    "open_model",
    "read_json",
    "read_manifest",
]

FORMAT = "lnbnn-model"
FORMAT_VERSION = 3
MANIFEST = "manifest.json"

MAX_MANIFEST_BYTES = 1 << 29
"""Some 139 per image: its name, its digest, numbers. So about 3.8 million images."""

_VERIFY_UP_TO_BYTES = 1 << 26  # of all files, smallest first, that are verified on opening; `lnbnn check` verifies all
_READABLE = (2, FORMAT_VERSION)


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """A model folder as it was when opened: it stays whole while this is held, whatever a writer does."""

    folder: Path
    data: Path
    """The folder of the files that make up the model."""
    manifest: dict[str, Any]
    lock: Lock
    trust_network: bool = False
    """Whether the user allows a network outside the folder."""


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a manifest."""
    return is_regular(Path(path) / MANIFEST)


def open_model(path: str | os.PathLike[str], *, trust_network: bool = False) -> Snapshot:
    """Open a model folder for reading: manifest checked, files there and of their size, the small ones verified."""
    folder = Path(path)
    for _ in range(100):  # a writer may put a new manifest in place, and clean up, between the two steps
        before = _manifest_bytes(folder)
        manifest = _parse_manifest(folder, before)
        data = folder / manifest["data"]
        try:
            lock = read_lock(data)
        except (FileNotFoundError, NotADirectoryError):
            if _manifest_bytes(folder) == before:
                raise ModelFormatError(f"{data}: missing; {_FIT_AGAIN}") from None
            continue
        if _manifest_bytes(folder) == before:
            break
    else:
        raise LnbnnError(f"{path}: the model changes faster than it can be opened; try again.")
    check_sizes(folder, manifest["files"])
    left = _VERIFY_UP_TO_BYTES
    for name, (size, digest) in sorted(manifest["files"].items(), key=lambda item: (item[1][0], item[0])):
        left -= size
        if left < 0:
            break
        if file_digest(folder / name) != digest:
            raise ModelFormatError(f"{folder / name}: its checksum is wrong, the file is damaged; {_FIT_AGAIN}")
    return Snapshot(folder, data, manifest, lock, trust_network)


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The checked manifest of a model folder: known format and version, its checksum right, every path inside."""
    return _parse_manifest(Path(path), _manifest_bytes(Path(path)))


def _manifest_bytes(folder: Path) -> bytes:
    if not folder.exists():
        raise ModelFormatError(f"{folder}: no such model folder; make one with: lnbnn fit IMAGES_DIR {folder}")
    if not os.path.lexists(folder / MANIFEST):
        raise ModelFormatError(f"{folder}: not a model folder ({MANIFEST} is missing); make one with: lnbnn fit")
    try:
        return read_regular(folder / MANIFEST, MAX_MANIFEST_BYTES)
    except OSError as error:
        raise ModelFormatError(f"{folder / MANIFEST}: cannot be read as a model's manifest ({error}).") from error


def _parse_manifest(folder: Path, content: bytes) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(content.decode("utf-8"))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path}: cannot be read as a model's manifest ({error}).") from error
    version = manifest.get("format_version")
    if version not in _READABLE or isinstance(version, bool):
        raise ModelFormatError(
            f"{folder}: model format {short(version)}, but this lnbnn reads formats {_READABLE[0]} and "
            f"{_READABLE[1]}; use the lnbnn that wrote it, or fit the model again."
        )
    try:
        is_whole = manifest.pop("sha256", None) == digest_of_manifest(manifest)
    except RecursionError:
        is_whole = False
    if not is_whole:
        raise ModelFormatError(f"{path}: its checksum is wrong, the file is damaged; {_FIT_AGAIN}")
    check_fields(path, manifest)
    try:
        found = not_regular(folder)  # a link leads out of the folder, a pipe hangs
    except OSError as error:
        raise ModelFormatError(f"{folder}: cannot be read ({error.strerror}); check its permissions.") from error
    if found is not None:
        raise ModelFormatError(f"{found}: a model holds regular files only, no links, pipes or devices; copy it again.")
    return manifest


_FIT_AGAIN = "copy the model again, or fit it again."


def check_sizes(folder: Path, files: dict[str, list[Any]]) -> None:
    """Raise unless every file is there and of the size that the manifest states."""
    for name, (size, _) in files.items():
        file = folder / name
        found = file.stat().st_size if is_regular(file) else None
        if found != size:
            state = "missing" if found is None else f"cut short or damaged, {found} bytes instead of {size}"
            raise ModelFormatError(f"{file}: {state}; {_FIT_AGAIN}")


def damaged_files(snapshot: Snapshot, progress: Callable[[int, int], None] | None = None) -> list[str]:
    """Names of the files whose size or checksum is not what the manifest says; every byte is read."""
    files = snapshot.manifest["files"]
    damaged = []
    for done, (name, (size, digest)) in enumerate(files.items(), start=1):
        file = snapshot.folder / name
        if not is_regular(file) or file.stat().st_size != size or file_digest(file) != digest:
            damaged.append(name)
        if progress is not None:
            progress(done, len(files))
    return damaged


def read_json(path: Path) -> Any:
    """The content of a small JSON file of a model."""
    try:
        return json.loads(read_regular(path, MAX_MANIFEST_BYTES).decode("ascii"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path}: cannot be read ({error}); fit the model again.") from error


def batch_folder(data: Path, number: int) -> Path:
    """Where the features of the images added as batch ``number`` are."""
    return data / f"added-{number:06d}"


def digest_of_manifest(manifest: dict[str, Any]) -> str:
    """SHA-256 of a manifest, its own checksum left out."""
    plain = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

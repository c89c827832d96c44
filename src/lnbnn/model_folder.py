"""A model on disk: checksummed files that are never changed, and one manifest, replaced whole, that names them.

The layout is described in ``docs/model-format.md``. Nothing in it is ever unpickled, and every size, count and path is
checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnbnn.atomic import atomic_path
from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError
from lnbnn.locks import ReadLock, WriteLock, is_read
from lnbnn.manifest_fields import check_fields, short
from lnbnn.outputs import check_folder
from lnbnn.regular_files import is_regular, not_regular, open_regular, read_regular

__all__ = [
    "FORMAT_VERSION",
    "MANIFEST",
    "ModelWriter",
    "Snapshot",
    "batch_folder",
    "change_model",
    "check_target",
    "damaged_files",
    "is_model",
    "open_model",
    "read_manifest",
    "write_model",
]

FORMAT = "lnbnn-model"
FORMAT_VERSION = 2
MANIFEST = "manifest.json"
LOCK = "writer.lock"

_MAX_MANIFEST_BYTES = 1 << 27
_VERIFY_UP_TO_BYTES = 1 << 26  # of all files, smallest first, that are verified on opening; `lnbnn check` verifies all
_DATA = re.compile(r"data-\d{6,15}")
_FILE = re.compile(r"data-\d{6,15}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}){1,8}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """A model folder as it was when opened: it stays whole while this is held, whatever a writer does."""

    folder: Path
    manifest: dict[str, Any]
    lock: ReadLock
    trust_network: bool = False
    """Whether the user allows a network outside the folder."""

    @property
    def data(self) -> Path:
        """The folder of the files that make up the model."""
        return self.folder / str(self.manifest["data"])


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a manifest."""
    return is_regular(Path(path) / MANIFEST)


def open_model(path: str | os.PathLike[str], *, trust_network: bool = False) -> Snapshot:
    """Open a model folder for reading: manifest checked, files there and of their size, the small ones verified."""
    folder = Path(path)
    for _ in range(100):  # a writer may put a new manifest in place, and clean up, between the two steps
        manifest = read_manifest(folder)
        try:
            lock = ReadLock(folder / manifest["data"])
        except FileNotFoundError:
            if read_manifest(folder)["generation"] == manifest["generation"]:
                raise ModelFormatError(f"{folder / manifest['data']}: missing; {_FIT_AGAIN}") from None
            continue
        if read_manifest(folder)["data"] == manifest["data"]:
            break
    else:
        raise LnbnnError(f"{path}: the model changes faster than it can be opened; try again.")
    _check_sizes(folder, manifest["files"])
    left = _VERIFY_UP_TO_BYTES
    for name, (size, digest) in sorted(manifest["files"].items(), key=lambda item: (item[1][0], item[0])):
        left -= size
        if left < 0:
            break
        if _file_digest(folder / name) != digest:
            raise ModelFormatError(f"{folder / name}: its checksum is wrong, the file is damaged; {_FIT_AGAIN}")
    return Snapshot(folder, manifest, lock, trust_network)


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The checked manifest of a model folder: known format and version, its checksum right, every path inside."""
    folder = Path(path)
    manifest_path = folder / MANIFEST
    if not folder.exists():
        raise ModelFormatError(f"{path}: no such model folder; make one with: lnbnn fit IMAGES_DIR {path}")
    if not os.path.lexists(manifest_path):
        raise ModelFormatError(f"{path}: not a model folder ({MANIFEST} is missing); make one with: lnbnn fit")
    try:
        manifest = json.loads(read_regular(manifest_path, _MAX_MANIFEST_BYTES).decode("utf-8"))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFormatError(f"{manifest_path}: cannot be read as a model's manifest ({error}).") from error
    version = manifest.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ModelFormatError(
            f"{path}: model format {short(version)}, but this lnbnn reads format {FORMAT_VERSION}; "
            "use the lnbnn that wrote it, or fit the model again."
        )
    try:
        is_whole = manifest.pop("sha256", None) == _digest_of_manifest(manifest)
    except RecursionError:
        is_whole = False
    if not is_whole:
        raise ModelFormatError(f"{manifest_path}: its checksum is wrong, the file is damaged; {_FIT_AGAIN}")
    _check_fields(manifest_path, manifest)
    _check_entries(folder)
    return manifest


_FIT_AGAIN = "copy the model again, or fit it again."


def _check_fields(path: Path, manifest: dict[str, Any]) -> None:
    generation, files = manifest.get("generation"), manifest.get("files")
    if not isinstance(generation, int) or isinstance(generation, bool) or not 0 < generation < 10**15:
        raise ModelFormatError(f"{path}: the generation must be a whole number; got {short(generation)}.")
    data = manifest.get("data")
    if not isinstance(data, str) or _DATA.fullmatch(data) is None:
        raise ModelFormatError(f"{path}: {short(data)} is not a folder inside the model folder.")
    if not isinstance(files, dict):
        raise ModelFormatError(f"{path}: the list of files is missing; {_FIT_AGAIN}")
    for name, entry in files.items():
        if _FILE.fullmatch(name) is None or name.split("/")[0] != data:
            raise ModelFormatError(f"{path}: {short(name)} is not a path inside the model folder.")
        fits = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], int) and isinstance(entry[1], str)
        if not fits or entry[0] < 0 or _DIGEST.fullmatch(entry[1]) is None:
            raise ModelFormatError(f"{path}: expected a size and a checksum for {name!r}; got {short(entry)}.")
    check_fields(path, manifest)


def _check_entries(folder: Path) -> None:
    """Raise if anything but regular files and folders is in a model folder: a link leads out of it, a pipe hangs."""
    try:
        found = not_regular(folder)
    except OSError as error:
        raise ModelFormatError(f"{folder}: cannot be read ({error.strerror}); check its permissions.") from error
    if found is not None:
        raise ModelFormatError(f"{found}: a model holds regular files only, no links, pipes or devices; copy it again.")


def _check_sizes(folder: Path, files: dict[str, list[Any]]) -> None:
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
        if not is_regular(file) or file.stat().st_size != size or _file_digest(file) != digest:
            damaged.append(name)
        if progress is not None:
            progress(done, len(files))
    return damaged


# ---- writing --------------------------------------------------------------------------------------------------------


def check_target(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Raise unless a model can be written here: a new place, an empty folder, or a model that may be replaced.

    It is tried out: a place that cannot be written to is refused before the work, and nothing is left there.
    """
    target = Path(os.path.abspath(path))
    if os.path.exists(target) and not os.path.isdir(target):
        raise InvalidInputError(f"{path}: a file is in the way; a model is a folder, choose another name.")
    if not os.path.exists(target) or not _has_entries(target):
        if os.path.islink(target):
            raise InvalidInputError(f"{path}: a link to no model is in the way; give the folder that it leads to.")
        if os.path.ismount(target):
            raise InvalidInputError(f"{path}: a file system is mounted here; choose a folder inside it.")
        check_folder(
            target.parent / f".{target.name}.partial-12345678", shown=path
        )  # as long as what write_model makes
        return
    if not is_model(target):
        raise InvalidInputError(f"{path}: the folder holds other files; choose a new or empty folder for the model.")
    if not overwrite:
        raise InvalidInputError(f"{path}: a model is here already; choose another folder, or overwrite it (--force).")
    check_folder(target, shown=path)


def _has_entries(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError as error:
        raise InvalidInputError(f"{folder}: cannot be opened ({error.strerror}); check its permissions.") from error


def write_model(
    path: str | os.PathLike[str],
    manifest: dict[str, Any],
    write_files: Callable[[Path], None],
    *,
    overwrite: bool = False,
) -> None:
    """Write a model folder, whole or not at all.

    Parameters
    ----------
    path : path
        The folder to make. One that exists is refused, or replaced if it is a model and ``overwrite`` is given: its
        readers keep what they have opened.
    manifest : dict
        What describes the model; format, version, generation and the list of files are added here.
    write_files : callable
        Called with the folder to write all other files into.
    """
    check_target(path, overwrite=overwrite)
    target = Path(os.path.abspath(path))
    if is_model(target):
        with change_model(target, repair=True) as writer:
            writer.write_data(write_files)
            writer.commit(manifest)
        return
    partial: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
        hold = ReadLock(partial)
        writer = ModelWriter(partial, {"generation": 0, "files": {}})
        writer.write_data(write_files)
        writer.commit(manifest)
        partial.chmod(0o755)
        partial.rename(target)
        _sync(target.parent)
        hold.close()
    except OSError as error:
        raise _not_written(path, error, "written") from error
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial, ignore_errors=True)


class ModelWriter:
    """The one who may change a model folder: writes new files beside the old, then commits a manifest that names them.

    Nothing that a manifest names is ever changed; until :meth:`commit` the model is what it was.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.generation = int(manifest["generation"]) + 1
        self._data: str | None = manifest.get("data")
        self._files: dict[str, list[Any]] = dict(manifest["files"])
        self._new: list[Path] = []

    def write_data(self, write_files: Callable[[Path], None]) -> None:
        """Write all files of the model anew."""
        self._data, self._files = f"data-{self.generation:06d}", {}
        self._write(self.folder / self._data, write_files)

    def write_batch(self, write_files: Callable[[Path], None]) -> int:
        """Write files of added images; returns the number their folder goes by."""
        self._write(batch_folder(self.folder / str(self._data), self.generation), write_files)
        return self.generation

    def commit(self, manifest: dict[str, Any]) -> None:
        """Make the model what the manifest says: the step that is done at once or not at all."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "generation": self.generation,
            "data": self._data,
            **{name: value for name, value in manifest.items() if name not in _OWN_FIELDS},
            "files": self._files,
        }
        content["sha256"] = _digest_of_manifest(content)
        text = json.dumps(content, separators=(",", ":")).encode("ascii")
        if len(text) > _MAX_MANIFEST_BYTES:
            raise InvalidInputError(f"{self.folder}: a model's list of images may take {_MAX_MANIFEST_BYTES} bytes.")
        with atomic_path(self.folder / MANIFEST) as partial:
            partial.write_bytes(text)
            _sync(partial)
        self._new = []
        _sync(self.folder)
        del content["sha256"]
        self.manifest = content
        self.generation += 1

    def _write(self, folder: Path, write_files: Callable[[Path], None]) -> None:
        folder.mkdir()
        self._new.append(folder)
        write_files(folder)
        for file in sorted(folder.rglob("*")):
            _sync(file)
            if file.is_file():
                name = file.relative_to(self.folder).as_posix()
                self._files[name] = [file.stat().st_size, _file_digest(file)]
        _sync(folder)
        _sync(folder.parent)

    def drop_new(self) -> None:
        """Remove what was written since the last commit."""
        for folder in self._new:
            shutil.rmtree(folder, ignore_errors=True)
        self._new = []

    def clean(self) -> None:
        """Remove what no manifest names: leftovers of writers that died, and old files that nobody reads."""
        live = self.manifest["data"]
        batches = {name.split("/")[1] for name in self.manifest["files"] if name.count("/") > 1}
        for entry in self.folder.iterdir():
            if entry.name.startswith(".partial-"):
                entry.unlink(missing_ok=True)
            elif _DATA.fullmatch(entry.name) and entry.name != live and not is_read(entry):
                shutil.rmtree(entry, ignore_errors=True)
        with suppress(FileNotFoundError):
            for entry in (self.folder / live).iterdir():
                if _BATCH.fullmatch(entry.name) and entry.name not in batches:
                    shutil.rmtree(entry, ignore_errors=True)


_OWN_FIELDS = {"format", "format_version", "generation", "data", "files", "sha256"}
_BATCH = re.compile(r"added-\d{6,15}")


def batch_folder(data: Path, number: int) -> Path:
    """Where the features of images added in generation ``number`` are."""
    return data / f"added-{number:06d}"


@contextmanager
def change_model(path: str | os.PathLike[str], *, repair: bool = False) -> Iterator[ModelWriter]:
    """The writer of a model folder, of one process at a time; what it did not commit is removed again.

    With ``repair`` the model may be damaged: all of it is going to be replaced.
    """
    folder = Path(os.path.abspath(path))
    manifest = None if repair else read_manifest(folder)
    try:
        with WriteLock(folder / LOCK):
            try:
                manifest = read_manifest(folder)  # again: it cannot change any more
            except ModelFormatError:
                if not repair:
                    raise
                manifest = {"generation": _last_generation(folder), "data": "", "files": {}}
            writer = ModelWriter(folder, manifest)
            writer.clean()
            try:
                yield writer
            finally:
                writer.drop_new()
                writer.clean()
    except LnbnnError:
        raise
    except OSError as error:
        raise _not_written(path, error, "changed") from error


def _last_generation(folder: Path) -> int:
    found = [int(entry.name.removeprefix("data-")) for entry in folder.iterdir() if _DATA.fullmatch(entry.name)]
    return max(found, default=0)


def _remove_abandoned(target: Path) -> None:
    """Remove folders that a writer of this model left when it was killed."""
    for entry in target.parent.glob(f".{_glob_escape(target.name)}.partial-*"):
        if entry.is_dir() and not is_read(entry):
            shutil.rmtree(entry, ignore_errors=True)


def _glob_escape(name: str) -> str:
    """A name in which nothing stands for anything else in a glob pattern."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _not_written(path: str | os.PathLike[str], error: OSError, what: str) -> LnbnnError:
    return LnbnnError(f"{path}: the model cannot be {what} ({error.strerror or error}); nothing was changed.")


def _digest_of_manifest(manifest: dict[str, Any]) -> str:
    plain = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _file_digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

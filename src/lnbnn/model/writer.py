"""Changes to a model folder: new files beside the old ones, then one rename of the manifest makes them the model.

The manifest on the disk is the only truth. What may be removed, and what an error message may claim, is decided by
reading it, never by what this process remembers: a signal or an I/O error can strike after any system call.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError
from lnbnn.files.atomic import PARTIAL, atomic_path, sync
from lnbnn.files.locks import is_read, read_lock, write_lock
from lnbnn.files.outputs import check_folder
from lnbnn.indexes.milvus_state import let_go
from lnbnn.model.folder import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    batch_folder,
    check_sizes,
    digest_of_manifest,
    file_digest,
    is_model,
    read_manifest,
)
from lnbnn.model.manifest import DATA_NAME, check_fields

__all__ = ["ModelWriter", "change_model", "check_images", "check_target", "discard_model", "write_model"]

LOCK = "writer.lock"

_ROW_BYTES = len('[0,"",0,1,"",0],') + 64  # of an image in the manifest, at least; its name comes on top
_OWN_FIELDS = {"format", "format_version", "generation", "data", "superseded", "files", "sha256"}


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
        check_folder(target.parent / f".{target.name}.partial-{'x' * 16}", shown=path)  # what write_model makes
        return
    if not is_model(target):
        raise InvalidInputError(f"{path}: the folder holds other files; choose a new or empty folder for the model.")
    if not overwrite:
        raise InvalidInputError(f"{path}: a model is here already; choose another folder, or overwrite it (--force).")
    check_folder(target, shown=path)


def check_images(path: str | os.PathLike[str], names: Sequence[str | os.PathLike[str]]) -> None:
    """Raise if a model cannot list images of these names: before they are read, rather than after."""
    if sum(_ROW_BYTES + len(os.fspath(name)) for name in names) > MAX_MANIFEST_BYTES:
        raise InvalidInputError(_too_many(path, len(names)))


def _too_many(path: str | os.PathLike[str], n_images: int) -> str:
    return (
        f"{path}: a model's list of images may take {MAX_MANIFEST_BYTES:,} bytes; got {n_images:,} images, which take "
        "more: divide them over several models."
    )


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
    partial = target.with_name(f".{target.name}{PARTIAL}{secrets.token_hex(8)}")
    try:
        made = _make_parents(target)
        _remove_abandoned(target)
        partial.mkdir()
        hold = read_lock(partial)
        writer = ModelWriter(partial, {"generation": 0, "files": {}})
        writer.write_data(write_files)
        writer.commit(manifest)
        partial.rename(target)
        for folder in (target.parent, *made):
            sync(folder)
        hold.close()
    except OSError as error:
        reason = error.strerror or error
        if is_model(target):
            raise LnbnnError(f"{path}: the model is there, but may not survive a power cut ({reason}).") from error
        raise LnbnnError(f"{path}: the model cannot be written ({reason}); nothing was changed.") from error
    finally:
        _remove_data(partial, partial)


class ModelWriter:
    """The one who may change a model folder; until :meth:`commit` the model is what it was.

    Nothing that a manifest names is ever changed. Names of data folders never repeat.

    Parameters
    ----------
    folder : Path
    manifest : dict
        That of the model as it is.
    replaces_all : bool
        Whether data folders that no manifest named go too when the model is written again.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], *, replaces_all: bool = False) -> None:
        self.folder = folder
        self.replaces_all = replaces_all
        self.manifest = manifest
        self.generation = int(manifest["generation"]) + 1
        self._data: str | None = manifest.get("data")
        self._files: dict[str, list[Any]] = dict(manifest["files"])
        self._new: list[Path] = []
        self._is_durable = False

    def write_data(self, write_files: Callable[[Path], None]) -> None:
        """Write all files of the model again, into a new data folder."""
        name = f"data-{self.generation:06d}-{secrets.token_hex(8)}"
        self._files = self._write(self.folder / name, write_files)
        self._data = name

    def write_batch(self, write_files: Callable[[Path], None]) -> int:
        """Write files of added images; returns the number their folder goes by."""
        data, number = self.folder / str(self._data), self.generation
        while os.path.lexists(batch_folder(data, number)):  # of a writer that was killed
            number += 1
        self._files |= self._write(batch_folder(data, number), write_files)
        return number

    def commit(self, manifest: dict[str, Any]) -> None:
        """Make the model what the manifest says: the step that is done at once or not at all."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "generation": self.generation,
            "data": self._data,
            **{name: value for name, value in manifest.items() if name not in _OWN_FIELDS},
            "superseded": self._superseded(),
            "files": self._files,
        }
        check_fields(self.folder / MANIFEST, content)  # what could not be read again is not written
        content["sha256"] = digest_of_manifest(content)
        text = json.dumps(content, separators=(",", ":")).encode("ascii")
        if len(text) > MAX_MANIFEST_BYTES:
            raise InvalidInputError(_too_many(self.folder, len(content.get("images", ()))))
        self._is_durable = False
        with atomic_path(self.folder / MANIFEST) as partial:
            partial.write_bytes(text)
            sync(partial)
        sync(self.folder)
        self._is_durable = True
        self._new = []
        del content["sha256"]
        self.manifest = content
        self.generation += 1

    def _superseded(self) -> list[str]:
        """Data folders to be removed once nobody reads them: those that the manifests before this one named.

        Others are left alone, for they may be the data of a manifest that is still to come, from a backup or another
        machine; only a writer that replaces all there is takes them too.
        """
        there = [name for name in _data_names(self.folder) if name != self._data]
        if self.replaces_all and self._data != self.manifest.get("data"):
            return sorted(there)
        named = {str(self.manifest.get("data")), *map(str, self.manifest.get("superseded", ()))}
        return sorted(name for name in there if name in named)

    def _write(self, target: Path, write_files: Callable[[Path], None]) -> dict[str, list[Any]]:
        """Write a folder that appears whole; returns its files as the manifest lists them."""
        partial = target.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
        self._new += [partial, target]
        partial.mkdir()
        write_files(partial)
        files = {}
        for file in sorted(partial.rglob("*")):
            sync(file)
            if file.is_file():
                name = (target / file.relative_to(partial)).relative_to(self.folder).as_posix()
                files[name] = [file.stat().st_size, file_digest(file)]
        sync(partial)
        partial.rename(target)
        sync(target.parent)
        return files

    def remove_unfinished(self) -> None:
        """Remove what a writer left under a name that no manifest can hold."""
        for folder in (self.folder, self.folder / str(self._data)):
            with suppress(OSError):
                for entry in folder.iterdir():
                    if entry.name.startswith(PARTIAL):
                        _remove_data(entry, self.folder)

    def clean(self) -> None:
        """Remove what this writer wrote and did not commit, and what its commit replaced and nobody reads.

        Only what the manifest on the disk does not name, and only if all that it names is there.
        """
        self.remove_unfinished()
        try:
            manifest = read_manifest(self.folder)
            check_sizes(self.folder, manifest["files"])
        except (LnbnnError, OSError):
            return  # the next writer sees to it
        live = self.folder / manifest["data"]
        named = {live, *((self.folder / name).parent for name in manifest["files"])}
        for folder in self._new:
            if folder not in named:
                _remove_data(folder, self.folder)
        if not self._is_durable:  # a power cut could still bring back the manifest before this one
            return
        for name in manifest.get("superseded", ()):
            folder = self.folder / name
            if folder != live and folder.is_dir() and not is_read(folder):
                _remove_data(folder, self.folder)


@contextmanager
def change_model(
    path: str | os.PathLike[str], *, repair: bool = False, replaces_all: bool = False
) -> Iterator[ModelWriter]:
    """The writer of a model folder, of one process at a time; what it did not commit is removed again.

    Parameters
    ----------
    path : path
    repair : bool
        The model may be damaged: all of it is going to be replaced.
    replaces_all : bool
        As in :class:`ModelWriter`; implied by ``repair``.
    """
    folder = Path(os.path.abspath(path))
    if not repair:
        read_manifest(folder)
    before = ""
    try:
        with write_lock(folder / LOCK):
            before = _state(folder)
            try:
                manifest = read_manifest(folder)
                if not repair:
                    check_sizes(folder, manifest["files"])
            except ModelFormatError:
                if not repair:
                    raise
                manifest = {"generation": _last_generation(folder), "data": "", "files": {}}
            writer = ModelWriter(folder, manifest, replaces_all=repair or replaces_all)
            writer.remove_unfinished()
            try:
                yield writer
            finally:
                with suppress(OSError):  # what cannot be removed now is removed later; it is no failure of the change
                    writer.clean()
    except LnbnnError:
        raise
    except OSError as error:
        raise _not_changed(folder, path, error, before) from error


def discard_model(path: str | os.PathLike[str]) -> None:
    """Remove a model folder, at once or not at all; files that no model has are refused."""
    folder = Path(os.path.abspath(path))
    with change_model(folder):
        for entry in folder.iterdir():
            if entry.name not in (MANIFEST, LOCK) and not DATA_NAME.fullmatch(entry.name):
                raise InvalidInputError(f"{path}: the folder holds other files than the model's; remove it by hand.")
        gone = folder.with_name(f".{folder.name}{PARTIAL}{secrets.token_hex(8)}")
        folder.rename(gone)
        sync(folder.parent)
    _remove_data(gone, gone)


def _not_changed(folder: Path, path: str | os.PathLike[str], error: OSError, before: str) -> LnbnnError:
    """What is true of the model after an I/O error; ``before`` is its state when the change began, "" if it did not."""
    reason = error.strerror or str(error)
    now = _state(folder)
    if before == "" or (before == now != _UNREADABLE):
        return LnbnnError(f"{path}: the model cannot be changed ({reason}); nothing was changed.")
    if now == _UNREADABLE:
        return LnbnnError(f"{path}: an error while the model was changed ({reason}); run lnbnn check on it.")
    return LnbnnError(
        f"{path}: the model was changed, but the disk reported an error ({reason}) and the change may not survive a "
        "power cut; run lnbnn check on it."
    )


_UNREADABLE = "unreadable"


def _state(folder: Path) -> str:
    """What tells one state of a model folder from another."""
    try:
        return file_digest(folder / MANIFEST)
    except OSError:
        return _UNREADABLE


def _data_names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if DATA_NAME.fullmatch(entry.name)]


def _last_generation(folder: Path) -> int:
    return max((int(name.split("-")[1]) for name in _data_names(folder)), default=0)


def _make_parents(target: Path) -> list[Path]:
    """Make the folders above the target; returns the folders in which those that are new have an entry."""
    missing = [folder for folder in target.parents if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    return [folder.parent for folder in missing]


def _remove_abandoned(target: Path) -> None:
    """Remove folders that a writer of this model left when it was killed."""
    for entry in target.parent.glob(f".{_glob_escape(target.name)}{PARTIAL}*"):
        if entry.is_dir() and not entry.is_symlink() and not is_read(entry):
            _remove_data(entry, entry)


def _glob_escape(name: str) -> str:
    """A name in which nothing stands for anything else in a glob pattern."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _remove_data(path: Path, home: Path) -> None:
    """Remove files of a model with what they stand for elsewhere; they stay where that cannot be let go now."""
    if let_go(path, home):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file or a folder; what cannot be removed is left."""
    if path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path, ignore_errors=True)
        except OSError as error:  # it closes a handle twice if a signal comes in between: the signal is what counts
            if error.__context__ is not None and not isinstance(error.__context__, Exception):
                raise error.__context__ from None
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)

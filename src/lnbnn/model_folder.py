"""A model on disk: a folder with a versioned JSON manifest and plain array files, written whole or not at all.

The layout is described in ``docs/model-format.md``. Nothing in it is ever unpickled, and every size and path is
checked before it is used.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError

__all__ = ["FORMAT_VERSION", "MANIFEST", "check_target", "is_model", "read_manifest", "write_model"]

FORMAT = "lnbnn-model"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 1 << 28


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a manifest."""
    return (Path(path) / MANIFEST).is_file()


def write_model(
    path: str | os.PathLike[str],
    manifest: dict[str, Any],
    write_files: Callable[[Path], None],
    *,
    overwrite: bool = False,
) -> None:
    """Write a model folder beside its final place and rename it there.

    Parameters
    ----------
    path : path
        The folder to make. One that exists is refused, or replaced if it is a model and ``overwrite`` is given.
    manifest : dict
        What describes the model; format, version and the list of files are added here.
    write_files : callable
        Called with the folder to write all other files into.
    """
    check_target(path, overwrite=overwrite)
    target = Path(os.path.abspath(path))
    partial: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
        write_files(partial)
        files = {
            file.relative_to(partial).as_posix(): file.stat().st_size
            for file in sorted(partial.rglob("*"))
            if file.is_file()
        }
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **manifest, "files": files}
        (partial / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.chmod(0o755)
        _move_into_place(partial, target)
    except OSError as error:
        raise LnbnnError(
            f"{path}: the model cannot be written ({error.strerror or error}); nothing was changed."
        ) from error
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial, ignore_errors=True)


def check_target(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Raise unless a model may be written here: a new place, an empty folder, or a model that may be replaced."""
    target = Path(path)
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidInputError(f"{path}: a file is in the way; a model is a folder, choose another name.")
    if not any(target.iterdir()):
        return
    if not is_model(target):
        raise InvalidInputError(f"{path}: the folder holds other files; choose a new or empty folder for the model.")
    if not overwrite:
        raise InvalidInputError(f"{path}: a model is here already; choose another folder, or overwrite it (--force).")


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The checked manifest of a model folder: known format and version, every listed file there and of its size."""
    folder = Path(path)
    manifest_path = folder / MANIFEST
    if not folder.exists():
        raise ModelFormatError(f"{path}: no such model folder; make one with: lnbnn fit IMAGES_DIR {path}")
    if not manifest_path.is_file():
        raise ModelFormatError(f"{path}: not a model folder ({MANIFEST} is missing); make one with: lnbnn fit")
    try:
        if manifest_path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise ValueError("it is too large")
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFormatError(f"{manifest_path}: cannot be read as a model's manifest ({error}).") from error
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        raise ModelFormatError(
            f"{path}: model format {version!r}, but this lnbnn reads format {FORMAT_VERSION}; "
            "use the lnbnn that wrote it, or fit the model again."
        )
    _check_files(folder, manifest.get("files"))
    return manifest


def _check_files(folder: Path, files: Any) -> None:
    if not isinstance(files, dict):
        raise ModelFormatError(f"{folder / MANIFEST}: the list of files is missing; fit the model again.")
    for name, size in files.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts or not isinstance(size, int):
            raise ModelFormatError(f"{folder / MANIFEST}: {name!r} is not a path inside the model folder.")
        file = folder / relative
        found = file.stat().st_size if file.is_file() else None
        if found != size:
            state = "missing" if found is None else f"{found} bytes instead of {size}"
            raise ModelFormatError(f"{file}: {state}; the model is incomplete, fit it again.")


def _move_into_place(partial: Path, target: Path) -> None:
    if not target.exists():
        partial.rename(target)
        return
    retired = Path(tempfile.mkdtemp(prefix=f".{target.name}.old-", dir=target.parent))
    try:
        target.rename(retired / target.name)
        partial.rename(target)
    except BaseException:
        if (retired / target.name).exists() and not target.exists():
            (retired / target.name).rename(target)
        raise
    finally:
        if target.exists():
            shutil.rmtree(retired, ignore_errors=True)

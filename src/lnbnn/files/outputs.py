"""Output paths, checked before a long job rather than after it."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from lnbnn.errors import InvalidInputError
from lnbnn.files.atomic import PARTIAL

__all__ = ["check_file", "check_folder"]


def check_folder(path: str | os.PathLike[str], *, shown: str | os.PathLike[str] | None = None) -> None:
    """Raise unless files can be written into a folder, which need not exist yet; leaves nothing behind.

    The missing part of the path is created for a moment inside a hidden folder beside it. ``shown`` is the name of the
    folder in messages.
    """
    there, missing = Path(os.path.abspath(path)), []
    while not os.path.lexists(there) and there != there.parent:
        missing.append(there.name)
        there = there.parent
    try:
        if not there.is_dir():
            what = "a broken link" if there.is_symlink() and not there.exists() else "not a folder"
            raise NotADirectoryError(errno.ENOTDIR, f"{there} is {what}")
        with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=there) as probe:
            os.makedirs(Path(probe, *reversed(missing)), exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: no path at all
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(
            f"{path if shown is None else shown}: cannot be written ({reason}); choose another place."
        ) from error


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise unless a file can be written here, a new one or in place of a file; its folder must be there."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path) and not os.path.isfile(path):
        what = "a folder" if os.path.isdir(path) else "no regular file"
        raise InvalidInputError(f"{path}: cannot be written (it is {what}); choose another name.")
    if not os.path.isdir(folder):
        raise InvalidInputError(f"{path}: cannot be written (no folder {folder}); make it first.")
    check_folder(folder, shown=path)

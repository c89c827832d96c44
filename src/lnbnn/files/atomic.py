"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["PARTIAL", "atomic_path", "remove_abandoned", "sync"]

PARTIAL = ".partial-"
"""What the name of an unfinished file or folder starts with."""


@contextmanager
def atomic_path(path: str | os.PathLike[str], folder: Path | None = None) -> Iterator[Path]:
    """A temporary path to write to; renamed to ``path`` at the end, removed if anything goes wrong.

    It is beside ``path``, or in a folder of the same file system.
    """
    target = Path(path)
    partial = (target.parent if folder is None else folder) / f"{PARTIAL}{secrets.token_hex(8)}{target.suffix}"
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield partial
        os.replace(partial, target)
    finally:
        with suppress(OSError):  # one that cannot be removed is of no harm
            partial.unlink(missing_ok=True)


def remove_abandoned(folder: Path, older_than_s: float) -> None:
    """Remove unfinished files that nobody can be writing any more: what a killed process leaves."""
    for partial in folder.glob(f"{PARTIAL}*"):
        with suppress(OSError):  # another process removes it too
            if time.time() - partial.stat().st_mtime > older_than_s:
                partial.unlink()


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

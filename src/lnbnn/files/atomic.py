"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["PARTIAL", "atomic_path", "sync"]

PARTIAL = ".partial-"
"""What the name of an unfinished file or folder starts with."""


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to; renamed to it at the end, removed if anything goes wrong."""
    target = Path(path)
    partial = target.with_name(f"{PARTIAL}{secrets.token_hex(8)}{target.suffix}")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield partial
        os.replace(partial, target)
    finally:
        with suppress(OSError):  # one that cannot be removed is of no harm
            partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_path"]

_UMASK = os.umask(0)  # the mask can only be read by setting it, which is safe here, before any thread
os.umask(_UMASK)


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to; renamed to it at the end, removed if anything goes wrong."""
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=".partial-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o666 & ~_UMASK)  # a temporary file is private; the finished one is like any other
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)

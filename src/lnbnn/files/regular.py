"""Read files from others: regular ones only, no links, pipes or devices."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

__all__ = ["is_regular", "not_regular", "open_regular", "read_regular"]

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: str | os.PathLike[str], *, follow_link: bool = False) -> io.BufferedReader:
    """Open a regular file for reading; anything else is an ``OSError`` at once.

    A path whose last part is a link is refused too, unless ``follow_link`` says that the user named it.
    """
    try:
        handle = os.open(path, _FLAGS | (0 if follow_link else getattr(os, "O_NOFOLLOW", 0)))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, which is not followed", os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return os.fdopen(handle, "rb")


def read_regular(path: str | os.PathLike[str], max_bytes: int, *, follow_link: bool = False) -> bytes:
    """The content of a regular file of at most so many bytes; raises as :func:`open_regular` does."""
    with open_regular(path, follow_link=follow_link) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", os.fspath(path))
        return file.read(size)


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file is there; a link to one is not."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def not_regular(folder: str | os.PathLike[str]) -> Path | None:
    """The first entry below a folder that is neither a regular file nor a folder; None if there is none.

    What disappears in the meantime is skipped.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                        return Path(entry.path)
        except FileNotFoundError:
            continue
    return None

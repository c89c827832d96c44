"""Locks between processes; a lock is released when its process ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

try:
    import fcntl
except ImportError:  # not on Windows: models can be read there, and not be changed
    fcntl = None  # type: ignore[assignment]

from lnbnn.errors import LnbnnError, ModelInUseError

__all__ = ["Lock", "is_read", "read_lock", "write_lock"]

# A folder; anything else of that name, a pipe or a link too, is refused at once.
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Lock:
    """A handle of a file or folder; what is locked by it is free again once it is closed, or the process ends.

    Used as ``with write_lock(path):``, or closed by hand; a signal may end ``with`` before its block begins, so the
    lock goes with the object too.
    """

    handle: int | None = None  # of one that could not be opened, too

    def close(self) -> None:
        """Let go."""
        handle, self.handle = self.handle, None
        if handle is not None:
            os.close(handle)

    __del__ = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lock(folder: Path) -> Lock:
    """Mark a folder as being read, so that it is not removed."""
    lock = Lock()
    lock.handle = os.open(folder, _FOLDER)
    if fcntl is not None:
        try:
            fcntl.flock(lock.handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # it is being removed
            lock.close()
            raise FileNotFoundError(folder) from None
        except OSError:  # a file system without locks: reading goes on as before there were any
            pass
    return lock


def write_lock(path: Path) -> Lock:
    """An exclusive lock to change a folder; a second process gets an error at once.

    The file stays; the lock is released when the process ends, however it ends.
    """
    if fcntl is None:
        raise LnbnnError(f"{path.parent}: models can be changed only on systems with flock (Linux, macOS).")
    lock = Lock()
    lock.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock.handle, 0)
        os.pwrite(lock.handle, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        holder = os.read(lock.handle, 32).decode("ascii", "replace").strip()
        lock.close()
        raise ModelInUseError(
            f"{path.parent}: another process{f' ({holder})' if holder.isdigit() else ''} is changing this "
            "model; try again when it is done."
        ) from None
    except BaseException:
        lock.close()
        raise
    return lock


def is_read(folder: Path) -> bool:
    """Whether someone holds a :func:`read_lock` on the folder."""
    handle = os.open(folder, _FOLDER)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    finally:
        os.close(handle)
    return False

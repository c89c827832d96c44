"""Locks between processes that die with the process that holds them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

try:
    import fcntl
except ImportError:  # not on Windows: models can be read there, and not be changed
    fcntl = None  # type: ignore[assignment]

from lnbnn.errors import LnbnnError, ModelInUseError

__all__ = ["ReadLock", "WriteLock", "is_read"]

# A folder; anything else of that name, a pipe or a link too, is refused at once.
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class _Lock:
    """A handle of a file or folder; what is locked by it is free again once it is closed, or the process ends."""

    _handle: int | None = None  # of one that could not be opened, too

    def close(self) -> None:
        """Let go."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    __del__ = close


class ReadLock(_Lock):
    """Holds a folder: who wants to remove it sees that someone reads it.

    Released by :meth:`close`, or with the object.
    """

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder, _FOLDER)
        if fcntl is not None:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:  # it is being removed
                self.close()
                raise FileNotFoundError(folder) from None
            except OSError:  # a file system without locks: reading goes on as before there were any
                pass


class WriteLock(_Lock):
    """The right to change a folder, of one process at a time; another that asks gets an error at once.

    Used as ``with WriteLock(path):``; a signal may end ``with`` before its block begins, so it goes with the object
    too. The file stays; the lock on it goes with the process, however that ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        if fcntl is None:
            raise LnbnnError(f"{self.path.parent}: models can be changed only on systems with flock (Linux, macOS).")
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            holder = os.read(self._handle, 32).decode("ascii", "replace").strip()
            self.close()
            raise ModelInUseError(
                f"{self.path.parent}: another process{f' ({holder})' if holder.isdigit() else ''} is changing this "
                "model; try again when it is done."
            ) from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_read(folder: Path) -> bool:
    """Whether someone holds a :class:`ReadLock` on the folder."""
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

"""Memory: shares of a fixed amount between threads, giving it back, and how much of it is free."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lnbnn.errors import LnbnnError

__all__ = ["ByteBudget", "check_free", "free_address_space", "free_memory", "return_free_memory"]


class ByteBudget:
    """An amount of memory that the threads of a process share: who needs more than is left waits, first come first.

    Parameters
    ----------
    n_bytes : int
        The most that is held at once.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self._n_held = 0
        self._turn = threading.Lock()  # held while waiting, so that many small shares cannot overtake a large one
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, n_bytes: int) -> Iterator[None]:
        """Hold a share; raises :class:`MemoryError` if it is larger than the whole."""
        if n_bytes > self.n_bytes:
            raise MemoryError(f"{n_bytes} bytes of {self.n_bytes}")
        with self._turn, self._changed:
            self._changed.wait_for(lambda: self._n_held + n_bytes <= self.n_bytes)
            self._n_held += n_bytes
        try:
            yield
        finally:
            with self._changed:
                self._n_held -= n_bytes
                self._changed.notify()


def return_free_memory() -> None:
    """Give freed memory back to the system: the C library would keep some of it for each thread."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def _find_malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim  # of glibc; others give it back by themselves
    except (AttributeError, OSError, TypeError):
        return None


_malloc_trim = _find_malloc_trim()


def check_free(what: str, n_bytes: int, n_address_bytes: int) -> None:
    """Raise :class:`~lnbnn.errors.LnbnnError` unless so much memory, and so much address space, is free.

    Where FAISS gets no memory on one of its threads, the process ends without a word: this asks before.
    """
    for needed, free in ((n_bytes, free_memory()), (n_address_bytes, free_address_space())):
        if free is not None and needed > free:
            raise LnbnnError(
                f"{what} takes about {needed >> 20} MiB of memory, but {max(free, 0) >> 20} MiB are free; "
                "use fewer images, or raise the limit."
            )


def free_memory() -> int | None:
    """Bytes that this process can still use: of the machine, and of the control groups it is in; None if not known."""
    frees = [group for group in _free_in_groups() if group is not None]
    available = re.search(r"^MemAvailable: +(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    if available is not None:
        frees.append(int(available[1]) << 10)
    return min(frees, default=None)


def free_address_space() -> int | None:
    """Bytes left under the limits of ``ulimit -v`` and ``ulimit -d``; None if there is none, or it is not known."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    frees = []
    for limit, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        soft, _ = resource.getrlimit(limit)
        held = re.search(rf"^{used}:\s+(\d+) kB", _read("/proc/self/status"), re.MULTILINE)
        if soft != resource.RLIM_INFINITY and held is not None:
            frees.append(soft - (int(held[1]) << 10))
    return min(frees, default=None)


def _free_in_groups() -> Iterator[int | None]:
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = (
                "/sys/fs/cgroup/memory",
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            )
        else:
            continue
        group = Path(root + path)
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield _free_in_group(folder, *names)


def _free_in_group(folder: Path, limit_name: str, used_name: str, cache_name: str) -> int | None:
    limit, used = _read(folder / limit_name).strip(), _read(folder / used_name).strip()
    if not (limit.isdigit() and used.isdigit()):
        return None  # "max", or no such file
    cache = re.search(rf"^{cache_name} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE)
    return int(limit) - int(used) + (int(cache[1]) if cache is not None else 0)


def _read(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

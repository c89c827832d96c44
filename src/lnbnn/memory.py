"""Memory: shares of a fixed amount between threads, and giving it back."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["ByteBudget", "return_free_memory"]


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

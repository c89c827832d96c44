"""Compiled functions: the one door to numba's compiler. Its cache on disk may be missing, full or damaged."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from lnbnn.errors import LnbnnError

__all__ = ["compiled", "overload", "types"]

_logger = logging.getLogger(__name__)
_said = False

_threads = os.environ.get("NUMBA_NUM_THREADS")
if _threads is not None and re.fullmatch(r"\s*\+?0*[1-9][0-9]{0,5}\s*", _threads) is None:
    raise LnbnnError(
        f"the environment variable NUMBA_NUM_THREADS must be a whole number from 1 on; got {_threads[:40]!r}. "
        "Correct it or unset it."
    )
try:
    from numba import njit, types
    from numba.core.caching import FunctionCache
    from numba.core.runtime import rtsys
    from numba.extending import overload
except (ValueError, RuntimeError, OSError) as error:  # its settings are read from the environment and from files
    raise LnbnnError(f"numba cannot be loaded ({error}); check the settings NUMBA_* of the environment.") from error


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function on its first call, without the interpreter lock, and keep the result on disk if possible.

    Where nothing can be kept, or what was kept cannot be read, the function is compiled in this process; a warning
    says so, once. Written as ``@compiled``, or with further options of :func:`numba.njit` as
    ``@compiled(fastmath=True)``.
    """
    if function is None:
        return partial(compiled, **options)
    made = njit(nogil=True, **options)(function)
    if hasattr(made, "enable_caching"):  # a plain function with NUMBA_DISABLE_JIT
        try:
            made._cache = _Cache(function)
        except Exception as error:  # no folder to write to, or none that can be named
            _say_once(error)
    return made


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function; every error is a miss, and a damaged entry is rewritten."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, if it was kept.

        Numba's own method first loads all that its compiler knows, which takes longer than the work on an image. Code
        that is compiled (and runs without the interpreter) needs the memory allocator only. If it was not kept, the
        compiler loads the rest itself.
        """
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except Exception as error:  # unpickling a damaged file raises many types
            _say_once(error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        for attempt in range(2):
            try:
                super().save_overload(sig, data)
                return
            except Exception as error:  # a damaged index is read first; a full disk raises OSError
                with suppress(OSError):  # without its index an entry is not found: half of one is never read
                    os.unlink(self._cache_file._index_path)
                if attempt:
                    _say_once(error)


def _say_once(error: Exception) -> None:
    global _said
    if not _said:
        _said = True
        reason = " ".join(str(error).split()) or type(error).__name__
        _logger.warning(
            "the cache of compiled functions cannot be used (%s); they are compiled again, which takes some seconds. "
            "NUMBA_CACHE_DIR names a folder for it that can be written to",
            reason,
        )

"""Many items worked on by the machines of a Ray cluster: in order, none left out, a few ahead at most."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from lnbnn.cluster.connection import check_address, connect, first_line
from lnbnn.errors import LnbnnError
from lnbnn.version import __version__

__all__ = ["Pool", "RayCluster", "in_order"]

_AHEAD = 3  # chunks per core that are under way or wait for their turn
_MAX_RETRIES = 5  # of a chunk whose worker or machine was lost
_SIZE_FOR_S = 5.0  # how long the number of cores is believed
_WORTH_SAYING_S = 60.0

_logger = logging.getLogger(__name__)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class RayCluster:
    """Machines that read images and answer questions: the ``n_jobs`` of a classifier, in place of a number of threads.

    Results are those of one machine, in the same order. Every machine needs this version of lnbnn, and the photos,
    caches and models under the same paths.

    Parameters
    ----------
    address : str, default="auto"
        ``auto``, the cluster that this machine is part of; ``local``, a new one of this machine; or ``HOST:PORT``.
    n_jobs : int, optional
        Threads for the work that stays on this machine; None for all cores.
    chunk : int, default=8
        Items per task.
    patience_s : float, default=600
        How long one chunk may take, waiting for a free machine included, before the run ends with an error.
    """

    address: str = "auto"
    n_jobs: int | None = None
    chunk: int = 8
    patience_s: float = 600.0

    def check(self) -> None:
        """Raise if the address is not one."""
        check_address(self.address)

    def connect(self) -> None:
        """Connect to the cluster now rather than with the first work, so that an error comes first."""
        connect(self.address)

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """``work`` for each item, in order; it is pickled once, and unpickled once by each worker."""
        return in_order(_RayPool(self.address, work), items, chunk=self.chunk, patience_s=self.patience_s)


class Pool(Protocol):
    """Where chunks of items are worked on."""

    def size(self) -> int:
        """How many chunks are worked on at the same time."""

    def submit(self, items: list[Any]) -> Any:
        """Begin to work on a chunk; returns what the other methods know it by."""

    def result(self, task: Any, timeout_s: float) -> list[Any] | None:
        """The results of a chunk; None if they are not there in time."""

    def cancel(self, task: Any) -> None:
        """A chunk is no longer wanted."""


def in_order(pool: Pool, items: Iterable[Any], *, chunk: int = 8, patience_s: float = 600.0) -> Iterator[Any]:
    """The results of a pool for each item, in order, each exactly once; few are under way, so memory is bounded."""
    waiting: deque[tuple[Any, list[Any]]] = deque()
    left = iter(items)
    try:
        while part := list(islice(left, chunk)):
            waiting.append((pool.submit(part), part))
            if len(waiting) > _AHEAD * max(1, pool.size()):
                yield from _finish(pool, waiting, patience_s)
        while waiting:
            yield from _finish(pool, waiting, patience_s)
    finally:  # also when the reader stops early
        for task, _ in waiting:
            pool.cancel(task)


def _finish(pool: Pool, waiting: deque[tuple[Any, list[Any]]], patience_s: float) -> list[Any]:
    """The results of the chunk that is next."""
    task, part = waiting[0]
    began, found = time.monotonic(), None
    while found is None:
        waited = time.monotonic() - began
        if waited >= patience_s:
            raise LnbnnError(
                f"the Ray cluster gave no result for {_names(part)} within {patience_s:.0f} s; look at ray status and "
                "at the file system, and run the command again."
            )
        found = pool.result(task, min(_WORTH_SAYING_S, patience_s - waited))
        if found is None:
            _logger.warning("no result from the Ray cluster for %.0f s: %s", time.monotonic() - began, _names(part))
    if len(found) != len(part):
        raise LnbnnError(f"the Ray cluster gave {len(found)} results for {len(part)} items: {_names(part)}.")
    waiting.popleft()
    return found


def _names(part: list[Any]) -> str:
    """What a chunk is called in a message."""
    named = [os.fspath(item) for item in part if isinstance(item, str | os.PathLike)]
    return (named[0] if named else "an image") + (f" and {len(part) - 1} more" if len(part) > 1 else "")


class _RayPool:
    """Chunks as Ray's tasks, one core each; Ray runs those of a lost worker or machine again, up to five times."""

    def __init__(self, address: str, work: Callable[[Any], Any]) -> None:
        self._ray = connect(address)
        packed = self._ray.cloudpickle.dumps(work)
        self._work = [self._ray.put(packed)]  # in a list it stays a reference, which a worker follows once
        self._run = self._ray.remote(num_cpus=1, max_retries=_MAX_RETRIES, scheduling_strategy="SPREAD")(_run)
        self._known = (0, 0.0)

    def size(self) -> int:
        size, until = self._known
        if time.monotonic() >= until:
            size = int(self._ray.cluster_resources().get("CPU", 0))
            self._known = size, time.monotonic() + _SIZE_FOR_S
        return size

    def submit(self, items: list[Any]) -> Any:
        return self._run.remote(__version__, os.getcwd(), self._work, items), items

    def result(self, task: Any, timeout_s: float) -> list[Any] | None:
        reference, items = task
        errors = self._ray.exceptions
        try:
            answer = pickle.loads(self._ray.get(reference, timeout=timeout_s))
        except errors.GetTimeoutError:
            return None
        except errors.LocalRayletDiedError as error:
            raise LnbnnError("the Ray node of this machine has ended; start it, and run the command again.") from error
        except errors.RayTaskError as error:
            if isinstance(error.cause, MemoryError | OSError):
                raise error.cause from error
            raise LnbnnError(f"a Ray worker failed on {_names(items)} ({_last_line(error)}).") from error
        except errors.RayError as error:
            raise LnbnnError(
                f"the Ray cluster lost the work on {_names(items)} {_MAX_RETRIES + 1} times ({first_line(error)})."
            ) from error
        if isinstance(answer, LnbnnError):
            raise answer
        found: list[Any] = answer
        return found

    def cancel(self, task: Any) -> None:
        with suppress(Exception):  # the cluster may be gone
            self._ray.cancel(task[0], force=False)


def _last_line(error: BaseException) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "no reason given")[:300]


# ---- in a worker ----------------------------------------------------------------------------------------------------

_kept: dict[str, Callable[[Any], Any]] = {}  # the work that this process does


def _run(version: str, folder: str, work: list[Any], items: list[Any]) -> bytes:
    """A chunk's results, or an error of lnbnn. As bytes, so that no result stays in the cluster's shared memory."""
    try:
        if version != __version__:
            raise LnbnnError(f"it has lnbnn {__version__}, not {version}")
        with suppress(OSError):
            os.chdir(folder)  # relative paths mean what they mean where the command was given
        done = _work_of(work[0])
        found: Any = [done(item) for item in items]
    except LnbnnError as error:
        found = type(error)(f"Ray worker on {socket.gethostname()}: {error}")
    return pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL)


def _work_of(reference: Any) -> Callable[[Any], Any]:
    key = reference.hex()
    if key not in _kept:
        _kept.clear()  # a model may be large: one at a time
        _kept[key] = pickle.loads(connect().get(reference))
    return _kept[key]

"""Objects in processes of a Ray cluster; one that is lost with its machine is made again from what was done to it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lnbnn.cluster.connection import connect, first_line
from lnbnn.errors import LnbnnError
from lnbnn.version import __version__

__all__ = ["KeptObject", "ask_all", "n_machines"]

_MAX_LOSSES = 5  # of one object while it is asked one thing
_SIDE_BY_SIDE = 8  # calls that one object answers at the same time
_PATIENCE_S = 3600.0  # for one call: building a large shard takes long

_logger = logging.getLogger(__name__)

Arguments = Callable[[], tuple[Any, ...]]


class _Sent(NamedTuple):
    """A call under way, and the number of the process that it went to."""

    reference: Any
    n_made: int


class KeptObject:
    """An object in a process of its own, on some machine of the cluster.

    What changes it goes through :meth:`change`, whose calls are remembered with a way to get their arguments again. If
    the process is lost, another is started and the changes are made again, in order: the object is the same as before.

    Parameters
    ----------
    make : callable
        Makes the object; it is pickled.
    name : str
        What messages call it.
    place : int
        Objects with numbers that follow each other are on different machines, as far as there are machines.
    """

    def __init__(self, make: Callable[[], Any], name: str, place: int = 0) -> None:
        self.name, self.place = name, place
        self.changes: list[tuple[str, Arguments]] = []
        self._make = make
        self._lock = threading.RLock()
        self._n_made = 0
        self._start()

    def _start(self) -> None:
        self._ray = ray = connect()
        nodes = _nodes_with_cores(ray)
        where: Any = "SPREAD"
        if nodes:  # not on one without cores, such as that of the command; elsewhere if it is lost meanwhile
            affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            where = affinity(nodes[self.place % len(nodes)], soft=True)
        holder = ray.remote(num_cpus=0, max_concurrency=_SIDE_BY_SIDE, scheduling_strategy=where)(_Holder)
        self._actor = holder.remote(__version__, self._make)
        self._n_made += 1

    def change(self, method: str, arguments: Arguments) -> Any:
        """Call a method that changes the object; others wait. ``arguments`` is called again if the object is lost."""
        with self._lock:
            self.changes.append((method, arguments))
            sent = self._send(method, arguments())
            try:
                return self._get(sent)
            except self._lost as error:
                return self._remake(sent, error)  # this change is the last of those that are made again

    def send(self, method: str, *arguments: Any) -> _Sent:
        """Begin a call that changes nothing."""
        with self._lock:
            return self._send(method, arguments)

    def receive(self, sent: _Sent, method: str, *arguments: Any) -> Any:
        """What a call gave; if the object was lost, it is made again and asked again."""
        for _ in range(_MAX_LOSSES):
            try:
                return self._get(sent)
            except self._lost as error:
                with self._lock:
                    self._remake(sent, error)
                    sent = self._send(method, arguments)
        raise LnbnnError(f"{self.name} was lost {_MAX_LOSSES} times while it was asked; look at ray status.")

    @property
    def _lost(self) -> tuple[type[Exception], ...]:
        errors = self._ray.exceptions
        return errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.WorkerCrashedError

    def _send(self, method: str, arguments: tuple[Any, ...]) -> _Sent:
        return _Sent(self._actor.call.remote(method, *arguments), self._n_made)

    def _get(self, sent: _Sent) -> Any:
        errors = self._ray.exceptions
        try:
            found = self._ray.get(sent.reference, timeout=_PATIENCE_S)
        except self._lost:
            raise
        except errors.GetTimeoutError as error:
            raise LnbnnError(f"{self.name} gave no answer within {_PATIENCE_S:.0f} s; look at ray status.") from error
        except errors.LocalRayletDiedError as error:
            raise LnbnnError("the Ray node of this machine has ended; start it, and run the command again.") from error
        except errors.RayTaskError as error:
            if isinstance(error.cause, MemoryError):
                raise LnbnnError(f"{self.name} does not fit into the memory of its machine.") from error
            raise LnbnnError(f"{self.name} failed ({first_line(error.cause or error)}).") from error
        except errors.RayError as error:
            raise LnbnnError(f"{self.name} gave no answer ({first_line(error)}); look at ray status.") from error
        if isinstance(found, LnbnnError):
            raise found
        return found

    def _remake(self, sent: _Sent, error: Exception) -> Any:
        """Start another process and make all changes again, unless that was done since the call; the last result."""
        last = None
        for _ in range(_MAX_LOSSES):
            if sent.n_made != self._n_made:
                return last
            _logger.warning("%s was lost and is made again (%s)", self.name, first_line(error))
            self._start()
            now = _Sent(None, self._n_made)
            try:
                for method, arguments in self.changes:
                    last = self._get(self._send(method, arguments()))
            except self._lost as again:
                sent, error = now, again
        if sent.n_made == self._n_made:
            raise LnbnnError(f"{self.name} was lost {_MAX_LOSSES} times while it was made; see ray status.") from error
        return last


def ask_all(kept: Sequence[KeptObject], method: str, *arguments: Any) -> list[Any]:
    """Call a method of every object, side by side; it must change nothing."""
    sent = [one.send(method, *arguments) for one in kept]
    return [one.receive(each, method, *arguments) for one, each in zip(kept, sent, strict=True)]


def n_machines() -> int:
    """How many machines with cores the cluster has."""
    return max(1, len(_nodes_with_cores(connect())))


def _nodes_with_cores(ray: Any) -> list[str]:
    return sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0)


# ---- in the process -------------------------------------------------------------------------------------------------


class _Holder:
    """The process of an object; an error of lnbnn is an answer."""

    def __init__(self, version: str, make: Callable[[], Any]) -> None:
        self.kept = make()
        self.is_other = "" if version == __version__ else f"it has lnbnn {__version__}, not {version}"

    def call(self, method: str, *arguments: Any) -> Any:
        where = f"Ray worker on {socket.gethostname()}: "
        if self.is_other:
            return LnbnnError(where + self.is_other)
        try:
            return getattr(self.kept, method)(*arguments)
        except LnbnnError as error:
            return type(error)(where + str(error))

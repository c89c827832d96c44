"""What lnbnn uses of Ray, in this process: work passes through pickle, and actors are lost when a test says so."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lnbnn.cluster.tasks import RayCluster


class HereCluster(RayCluster):
    """A cluster whose only worker is this process."""

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        theirs = pickle.loads(pickle.dumps(work))
        return (pickle.loads(pickle.dumps(theirs(pickle.loads(pickle.dumps(item))))) for item in items)


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"a traceback\n{cause}")
        self.cause = cause


class GetTimeoutError(RayError, TimeoutError):
    pass


class LocalRayletDiedError(RayError):
    pass


class ObjectLostError(RayError):
    pass


class NodeDiedError(RayError):
    pass


class WorkerCrashedError(RayError):
    pass


class ObjectStoreFullError(RayError):
    pass


_ERRORS = (RayError, RayActorError, RayTaskError, GetTimeoutError, LocalRayletDiedError, ObjectStoreFullError)
_ERRORS += (ObjectLostError, NodeDiedError, WorkerCrashedError)


class FakeRay:
    """The actor that gets the n-th call of all is lost with it, for each n in ``lose_at``.

    ``started_on`` has the node that each actor asked for. Besides ``n_nodes`` one has no cores, and one is dead.
    """

    def __init__(self, n_nodes: int = 2) -> None:
        self.exceptions = SimpleNamespace(**{kind.__name__: kind for kind in _ERRORS})
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
        self.util = SimpleNamespace(scheduling_strategies=strategies)
        self.started_on: list[Any] = []
        self.n_nodes = n_nodes
        self.n_started = 0
        self.lose_at: set[int] = set()
        self.n_calls = 0

    def install(self, patch: pytest.MonkeyPatch) -> FakeRay:
        patch.setattr("lnbnn.cluster.actors.connect", lambda address=None: self)
        return self

    def remote(self, **options: Any) -> Callable[[type], Any]:
        self.started_on.append(options["scheduling_strategy"])
        return lambda kind: SimpleNamespace(remote=lambda *args: self._actor(kind, args))

    def _actor(self, kind: type, args: tuple[Any, ...]) -> Any:
        self.n_started += 1
        actor = SimpleNamespace(kept=kind(*pickle.loads(pickle.dumps(args))), is_alive=True)

        def call(*arguments: Any) -> Callable[[], Any]:
            self.n_calls += 1
            if self.n_calls in self.lose_at:
                actor.is_alive = False
            sent = pickle.dumps(arguments)

            def answer() -> Any:
                if not actor.is_alive:
                    raise RayActorError("the actor died")
                try:
                    return pickle.loads(pickle.dumps(actor.kept.call(*pickle.loads(sent))))
                except Exception as error:
                    raise RayTaskError(error) from error

            return answer

        return SimpleNamespace(call=SimpleNamespace(remote=call))

    def get(self, reference: Callable[[], Any], timeout: float | None = None) -> Any:
        return reference()

    def nodes(self) -> list[dict[str, Any]]:
        found = [{"Alive": True, "Resources": {"CPU": 1.0}, "NodeID": f"node{n}"} for n in range(self.n_nodes)]
        found.append({"Alive": True, "Resources": {"memory": 1.0}, "NodeID": "no cores"})
        return [*found, {"Alive": False, "Resources": {"CPU": 1.0}, "NodeID": "dead"}]

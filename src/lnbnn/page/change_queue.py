"""The queue of changes to the model: one at a time; adjacent adds become one change."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lnbnn.errors import LnbnnError
from lnbnn.page.events import Events
from lnbnn.page.maintenance import maintain
from lnbnn.page.replies import Refused
from lnbnn.page.served_model import Photo, ServedModel
from lnbnn.page.undo import UndoList
from lnbnn.references import check_labels

__all__ = ["ChangeQueue"]

_logger = logging.getLogger(__name__)

_FOLLOW_S = 0.5  # between two checks for changes by other processes
_MOST_JOBS = 500
_MOST_AT_ONCE = 256  # photos added in one change
_STOP_S = 2.5


@dataclass(eq=False)
class _Job:
    """Either ``work`` to call, or photos to add under a label."""

    name: str
    work: Callable[[], Any] | None = None
    photos: list[Photo] = field(default_factory=list)
    label: str = ""
    done: Future[Any] = field(default_factory=Future)


class _Interrupted(Exception):
    """A job arrived during maintenance."""


class ChangeQueue:
    """Accepts jobs from any thread and runs them in one; a job's result arrives when the change is on disk."""

    def __init__(self, served: ServedModel, events: Events) -> None:
        self.served, self.events = served, events
        self._jobs: queue.Queue[_Job | None] = queue.Queue(_MOST_JOBS)
        self._next: _Job | None = None
        self._doing = ""
        self._maintained: object = None
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)

    def start(self) -> None:
        """Open the model, and wait for jobs."""
        self.served.start()
        self._thread.start()

    def close(self) -> None:
        """Finish the current job and refuse the others; nothing can be undone afterward."""
        with suppress(queue.Full):
            self._jobs.put_nowait(None)
        self._thread.join(_STOP_S)
        if not self._thread.is_alive():
            self.served.steps = UndoList()
            self.served.clean()

    def state(self) -> dict[str, Any]:
        """The current job, the number of jobs waiting, and what ``undo`` would undo."""
        return {"doing": self._doing, "n_waiting": self._jobs.qsize(), "undo": self.served.steps.last}

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def add(self, photos: list[Photo], label: str) -> Future[dict[str, Any]]:
        """Add photos from the photo store under a label."""
        check_labels([label], 1)
        return self._put(_Job("adding photos", None, photos, label))

    def remove(self, ids: list[int]) -> Future[dict[str, Any]]:
        """Remove photos by their ids."""
        return self._put(_Job("removing photos", lambda: self.served.remove(ids)))

    def relabel(self, ids: list[int], label: str) -> Future[dict[str, Any]]:
        """Give photos another label."""
        return self._put(_Job("relabeling photos", lambda: self.served.relabel(ids, label)))

    def undo(self) -> Future[dict[str, Any]]:
        """Undo the last change."""
        return self._put(_Job("undoing", self.served.undo))

    def improve(self) -> Future[dict[str, Any]]:
        """Choose the method and its settings again."""
        name = "choosing again"
        return self._put(_Job(name, lambda: self.served.improve(self._progress(name))))

    def _put(self, job: _Job) -> Future[Any]:
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise Refused(429, f"{_MOST_JOBS} changes are waiting; try again later.", retry_s=5) from None
        return job.done

    # ---- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self.served.warm_up()
        while True:
            try:
                job = self._jobs.get(timeout=_FOLLOW_S) if self._next is None else self._next
                self._next = None
            except queue.Empty:
                self._maintain()
                continue
            if job is None:
                break
            self._doing = job.name
            self._work(job)
            self._doing = ""
            self.tell()
        while not self._jobs.empty():
            rest = self._jobs.get_nowait()
            if rest is not None:
                rest.done.set_exception(Refused(503, "the server is being stopped; nothing was changed."))

    def _work(self, job: _Job) -> None:
        jobs = [job] if job.work is not None else self._with_adjacent_adds(job)
        jobs = [one for one in jobs if one.done.set_running_or_notify_cancel()]  # whose client has not disconnected
        if not jobs:
            return
        try:
            if job.work is not None:
                results: list[Any] = [job.work()]
            else:
                batches: Any = [(one.photos, one.label) for one in jobs]
                results = self.served.add(batches, self._progress(job.name))
        except BaseException as error:  # it goes to the caller
            _logger.debug("a change failed", exc_info=True)
            results = [error] * len(jobs)
        for one, result in zip(jobs, results, strict=True):
            if isinstance(result, BaseException):
                one.done.set_exception(result)
            else:
                one.done.set_result(result)

    def _with_adjacent_adds(self, job: _Job) -> list[_Job]:
        """The job and the adds right behind it in the queue."""
        jobs, n_photos = [job], len(job.photos)
        while n_photos < _MOST_AT_ONCE and not self._jobs.empty():
            following = self._jobs.get_nowait()
            if following is None or following.work is not None:
                if following is None:
                    self._jobs.put_nowait(None)
                else:
                    self._next = following
                break
            jobs.append(following)
            n_photos += len(following.photos)
        return jobs

    def _maintain(self) -> None:
        """Notice changes by other processes, and do maintenance while the queue is empty."""
        try:
            if self.served.follow():
                self.tell()
            if self._maintained is not self.served.opened:
                if maintain(self.served, self._while_idle):
                    self.tell()
                self._maintained = self.served.opened
        except _Interrupted:
            pass
        except (LnbnnError, OSError, MemoryError) as error:
            self._maintained = self.served.opened  # no retry until the model changes
            self.events.say("trouble", text=str(error))

    def _while_idle(self, stage: str, done: int, total: int) -> None:
        if not self._jobs.empty():
            raise _Interrupted
        self.events.say("progress", doing="maintenance", stage=stage, done=done, total=total)

    def _progress(self, doing: str) -> Callable[[str, int, int], None]:
        last = [0.0]

        def tell(stage: str, done: int, total: int) -> None:
            if done == total or time.monotonic() - last[0] > 0.1:
                last[0] = time.monotonic()
                self.events.say("progress", doing=doing, stage=stage, done=done, total=total)

        return tell

    def tell(self) -> None:
        """Tell every page that the model has changed."""
        opened = self.served.opened
        self.events.say("model", generation=0 if opened is None else opened.generation, **self.state())

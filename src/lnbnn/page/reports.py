"""Reports on the whole model, the audit and the evaluation, made once per version of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from lnbnn.page.events import Events
from lnbnn.page.photo_store import PhotoStore
from lnbnn.page.replies import Refused
from lnbnn.page.served_model import Opened
from lnbnn.reading.extraction import Progress
from lnbnn.trust.audit import audit
from lnbnn.trust.learning_curve import learning_curve
from lnbnn.trust.left_out import evaluate_left_out

__all__ = ["DECISIONS", "REPORTS", "ModelChanged", "Reports", "stopping"]

DECISIONS = ("keep", "accept", "change")
"""Decisions about an audit entry: the label is right, the suggestion is right, or neither."""

_LISTS = ("suspects", "near_duplicates", "strangers")
_NOTE = "decisions"
_MOST_DECISIONS = 100_000

REPORTS: dict[str, Callable[[Opened, Progress], dict[str, Any]]] = {
    "audit": lambda opened, progress: audit(opened.classifier, progress=progress).as_dict(),
    "evaluation": lambda opened, progress: _evaluation(opened, progress),
}


def _evaluation(opened: Opened, progress: Progress) -> dict[str, Any]:
    found = evaluate_left_out(opened.classifier, progress=progress).as_json()
    curve = learning_curve(opened.classifier, progress=progress)
    return found | {"curve": [asdict(point) for point in curve]}


class ModelChanged(Exception):
    """A report was given up: one on a newer version of the model was asked for."""


def stopping() -> Refused:
    """The error of a report that the end of the server cuts short."""
    return Refused(503, "the server is being stopped.")


class Reports:
    """Makes reports in a thread of its own, one at a time, and keeps the latest of each kind."""

    def __init__(self, events: Events, photo_store: PhotoStore) -> None:
        self._events, self._photo_store = events, photo_store
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="report")
        self._last: dict[str, tuple[Opened, Future[dict[str, Any]]]] = {}
        self._guard = threading.Lock()
        self._closing = False

    def close(self) -> None:
        """Stop at the next photo."""
        self._closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def of(self, kind: str, opened: Opened) -> Future[dict[str, Any]]:
        """The report on this version of the model; made once, whoever asks."""
        if self._closing:
            raise stopping()
        with self._guard:
            known = self._last.get(kind)
            if known is None or known[0].generation != opened.generation or _failed(known[1]):
                known = opened, self._pool.submit(self._make, kind, opened)
                self._last[kind] = known
            return known[1]

    def _make(self, kind: str, opened: Opened) -> dict[str, Any]:
        def progress(stage: str, done: int, total: int) -> None:
            asked = self._last.get(kind)
            if self._closing:
                raise stopping()
            if asked is None or asked[0].generation != opened.generation:
                raise ModelChanged
            if done % 8 == 0 or done == total:
                for name in ("report", "study"):  # "study" until 0.4
                    self._events.say(name, **{name: kind}, stage=stage, done=done, total=total)

        return REPORTS[kind](opened, progress)

    # ---- decisions ----------------------------------------------------------------------------------------------

    def decided(self, found: dict[str, Any], opened: Opened) -> dict[str, Any]:
        """An audit with the decision about each entry, or None."""
        known = self._decisions()
        return found | {
            name: [entry | {"decision": known.get(_entry_key(name, entry, opened))} for entry in found[name]]
            for name in _LISTS
        }

    def decide(self, opened: Opened, name: str, ids: list[int], labels: list[Any], decision: str) -> None:
        """Store a decision about the entry with these ids and labels."""
        if name not in _LISTS or decision not in DECISIONS:
            raise Refused(422, f"expected one of {', '.join(_LISTS)} and one of {', '.join(DECISIONS)}.")
        known = self._decisions()
        if len(known) >= _MOST_DECISIONS:
            known = dict(list(known.items())[_MOST_DECISIONS // 10 :])
        self._photo_store.note(**{_NOTE: known | {_key(name, ids, labels, opened): decision}})
        self._events.say("decision", name=name, ids=ids, decision=decision)

    def _decisions(self) -> dict[str, str]:
        known = self._photo_store.notes.get(_NOTE)
        return known if isinstance(known, dict) else {}


def _failed(report: Future[Any]) -> bool:
    return report.done() and (report.cancelled() or report.exception() is not None)


def _entry_key(name: str, entry: dict[str, Any], opened: Opened) -> str:
    ids = [entry[key] for key in ("id", "other_id") if key in entry]
    labels = [entry[key] for key in ("label", "suggested", "other_label") if key in entry]
    return _key(name, ids, labels, opened)


def _key(name: str, ids: list[int], labels: list[Any], opened: Opened) -> str:
    """A decision belongs to photos and labels, whatever the ids; a photo that is gone is known by its id."""
    photos = [(opened.images[number].digest if number in opened.images else None) or str(number) for number in ids]
    return " ".join([name, *photos, *map(repr, labels)])

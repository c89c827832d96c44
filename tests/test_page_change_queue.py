"""The queue: one change at a time, adds that stand together in one, refused when full or stopped; others followed."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from paging import wait_for
from test_page_served_model import labels, make, sent  # noqa: F401

from lnbnn.errors import InvalidInputError
from lnbnn.model.changes import check_model, edit
from lnbnn.page import change_queue
from lnbnn.page.change_queue import ChangeQueue
from lnbnn.page.events import Events
from lnbnn.page.replies import Refused


class Heard(Events):
    """Events that are listened to here."""

    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, kind, **content):
        self.said.append((kind, content))


@pytest.fixture
def changes(make):  # noqa: F811
    made = ChangeQueue(make(), Heard())
    yield made
    if made._thread.is_alive():
        made.close()


@contextmanager
def held(changes, monkeypatch):
    """While the queue is busy with another job."""
    gate, busy = threading.Event(), threading.Event()
    real = changes.served.undo

    def wait():
        busy.set()
        assert gate.wait(300)

    monkeypatch.setattr(changes.served, "undo", wait)
    first = changes.undo()
    assert busy.wait(300)
    yield
    monkeypatch.setattr(changes.served, "undo", real)
    gate.set()
    first.result(300)


def test_adjacent_adds_are_one_change(changes, sent, monkeypatch):  # noqa: F811
    changes.start()
    with held(changes, monkeypatch):
        jobs = [changes.add(sent(changes.served, kind, [1]), kind) for kind in ("rows", "columns", "checks")]
        later = changes.relabel([0], "stripes")
        last = changes.add(sent(changes.served, "rows", [2]), "rows")
        assert changes.state()["n_waiting"] == 5
    assert [len(job.result(300)["added"]) for job in jobs] == [1, 1, 1]
    assert later.result(300)["relabeled"][0]["label"] == "stripes"
    assert last.result(300)["added"][0]["id"] == 3
    assert labels(changes.served) == {0: "stripes", 1: "columns", 2: "checks", 3: "rows"}
    assert {image.batch for image in list(changes.served.opened.images.values())[:3]} <= {0}, "begun in one"
    assert changes.state() == {"doing": "", "n_waiting": 0, "undo": "adding 1 photo"}


def test_a_change_that_fails_raises_at_its_caller(changes, sent):  # noqa: F811
    changes.start()
    with pytest.raises(InvalidInputError, match="the model is empty"):
        changes.remove([0]).result(300)
    with pytest.raises(InvalidInputError, match="must not be empty"):
        changes.add(sent(changes.served, "rows", [1]), "  ")
    assert len(changes.add(sent(changes.served, "rows", [1]), "rows").result(300)["added"]) == 1, "the next is done"


def test_the_job_of_a_client_that_left_is_skipped(changes, sent, monkeypatch):  # noqa: F811
    changes.start()
    with held(changes, monkeypatch):
        gone = changes.add(sent(changes.served, "rows", [1]), "rows")
        stays = changes.add(sent(changes.served, "rows", [2]), "rows")
        assert gone.cancel()
    assert len(stays.result(300)["added"]) == 1
    assert len(changes.served.opened.images) == 1
    assert changes.add(sent(changes.served, "rows", [3]), "rows").result(300)["added"], "the queue still works"


def test_a_client_that_leaves_does_not_stop_its_change(changes, sent):  # noqa: F811
    changes.start()
    first = changes.add(sent(changes.served, "rows", [1]), "rows")
    wait_for(lambda: first.running() or first.done())
    assert not first.cancel()
    assert first.result(300)["added"]


def test_a_full_queue_is_refused(changes, monkeypatch):
    monkeypatch.setattr(change_queue, "_MOST_JOBS", 3)
    small = ChangeQueue(changes.served, Heard())
    for _ in range(3):
        small.undo()
    with pytest.raises(Refused, match="3 changes are waiting") as refused:
        small.undo()
    assert refused.value.status == 429


def test_stopping_refuses_what_waits_and_leaves_the_model_whole(changes, sent, monkeypatch):  # noqa: F811
    changes.start()
    changes.add(sent(changes.served, "rows", [1]), "rows").result(300)
    with held(changes, monkeypatch):
        changes._jobs.put_nowait(None)
        late = changes.add(sent(changes.served, "columns", [1]), "columns")
    with pytest.raises(Refused, match="being stopped"):
        late.result(300)
    changes.close()
    assert check_model(changes.served.path).n_images == 1


def test_changes_by_other_processes_and_maintenance_are_announced(changes, sent):  # noqa: F811
    changes.start()
    for kind in ("rows", "columns"):
        changes.add(sent(changes.served, kind, [1, 2]), kind).result(300)
    wait_for(lambda: changes.served.opened.classifier.fitted().is_calibrated)
    wait_for(lambda: changes._maintained is changes.served.opened)
    with edit(changes.served.path) as editor:
        editor.relabel(0, "stripes")
    wait_for(lambda: labels(changes.served)[0] == "stripes")
    generation = changes.served.opened.generation
    wait_for(
        lambda: any(kind == "model" and content["generation"] >= generation for kind, content in changes.events.said)
    )


def test_maintenance_gives_way_to_changes(changes, sent, monkeypatch):  # noqa: F811
    started, n_tries = threading.Event(), [0]

    def endless(served, progress):
        n_tries[0] += 1
        started.set()
        while True:
            progress("calibrating", 1, 2)

    monkeypatch.setattr(change_queue, "maintain", endless)
    changes.start()
    changes.add(sent(changes.served, "rows", [1]), "rows").result(300)
    assert started.wait(300)
    assert len(changes.add(sent(changes.served, "rows", [2]), "rows").result(300)["added"]) == 1
    wait_for(lambda: n_tries[0] > 1)
    changes._jobs.put_nowait(None)


def test_trouble_with_the_folder_is_told_once(changes, sent):  # noqa: F811
    changes.start()
    changes.add(sent(changes.served, "rows", [1]), "rows").result(300)
    wait_for(lambda: changes._maintained is changes.served.opened)
    (changes.served.path / "manifest.json").write_bytes(b"{}")
    wait_for(lambda: any(kind == "trouble" for kind, _ in changes.events.said))
    assert labels(changes.served) == {0: "rows"}, "answers go on as before"

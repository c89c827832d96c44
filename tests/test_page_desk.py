"""The queue: one change at a time, adds that stand together in one, refused when full or stopped; others followed."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from paging import wait_for
from test_page_bench import labels, make, sent  # noqa: F401

from lnbnn.errors import InvalidInputError
from lnbnn.model.changes import check_model, edit
from lnbnn.page import desk as desk_module
from lnbnn.page.desk import Desk
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
def desk(make):  # noqa: F811
    made = Desk(make(), Heard())
    yield made
    if made._thread.is_alive():
        made.close()


@contextmanager
def held(desk, monkeypatch):
    """While the one at the desk is busy with something else."""
    gate, busy = threading.Event(), threading.Event()
    real = desk.bench.undo

    def wait():
        busy.set()
        assert gate.wait(300)

    monkeypatch.setattr(desk.bench, "undo", wait)
    first = desk.undo()
    assert busy.wait(300)
    yield
    monkeypatch.setattr(desk.bench, "undo", real)
    gate.set()
    first.result(300)


def test_adds_that_stand_together_are_one_change(desk, sent, monkeypatch):  # noqa: F811
    desk.start()
    with held(desk, monkeypatch):
        jobs = [desk.add(sent(desk.bench, kind, [1]), kind) for kind in ("rows", "columns", "checks")]
        later = desk.relabel([0], "stripes")
        last = desk.add(sent(desk.bench, "rows", [2]), "rows")
        assert desk.state()["n_waiting"] == 5
    assert [len(job.result(300)["added"]) for job in jobs] == [1, 1, 1]
    assert later.result(300)["relabeled"][0]["label"] == "stripes"
    assert last.result(300)["added"][0]["id"] == 3
    assert labels(desk.bench) == {0: "stripes", 1: "columns", 2: "checks", 3: "rows"}
    assert {image.batch for image in list(desk.bench.opened.images.values())[:3]} <= {0}, "begun in one"
    assert desk.state() == {"doing": "", "n_waiting": 0, "undo": "adding 1 photo"}


def test_a_change_that_fails_is_told_to_who_asked(desk, sent):  # noqa: F811
    desk.start()
    with pytest.raises(InvalidInputError, match="the model is empty"):
        desk.remove([0]).result(300)
    with pytest.raises(InvalidInputError, match="must not be empty"):
        desk.add(sent(desk.bench, "rows", [1]), "  ")
    assert len(desk.add(sent(desk.bench, "rows", [1]), "rows").result(300)["added"]) == 1, "the next is done"


def test_who_has_gone_before_his_turn_gets_nothing_and_the_rest_goes_on(desk, sent, monkeypatch):  # noqa: F811
    desk.start()
    with held(desk, monkeypatch):
        gone = desk.add(sent(desk.bench, "rows", [1]), "rows")
        stays = desk.add(sent(desk.bench, "rows", [2]), "rows")
        assert gone.cancel()
    assert len(stays.result(300)["added"]) == 1
    assert len(desk.bench.opened.images) == 1
    assert desk.add(sent(desk.bench, "rows", [3]), "rows").result(300)["added"], "the desk is still there"


def test_who_goes_while_his_change_is_made_does_not_stop_it(desk, sent):  # noqa: F811
    desk.start()
    first = desk.add(sent(desk.bench, "rows", [1]), "rows")
    wait_for(lambda: first.running() or first.done())
    assert not first.cancel()
    assert first.result(300)["added"]


def test_a_full_queue_is_refused(desk, monkeypatch):
    monkeypatch.setattr(desk_module, "_MOST_JOBS", 3)
    small = Desk(desk.bench, Heard())
    for _ in range(3):
        small.undo()
    with pytest.raises(Refused, match="3 changes are waiting") as refused:
        small.undo()
    assert refused.value.status == 429


def test_stopping_refuses_what_waits_and_leaves_the_model_whole(desk, sent, monkeypatch):  # noqa: F811
    desk.start()
    desk.add(sent(desk.bench, "rows", [1]), "rows").result(300)
    with held(desk, monkeypatch):
        desk._jobs.put_nowait(None)
        late = desk.add(sent(desk.bench, "columns", [1]), "columns")
    with pytest.raises(Refused, match="being stopped"):
        late.result(300)
    desk.close()
    assert check_model(desk.bench.path).n_images == 1


def test_other_processes_and_upkeep_are_told(desk, sent):  # noqa: F811
    desk.start()
    for kind in ("rows", "columns"):
        desk.add(sent(desk.bench, kind, [1, 2]), kind).result(300)
    wait_for(lambda: desk.bench.opened.classifier.fitted().is_calibrated)
    wait_for(lambda: desk._kept_up is desk.bench.opened)
    with edit(desk.bench.path) as editor:
        editor.relabel(0, "stripes")
    wait_for(lambda: labels(desk.bench)[0] == "stripes")
    generation = desk.bench.opened.generation
    wait_for(lambda: any(kind == "model" and content["generation"] >= generation for kind, content in desk.events.said))


def test_upkeep_gives_way_to_changes(desk, sent, monkeypatch):  # noqa: F811
    started, n_tries = threading.Event(), [0]

    def endless(bench, progress):
        n_tries[0] += 1
        started.set()
        while True:
            progress("calibrating", 1, 2)

    monkeypatch.setattr(desk_module, "keep_up", endless)
    desk.start()
    desk.add(sent(desk.bench, "rows", [1]), "rows").result(300)
    assert started.wait(300)
    assert len(desk.add(sent(desk.bench, "rows", [2]), "rows").result(300)["added"]) == 1
    wait_for(lambda: n_tries[0] > 1)
    desk._jobs.put_nowait(None)


def test_trouble_with_the_folder_is_told_once(desk, sent):  # noqa: F811
    desk.start()
    desk.add(sent(desk.bench, "rows", [1]), "rows").result(300)
    wait_for(lambda: desk._kept_up is desk.bench.opened)
    (desk.bench.path / "manifest.json").write_bytes(b"{}")
    wait_for(lambda: any(kind == "trouble" for kind, _ in desk.events.said))
    assert labels(desk.bench) == {0: "rows"}, "answers go on as before"

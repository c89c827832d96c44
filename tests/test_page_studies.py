"""Studies of the whole model: made once for each state of it, stopped when it changes, decisions remembered."""

from __future__ import annotations

import threading

import pytest
from test_page_bench import make, sent  # noqa: F401
from test_page_desk import Heard

from lnbnn.page import studies as studies_module
from lnbnn.page.replies import Refused
from lnbnn.page.shelf import Shelf
from lnbnn.page.studies import Studies


@pytest.fixture
def bench(make, sent):  # noqa: F811
    """Three photos of each of three kinds, and a photo of rows that is labeled columns."""
    made = make()
    made.add([(sent(made, kind, [1, 2, 3]), kind) for kind in ("checks", "columns", "rows")])
    made.add([(sent(made, "rows", [9]), "columns")])
    return made


@pytest.fixture
def studies(bench):
    made = Studies(Heard(), bench.shelf)
    yield made
    made.close()


def test_an_audit_finds_the_wrong_label_and_is_made_once(studies, bench):
    study = studies.of("audit", bench.opened)
    found = study.result(300)
    assert [(suspect["id"], suspect["suggested"]) for suspect in found["suspects"]] == [(9, "rows")]
    assert studies.of("audit", bench.opened) is study
    assert studies.of("evaluation", bench.opened).result(300)["n_images"] == 10
    assert any(kind == "study" for kind, _ in studies._events.said)
    bench.relabel([9], "rows")
    again = studies.of("audit", bench.opened)
    assert again is not study
    assert again.result(300)["suspects"] == ()


def test_decisions_are_remembered_for_the_photo_under_its_label(studies, bench):
    found = studies.of("audit", bench.opened).result(300)
    (entry,) = studies.decided(found, bench.opened)["suspects"]
    assert entry["decision"] is None
    studies.decide(bench.opened, "suspects", [9], ["columns", "rows"], "keep")
    again = Studies(Heard(), Shelf(bench.shelf.folder))
    assert [one["decision"] for one in again.decided(found, bench.opened)["suspects"]] == ["keep"]
    other = found | {"suspects": [found["suspects"][0] | {"suggested": "checks"}]}
    assert [one["decision"] for one in again.decided(other, bench.opened)["suspects"]] == [None]
    again.close()
    for name, decision in (("confused", "keep"), ("suspects", "burn")):
        with pytest.raises(Refused, match="expected one of"):
            studies.decide(bench.opened, name, [9], [], decision)


def test_a_study_of_a_model_that_changed_is_stopped(studies, bench, monkeypatch):
    going, go_on = threading.Event(), threading.Event()

    def slow(opened, progress):
        going.set()
        assert go_on.wait(300)
        progress("looking", 1, 2)
        return {"whole": True}

    monkeypatch.setitem(studies_module.STUDIES, "audit", slow)
    first = studies.of("audit", bench.opened)
    assert going.wait(300)
    bench.relabel([9], "rows")
    second = studies.of("audit", bench.opened)
    go_on.set()
    with pytest.raises(Refused, match="changed meanwhile"):
        first.result(300)
    assert second.result(300) == {"whole": True}


def test_a_study_that_failed_is_made_again(studies, bench, monkeypatch):
    def fail(opened, progress):
        raise MemoryError

    monkeypatch.setitem(studies_module.STUDIES, "audit", fail)
    with pytest.raises(MemoryError):
        studies.of("audit", bench.opened).result(300)
    monkeypatch.undo()
    assert studies.of("audit", bench.opened).result(300)["n_images"] == 10

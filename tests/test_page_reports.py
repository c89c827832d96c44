"""Reports on the whole model: made once per version, stopped when it changes; decisions are stored."""

from __future__ import annotations

import threading

import pytest
from test_page_change_queue import Heard
from test_page_served_model import make, sent  # noqa: F401

from lnbnn.page import reports as reports_module
from lnbnn.page.photo_store import PhotoStore
from lnbnn.page.replies import Refused
from lnbnn.page.reports import ModelChanged, Reports


@pytest.fixture
def served(make, sent):  # noqa: F811
    """Three photos of each of three kinds, and a photo of rows that is labeled columns."""
    made = make()
    made.add([(sent(made, kind, [1, 2, 3]), kind) for kind in ("checks", "columns", "rows")])
    made.add([(sent(made, "rows", [9]), "columns")])
    return made


@pytest.fixture
def reports(served):
    made = Reports(Heard(), served.photo_store)
    yield made
    made.close()


def test_an_audit_finds_the_wrong_label_and_is_made_once(reports, served):
    report = reports.of("audit", served.opened)
    found = report.result(300)
    assert [(suspect["id"], suspect["suggested"]) for suspect in found["suspects"]] == [(9, "rows")]
    assert reports.of("audit", served.opened) is report
    assert reports.of("evaluation", served.opened).result(300)["n_images"] == 10
    said = {(kind, content[kind]) for kind, content in reports._events.said}
    assert said == {(kind, name) for kind in ("report", "study") for name in ("audit", "evaluation")}
    served.relabel([9], "rows")
    again = reports.of("audit", served.opened)
    assert again is not report
    assert again.result(300)["suspects"] == ()


def test_decisions_are_remembered_for_the_photo_under_its_label(reports, served):
    found = reports.of("audit", served.opened).result(300)
    (entry,) = reports.decided(found, served.opened)["suspects"]
    assert entry["decision"] is None
    reports.decide(served.opened, "suspects", [9], ["columns", "rows"], "keep")
    again = Reports(Heard(), PhotoStore(served.photo_store.folder))
    assert [one["decision"] for one in again.decided(found, served.opened)["suspects"]] == ["keep"]
    other = found | {"suspects": [found["suspects"][0] | {"suggested": "checks"}]}
    assert [one["decision"] for one in again.decided(other, served.opened)["suspects"]] == [None]
    again.close()
    for name, decision in (("confused", "keep"), ("suspects", "burn")):
        with pytest.raises(Refused, match="expected one of"):
            reports.decide(served.opened, name, [9], [], decision)


def test_a_report_on_a_model_that_changed_is_stopped(reports, served, monkeypatch):
    going, go_on = threading.Event(), threading.Event()

    def slow(opened, progress):
        going.set()
        assert go_on.wait(300)
        progress("looking", 1, 2)
        return {"whole": True}

    monkeypatch.setitem(reports_module.REPORTS, "audit", slow)
    first = reports.of("audit", served.opened)
    assert going.wait(300)
    served.relabel([9], "rows")
    second = reports.of("audit", served.opened)
    go_on.set()
    with pytest.raises(ModelChanged):
        first.result(300)
    assert second.result(300) == {"whole": True}


def test_a_report_that_failed_is_made_again(reports, served, monkeypatch):
    def fail(opened, progress):
        raise MemoryError

    monkeypatch.setitem(reports_module.REPORTS, "audit", fail)
    with pytest.raises(MemoryError):
        reports.of("audit", served.opened).result(300)
    monkeypatch.undo()
    assert reports.of("audit", served.opened).result(300)["n_images"] == 10

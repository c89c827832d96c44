"""Objects kept in other processes: made again, change by change, when they are lost. Ray is a fake here."""

from __future__ import annotations

import pytest
from fake_ray import FakeRay

from lnbnn.cluster import actors
from lnbnn.cluster.actors import KeptObject, ask_all, n_machines
from lnbnn.errors import InvalidInputError, LnbnnError


class Ledger:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line)
        return len(self.lines)

    def read(self):
        return self.lines

    def fail(self, kind):
        raise kind("no room")


@pytest.fixture
def ray(monkeypatch):
    return FakeRay().install(monkeypatch)


def kept(*lines):
    one = KeptObject(Ledger, "the ledger")
    for line in lines:
        one.change("write", lambda line=line: (line,))
    return one


def test_changes_and_answers(ray):
    one = kept("a", "b")
    assert one.change("write", lambda: ("c",)) == 3
    assert ask_all([one, kept("z")], "read") == [["a", "b", "c"], ["z"]]
    assert ray.n_started == 2


@pytest.mark.parametrize("call", [1, 2, 3])
def test_lost_at_any_change_it_has_each_change_once(ray, call, caplog):
    ray.lose_at = {call}
    one = kept("a", "b")
    assert one.change("write", lambda: ("c",)) == 3
    assert ask_all([one], "read") == [["a", "b", "c"]]
    assert ray.n_started == 2
    assert "the ledger was lost and is made again (the actor died)" in caplog.text


def test_lost_while_it_is_asked(ray):
    one = kept("a", "b")
    ray.lose_at = {3, 6}  # the question, and the same question of the second
    assert ask_all([one], "read") == [["a", "b"]]
    assert ray.n_started == 3


def test_lost_while_it_is_made_again(ray):
    one = kept("a", "b")
    ray.lose_at = {3, 4, 6}  # the question, and twice while the changes are made again
    assert ask_all([one], "read") == [["a", "b"]]
    assert ray.n_started == 4


def test_two_that_find_it_lost_make_it_again_once(ray):
    one = kept("a")
    ray.lose_at = {3}
    first, second = one.send("read"), one.send("read")
    assert one.receive(first, "read") == one.receive(second, "read") == ["a"]
    assert ray.n_started == 2


def test_it_is_not_made_again_for_ever(ray):
    one = kept("a")
    ray.lose_at = set(range(2, 1000))
    with pytest.raises(LnbnnError, match="the ledger was lost 5 times while it was made"):
        ask_all([one], "read")


def test_errors_of_lnbnn_come_through(ray):
    with pytest.raises(InvalidInputError, match=r"^Ray worker on .*: no room$"):
        ask_all([kept()], "fail", InvalidInputError)


@pytest.mark.parametrize(
    ("kind", "words"), [(MemoryError, "does not fit into the memory"), (KeyError, r"the ledger failed \('no room'\)")]
)
def test_other_errors_are_one_line(ray, kind, words):
    with pytest.raises(LnbnnError, match=words):
        ask_all([kept()], "fail", kind)


def test_an_error_of_ray_itself_is_one_line(ray, monkeypatch):
    one = kept("a")

    def fail(reference, timeout=None):
        raise ray.exceptions.ObjectStoreFullError("the store is full\nof many objects")

    monkeypatch.setattr(ray, "get", fail)
    with pytest.raises(LnbnnError, match=r"^the ledger gave no answer \(the store is full\); look at ray status\.$"):
        ask_all([one], "read")


def test_objects_are_spread_over_the_nodes_that_have_cores(ray):
    ray.n_nodes = 3
    made = [KeptObject(Ledger, f"ledger {place}", place) for place in range(4)]
    assert ray.started_on == [(f"node{place % 3}", True) for place in range(4)]
    ray.n_nodes = 1  # the others are lost
    ray.lose_at = {1}
    assert ask_all(made[2:3], "read") == [[]]
    assert ray.started_on[-1] == ("node0", True)
    ray.n_nodes = 0
    KeptObject(Ledger, "ledger")
    assert ray.started_on[-1] == "SPREAD"


def test_another_version_is_refused(ray, monkeypatch):
    monkeypatch.setattr(actors, "__version__", "0.0.1")
    one = KeptObject(Ledger, "the ledger")
    monkeypatch.undo()
    assert "lnbnn" in str(actors._Holder("0.0.1", Ledger).call("read"))
    del one


def test_machines_are_counted(ray):
    assert n_machines() == 2
    ray.n_nodes = 0
    assert n_machines() == 1

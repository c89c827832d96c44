"""Work on a cluster: in order, each item once, few ahead, clear errors; on a fake pool. test_ray.py has real ones."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from lnbnn.cluster import tasks
from lnbnn.cluster.tasks import RayCluster, in_order
from lnbnn.errors import ImageReadError, InvalidInputError, LnbnnError
from lnbnn.version import __version__


class FakePool:
    """Doubles numbers; chunks are done in any order."""

    def __init__(self, size=2, answer=None):
        self.n_cores, self.answer = size, answer or (lambda items: [2 * item for item in items])
        self.under_way, self.most_under_way, self.cancelled, self.timeouts = [], 0, [], []

    def size(self):
        return self.n_cores

    def submit(self, items):
        self.under_way.append(items)
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        return items

    def result(self, task, timeout_s):
        self.timeouts.append(timeout_s)
        found = self.answer(task)
        if found is not None:
            self.under_way.remove(task)
        return found

    def cancel(self, task):
        self.cancelled.append(task)


@pytest.mark.parametrize("n", [0, 1, 4, 5, 33])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_results_are_in_order_and_complete(n, size):
    assert list(in_order(FakePool(size), range(n), chunk=4)) == [2 * item for item in range(n)]


def test_few_chunks_are_under_way():
    pool = FakePool(2)
    found = in_order(pool, iter(range(10_000)), chunk=1)
    assert [next(found) for _ in range(500)] == [2 * item for item in range(500)]
    assert pool.most_under_way == 7  # three per core, and the one that is asked for


def test_a_reader_that_stops_cancels_the_rest():
    pool = FakePool(1)
    found = in_order(pool, range(100), chunk=2)
    next(found)
    found.close()
    assert pool.cancelled == [[2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("answer", [lambda items: items[:-1], lambda items: [*items, 0], lambda items: []])
def test_a_hole_is_an_error(answer):
    with pytest.raises(LnbnnError, match=r"gave \d results for 4 items: an image and 3 more"):
        list(in_order(FakePool(answer=answer), range(8), chunk=4))


def test_patience_ends(caplog):
    pool = FakePool(answer=lambda items: None)
    with pytest.raises(LnbnnError, match=r"gave no result for b/c\.jpg and 1 more within 0 s; look at ray status"):
        list(in_order(pool, [Path("b/c.jpg"), "d.jpg"], patience_s=0.01))
    assert "no result from the Ray cluster" in caplog.text
    assert 0 < pool.timeouts[0] <= 0.01


def test_a_worker_does_a_chunk_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(os.getcwd())
    monkeypatch.setattr(tasks, "_work_of", lambda reference: lambda item: (item, os.getcwd()))
    found = pickle.loads(tasks._run(__version__, str(tmp_path), ["reference"], ["a", "b"]))
    assert found == [("a", str(tmp_path)), ("b", str(tmp_path))]


def test_a_folder_that_a_worker_does_not_have_is_no_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tasks, "_work_of", lambda reference: str.upper)
    assert pickle.loads(tasks._run(__version__, str(tmp_path / "none"), ["reference"], ["a"])) == ["A"]


def test_another_version_is_refused(tmp_path):
    error = pickle.loads(tasks._run("0.0.1", str(tmp_path), [], ["a"]))
    assert isinstance(error, LnbnnError)
    assert str(error).endswith(f"it has lnbnn {__version__}, not 0.0.1")


def test_an_error_of_lnbnn_says_where(monkeypatch, tmp_path):
    def fail(item):
        raise ImageReadError("the disk is full")

    monkeypatch.setattr(tasks, "_work_of", lambda reference: fail)
    error = pickle.loads(tasks._run(__version__, str(tmp_path), ["reference"], ["a"]))
    assert type(error) is ImageReadError
    assert str(error).startswith("Ray worker on ")
    assert str(error).endswith(": the disk is full")


@pytest.mark.parametrize("address", ["", "ray", "host", "host:", "host:0", "host:99999", "http://a:1", "a b:1", ":1"])
def test_addresses_are_checked(address):
    with pytest.raises(InvalidInputError, match="auto, local or HOST:PORT"):
        RayCluster(address).check()


@pytest.mark.parametrize("address", ["auto", "local", "10.0.0.1:6379", "head.example.org:6379", "[::1]:6379"])
def test_good_addresses_pass(address):
    RayCluster(address).check()

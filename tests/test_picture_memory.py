"""A budget of bytes that threads share."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lnbnn.files.picture_memory import ByteBudget


def test_never_more_than_the_budget_is_held():
    budget, held, most, lock = ByteBudget(10), 0, 0, threading.Lock()

    def work(n_bytes):
        nonlocal held, most
        with budget.hold(n_bytes):
            with lock:
                held += n_bytes
                most = max(most, held)
            time.sleep(0.001)
            with lock:
                held -= n_bytes

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [1, 4, 10, 3, 7, 2, 9, 5] * 10))
    assert 5 < most <= 10


def test_a_large_share_is_not_overtaken_for_ever():
    budget, order, started = ByteBudget(10), [], threading.Event()

    def large():
        started.set()
        with budget.hold(10):
            order.append("large")

    def small():
        with budget.hold(1):
            order.append("small")

    with budget.hold(5):
        first = threading.Thread(target=large)
        first.start()
        started.wait()
        time.sleep(0.05)
        second = threading.Thread(target=small)
        second.start()
        second.join(0.05)
        assert order == []
    first.join()
    second.join()
    assert order == ["large", "small"]


def test_more_than_the_whole_is_refused():
    with pytest.raises(MemoryError), ByteBudget(10).hold(11):
        pass


def test_an_error_gives_the_share_back():
    budget = ByteBudget(10)
    with pytest.raises(KeyError), budget.hold(10):
        raise KeyError
    with budget.hold(10):
        pass

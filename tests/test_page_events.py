"""Events: sent to every listener, from any thread; one that does not read is disconnected."""

from __future__ import annotations

import asyncio
import threading

from lnbnn.page.events import Events


async def _next(listener):
    return await asyncio.wait_for(anext(listener), 5)


def test_all_listeners_are_told_from_any_thread():
    async def run():
        events = Events()
        events.say("model", generation=0)  # nobody listens, and there is no loop
        events.open()
        listeners = [events.listen() for _ in range(2)]
        assert [await _next(one) for one in listeners] == [": hello\n\n"] * 2
        thread = threading.Thread(target=lambda: events.say("model", text="a\n\ndata: forged", label="\udcff"))
        thread.start()
        thread.join()
        told = [await _next(one) for one in listeners]
        events.close()
        ended = [await anext(one, None) for one in listeners]
        return told, ended

    told, ended = asyncio.run(run())
    assert told == ['event: model\ndata: {"text":"a\\n\\ndata: forged","label":"\\udcff"}\n\n'] * 2
    assert ended == [None, None]


def test_a_listener_that_does_not_read_is_let_go(monkeypatch):
    monkeypatch.setattr("lnbnn.page.events._MOST_WAITING", 3)

    async def run():
        events = Events()
        events.open()
        listener = events.listen()
        await _next(listener)
        for number in range(10):
            events.say("progress", done=number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [text async for text in listener], len(events._listeners)

    texts, n_left = asyncio.run(run())
    assert len(texts) == 3
    assert n_left == 0


def test_a_quiet_connection_is_kept_alive(monkeypatch):
    monkeypatch.setattr("lnbnn.page.events._PULSE_S", 0.01)

    async def run():
        events = Events()
        listener = events.listen()
        return [await _next(listener) for _ in range(2)]

    assert asyncio.run(run()) == [": hello\n\n", ": here\n\n"]

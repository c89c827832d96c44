"""Changes and progress, sent to every open page as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

__all__ = ["Events"]

_MOST_WAITING = 200  # events; a listener that does not read them is disconnected, and reconnects by itself
_PULSE_S = 15.0


class Events:
    """Sends events to listeners; may be called from any thread."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Call this in the event loop that serves the listeners."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Disconnect every listener."""
        for queue in self._listeners:
            queue.put_nowait(None)

    def say(self, kind: str, **content: Any) -> None:
        """Send an event to all listeners; it is lost if there is no loop."""
        if self._loop is not None and not self._loop.is_closed():
            text = f"event: {kind}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"
            self._loop.call_soon_threadsafe(self._tell, text)

    def _tell(self, text: str) -> None:
        for queue in list(self._listeners):
            if queue.qsize() < _MOST_WAITING:
                queue.put_nowait(text)
            else:
                self._listeners.discard(queue)
                queue.put_nowait(None)

    async def listen(self, first: str = "") -> AsyncIterator[str]:
        """The events as text, from now on; a comment now and then keeps the connection alive."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield f": hello\n\n{first}"
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), _PULSE_S)
                except TimeoutError:
                    text = ": here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self._listeners.discard(queue)

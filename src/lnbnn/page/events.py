"""What happens to the model, told to every open page as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

__all__ = ["Events"]

_MOST_WAITING = 200  # events; who does not read them is let go, and comes back by itself
_PULSE_S = 15.0


class Events:
    """Tells listeners; may be told things from any thread."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[str | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """To be called in the loop that the listeners are served in."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Let every listener go."""
        for queue in self._listeners:
            queue.put_nowait(None)

    def say(self, kind: str, **content: Any) -> None:
        """Tell all listeners; lost if there is no loop."""
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

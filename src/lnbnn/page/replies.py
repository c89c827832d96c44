"""Replies: JSON of any text, and one table from errors to HTTP statuses."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lnbnn.errors import ImageReadError, InvalidInputError, LnbnnError, ModelInUseError, UnknownNameError

__all__ = ["Refused", "as_reply", "error_reply", "handle_disconnect", "handle_error", "status_of"]


class Refused(Exception):
    """A request that is refused: its status, why, and what to do."""

    def __init__(self, status: int, text: str, *, retry_s: int | None = None) -> None:
        super().__init__(text)
        self.status, self.retry_s = status, retry_s


_STATUS: list[tuple[type[Exception], int]] = [
    (ModelInUseError, 503),
    (ImageReadError, 422),
    (InvalidInputError, 422),
    (UnknownNameError, 422),
    (LnbnnError, 409),
    (MemoryError, 503),
    (OSError, 500),
]


def status_of(error: Exception) -> int:
    """The HTTP status for an error."""
    if isinstance(error, Refused):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def as_reply(value: Any, status: int = 200) -> Response:
    """Plain values as JSON; characters that cannot be sent are escaped, and NaN becomes null."""
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def error_reply(status: int, text: str, *, retry_s: int | None = None) -> Response:
    """The reply to a request that failed."""
    reply = as_reply({"error": text}, status)
    if retry_s is not None:
        reply.headers["Retry-After"] = str(retry_s)
    return reply


async def handle_error(request: Request, error: Exception) -> Response:
    """The reply to a request that ended with an expected error."""
    status = status_of(error)
    text = str(error) if isinstance(error, LnbnnError | Refused) else "out of memory, or a disk error."
    retry_s = getattr(error, "retry_s", None)
    return error_reply(status, text, retry_s=2 if retry_s is None and status == 503 else retry_s)


async def handle_disconnect(request: Request, error: Exception) -> Response:
    """The client has disconnected."""
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=400)

"""The application: routes, static files, errors, start and stop, all behind the guard."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lnbnn.classifiers.base import Classifier
from lnbnn.errors import LnbnnError
from lnbnn.page.api import Api
from lnbnn.page.change_queue import ChangeQueue
from lnbnn.page.events import Events
from lnbnn.page.guard import Guard, Keys, Limits, address_of
from lnbnn.page.photo_store import PhotoStore, photo_store_folder
from lnbnn.page.replies import Refused, error_reply, handle_disconnect, handle_error
from lnbnn.page.served_model import ServedModel
from lnbnn.trust.photos import Folders

__all__ = ["STATIC", "make_app"]

_logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"


def make_app(
    path: str | os.PathLike[str],
    keys: Keys,
    *,
    names: Iterable[str] = ("127.0.0.1", "localhost", "::1"),
    any_address: bool = False,
    images: Folders = (),
    new: Callable[[], Classifier] | None = None,
    trust_network: bool = False,
    limits: Limits | None = None,
) -> Guard:
    """The page of a model folder, as an ASGI application.

    Parameters
    ----------
    path : path
        The model; if there is none yet, the page starts empty.
    keys : Keys
    names, any_address, limits
        As in :class:`~lnbnn.page.guard.Guard`.
    images : folders
        Folders with the labeled photos, if they have moved.
    new, trust_network
        As in :class:`~lnbnn.page.served_model.ServedModel`.
    """
    limits = limits or Limits()
    events, photo_store = Events(), PhotoStore(photo_store_folder(path), images)
    served = ServedModel(path, photo_store, new=new, trust_network=trust_network)
    changes = ChangeQueue(served, events)
    api = Api(served, changes, events, limits)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        events.open()
        try:
            yield
        finally:
            changes.close()
            api.close()
            photo_store.close()

    async def log_in(request: Request) -> Response:
        if not keys.has_password:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return FileResponse(STATIC / "login.html")
        async with request.form(max_files=0, max_fields=3) as form:
            if keys.opens(str(form.get("password", "")), address_of(request.scope)):
                return keys.let_in(RedirectResponse("/", 303))
        return FileResponse(STATIC / "login.html", 403)

    async def show(request: Request) -> Response:
        return FileResponse(STATIC / ("api.html" if request.url.path == "/api" else "index.html"))

    app = Starlette(
        routes=[
            Route("/", show),
            Route("/api", show),
            Route("/login", log_in, methods=["GET", "POST"]),
            *api.routes(),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={
            LnbnnError: handle_error,
            Refused: handle_error,
            MemoryError: handle_error,
            OSError: handle_error,
            ClientDisconnect: handle_disconnect,
            HTTPException: _http_error,
            Exception: _own_error,
        },
        lifespan=lifespan,
    )
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # malformed forms are not worth a log line
    photo_store.open()
    changes.start()
    guard = Guard(app, keys=keys, names=names, any_address=any_address, limits=limits)
    guard.before_end = api.let_go
    return guard


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_reply(error.status_code, error.detail)


async def _own_error(request: Request, error: Exception) -> Response:
    """A bug: details go to the terminal, not to the client."""
    _logger.error(
        "%s %s failed: %r", request.method, request.url.path, error, exc_info=_logger.isEnabledFor(logging.DEBUG)
    )
    return error_reply(500, "something went wrong here; the terminal of lnbnn serve says what.")

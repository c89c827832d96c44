"""The application: routes, static files, errors, start and end, all behind the guard."""

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
from lnbnn.page.bench import Bench
from lnbnn.page.desk import Desk
from lnbnn.page.events import Events
from lnbnn.page.guard import Guard, Keys, Limits, address_of
from lnbnn.page.replies import Refused, error_reply, handle_disconnect, handle_error
from lnbnn.page.shelf import Shelf, shelf_folder
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
        The model; one that is not there begins empty.
    keys : Keys
    names, any_address, limits
        As of :class:`~lnbnn.page.guard.Guard`.
    images : folders
        Where the labeled photos are now; by default where they were.
    new, trust_network
        As of :class:`~lnbnn.page.bench.Bench`.
    """
    limits = limits or Limits()
    events, shelf = Events(), Shelf(shelf_folder(path), images)
    bench = Bench(path, shelf, new=new, trust_network=trust_network)
    desk = Desk(bench, events)
    api = Api(bench, desk, shelf, events, limits)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        events.open()
        try:
            yield
        finally:
            desk.close()
            api.close()
            shelf.close()

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
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # forms that are none are no news
    shelf.open()
    desk.start()
    guard = Guard(app, keys=keys, names=names, any_address=any_address, limits=limits)
    guard.before_end = api.let_go
    return guard


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_reply(error.status_code, error.detail)


async def _own_error(request: Request, error: Exception) -> Response:
    """An error of our own: the user of the terminal is told, the client is not."""
    _logger.error(
        "%s %s failed: %r", request.method, request.url.path, error, exc_info=_logger.isEnabledFor(logging.DEBUG)
    )
    return error_reply(500, "something went wrong here; the terminal of lnbnn serve says what.")

"""Serve the page of a model: a socket, a secret or a password, and the address to open."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from collections.abc import Callable

import uvicorn

from lnbnn.errors import InvalidInputError
from lnbnn.page.app import make_app
from lnbnn.page.guard import Guard, Keys
from lnbnn.trust.photos import Folders

__all__ = ["PORT", "PageServer", "serve"]

PORT = 8000
"""The default port, if it is free."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MIN_PASSWORD = 8
_GRACE_S = 2


def serve(
    path: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    password: str | None = None,
    name: str | None = None,
    images: Folders = (),
    trust_network: bool = False,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Serve the page of a model until Ctrl-C.

    Parameters
    ----------
    path : path
        The model folder; one that is not there begins empty.
    host : str
        The address to listen on. Any but this machine's own loopback needs a password.
    port : int, optional
        By default 8000, or any that is free if that is taken.
    password : str, optional
        Asked for instead of the secret in the address.
    name : str, optional
        Another name that this machine goes by.
    on_ready : callable
        Called with the address to open, once connections are taken.
    """
    is_local = host in _LOOPBACK
    if not is_local and password is None:
        raise InvalidInputError(f"listening on {host} needs a password; set LNBNN_PASSWORD, or leave --host out.")
    if password is not None and len(password) < _MIN_PASSWORD:
        raise InvalidInputError(f"a password must have at least {_MIN_PASSWORD} characters; got {len(password)}.")
    listener = _listen(host, port)
    try:
        port = listener.getsockname()[1]
        secret = None if password is not None else secrets.token_urlsafe(24)
        keys = Keys(secret=secret, password=password, cookie=f"lnbnn-{port}")
        names = {*_LOOPBACK, host, *([] if is_local else [socket.gethostname()]), *([name] if name else [])}
        app = make_app(
            path,
            keys,
            names=names,
            any_address=not is_local,
            images=images,
            trust_network=trust_network,
        )
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{port}/" + ("" if secret is None else f"?secret={secret}"))
        PageServer(app).run(sockets=[listener])
    finally:
        listener.close()


class PageServer(uvicorn.Server):
    """The server of an application behind its guard."""

    def __init__(self, app: Guard) -> None:
        config = uvicorn.Config(
            app,
            log_level="critical",  # malformed requests are not worth a line; the application reports bugs
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=4 * app.limits.n_requests,
            timeout_graceful_shutdown=_GRACE_S,
            h11_max_incomplete_event_size=1 << 16,
        )
        super().__init__(config)
        self._before_end = app.before_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; listening pages are disconnected first, or they would be waited for."""
        self._before_end()
        await super().shutdown(sockets)


def _listen(host: str, port: int | None) -> socket.socket:
    """A listening socket."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    for wanted in (PORT, 0) if port is None else (port,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, wanted))
            listener.listen(512)
            return listener
        except OSError as error:
            listener.close()
            if wanted == 0 or port is not None:
                reason = error.strerror or error
                raise InvalidInputError(f"{host}:{wanted} cannot be listened on ({reason}); choose another.") from error
    raise AssertionError

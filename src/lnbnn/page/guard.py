"""Access control and limits: Host, Origin, secret or password, size and speed of uploads, headers of replies."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lnbnn.page.replies import Refused, error_reply

__all__ = ["Guard", "Keys", "Limits", "Places", "address_of"]

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=(), usb=(), payment=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_SAFE = ("GET", "HEAD")
_MOST_ADDRESSES = 1000  # for which wrong passwords are counted
_OPEN_PATHS = ("/login", "/static/")  # open to anyone: the login form, styles and scripts
_WITH_PHOTOS = ("/api/predict", "/api/explain", "/api/add")


@dataclass(frozen=True)
class Limits:
    """Limits; what exceeds them is refused with 413, 429 or 503."""

    photo_bytes: int = 64 << 20
    request_bytes: int = 256 << 20
    json_bytes: int = 1 << 20
    n_files: int = 200
    n_requests: int = 256
    n_questions: int = 128
    n_uploads: int = 16
    n_listeners: int = 32
    idle_s: float = 20.0
    """The longest pause within an upload."""
    bytes_per_s: int = 8 << 10
    """The lowest speed of an upload after its first minute."""


class Keys:
    """A secret in the address, or a password. The browser keeps a session, neither of the two."""

    def __init__(self, *, secret: str | None = None, password: str | None = None, cookie: str = "lnbnn") -> None:
        self.secret, self._password, self.cookie = secret, password, cookie
        self.session = secrets.token_urlsafe(24)
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    @property
    def has_password(self) -> bool:
        """Whether a password is asked for."""
        return self._password is not None

    def opens(self, given: str, address: str = "") -> bool:
        """Whether this is the secret or the password.

        Passwords can be guessed: after ten wrong ones from an address, nothing from there is looked at for a minute.
        """
        if self._password is None:
            return self.secret is not None and _same(given, self.secret)
        failures, now = self._failures.setdefault(address, deque()), time.monotonic()
        self._failures.move_to_end(address)
        while len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)
        while failures and now - failures[0] > 60.0:
            failures.popleft()
        if len(failures) >= 10:
            raise Refused(429, "too many wrong passwords; wait a minute.", retry_s=60)
        if not _same(given, self._password):
            failures.append(now)
            return False
        return True

    def is_inside(self, headers: Headers, address: str = "") -> bool:
        """Whether a request carries the session, or the secret or password as ``Authorization: Bearer``."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and given:
            return self.opens(given.strip(), address)
        try:
            held = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return held is not None and _same(held.value, self.session)

    def let_in(self, reply: Response) -> Response:
        """A reply that gives the browser its session."""
        reply.set_cookie(self.cookie, self.session, httponly=True, samesite="strict", path="/")
        return reply


def address_of(scope: Scope) -> str:
    """Where a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), known.encode("utf-8", "surrogateescape"))


class Guard:
    """Middleware that passes only permitted requests to the application.

    Parameters
    ----------
    app : ASGI application
    keys : Keys
    names : iterable of str
        Names that this machine may be called by in the ``Host`` of a request. An address in figures passes too where
        ``any_address`` is true: it needs no name that others could point elsewhere.

    Attributes
    ----------
    before_end : callable
        To be called when the server is about to end, while connections are still open.
    """

    def __init__(
        self, app: ASGIApp, *, keys: Keys, names: Iterable[str], any_address: bool = False, limits: Limits | None = None
    ) -> None:
        self.app, self.keys, self.any_address = app, keys, any_address
        self.names = frozenset(name.lower() for name in names)
        self.limits = limits or Limits()
        self.before_end: Callable[[], None] = lambda: None
        self._n_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        send = self._with_headers(scope, send)
        reply = self._refusal(scope)
        if reply is not None:
            await reply(scope, receive, send)
            return
        self._n_requests += 1
        try:
            await self.app(scope, _Body(scope, receive, self.limits), send)
        finally:
            self._n_requests -= 1

    def _refusal(self, scope: Scope) -> Response | None:
        """The reply to a request that may not pass; None for one that may."""
        headers = Headers(scope=scope)
        try:
            self._check_site(scope, headers)
            self._check_length(scope, headers)
            if self._n_requests >= self.limits.n_requests:
                raise Refused(503, "too many requests at a time; try again.", retry_s=1)
            return self._at_the_door(scope, headers)
        except Refused as error:
            return error_reply(error.status, str(error), retry_s=error.retry_s)

    def _check_site(self, scope: Scope, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise Refused(421, "this server has another name; open the address that lnbnn serve printed.")
        site = headers.get("sec-fetch-site", "none")
        is_visit = scope["method"] in _SAFE and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not (is_visit and not scope["path"].startswith("/api/")):
            raise Refused(403, "requests from other sites are refused.")
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) != hosts[0].lower():
            raise Refused(403, "requests from other sites are refused.")

    def _is_ours(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, _ = parts.hostname, parts.port  # raises if the port is not a number
            if name is None or "@" in host or "/" in host:
                return False
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            return self.any_address and bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def _check_length(self, scope: Scope, headers: Headers) -> None:
        length = headers.get("content-length")
        if length is not None and (not length.isdecimal() or int(length[:20]) > _most(scope, self.limits)):
            raise Refused(
                413, f"a request may have at most {_most(scope, self.limits) >> 20} MiB here; send less at a time."
            )

    def _at_the_door(self, scope: Scope, headers: Headers) -> Response | None:
        path = scope["path"]
        if path == "/" and scope["method"] == "GET":
            given = parse_qs(scope.get("query_string", b"").decode("ascii", "replace"), max_num_fields=9).get("secret")
            if given and not self.keys.has_password:
                if not self.keys.opens(given[0]):
                    raise Refused(403, "the secret in the address is not this server's; use the address it printed.")
                return self.keys.let_in(RedirectResponse("/", 303))
        if path.startswith(_OPEN_PATHS) or self.keys.is_inside(headers, address_of(scope)):
            return None
        if path == "/" and self.keys.has_password:
            return RedirectResponse("/login", 303)
        raise Refused(401, "open the address that lnbnn serve printed; scripts send Authorization: Bearer SECRET.")

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if message["status"] in (408, 413):  # what is left of the body is not read
                    headers["Connection"] = "close"
            await send(message)

        return sending


def _most(scope: Scope, limits: Limits) -> int:
    return limits.request_bytes if scope["path"] in _WITH_PHOTOS else limits.json_bytes


def _host_of(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


class _Body:
    """The body of a request as it arrives, within limits of size and time."""

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits, self._most = receive, limits, _most(scope, limits)
        self._n_bytes, self._is_whole, self._start = 0, False, time.monotonic()

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._is_whole:
            return await self._receive()
        until = self._start + 60.0 + self._n_bytes / self._limits.bytes_per_s
        wait = min(self._limits.idle_s, until - time.monotonic())
        try:
            message = await asyncio.wait_for(self._receive(), max(wait, 0.0))
        except TimeoutError:
            raise Refused(408, "the request arrived too slowly; try again.") from None
        if message["type"] == "http.request":
            self._n_bytes += len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._n_bytes > self._most:
                raise Refused(413, f"a request may have at most {self._most >> 20} MiB here; send less at a time.")
        return message


class Places:
    """A limited number of places; without a free one, a request is refused with 503."""

    def __init__(self, n: int, what: str) -> None:
        self._left, self._what = n, what

    def check(self) -> None:
        """Refuse if no place is free."""
        if self._left <= 0:
            raise Refused(503, f"too many {self._what} at a time; try again.", retry_s=1)

    def __enter__(self) -> None:
        self.check()
        self._left -= 1

    def __exit__(self, *_: object) -> None:
        self._left += 1

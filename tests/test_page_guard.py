"""Access control and limits: every attack that must fail, tried on an application that answers anything."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from lnbnn.page.guard import Guard, Keys, Limits, Places
from lnbnn.page.replies import Refused, error_reply

SECRET = "s3cret-of-the-test"
BASE = "http://127.0.0.1:8000"
BEARER = {"Authorization": f"Bearer {SECRET}"}


async def echo(scope, receive, send):
    """How long the body is; what the guard's body raises becomes its reply."""
    try:
        body = await Request(scope, receive).body()
        reply = PlainTextResponse(str(len(body)))
    except Refused as error:
        reply = error_reply(error.status, str(error))
    await reply(scope, receive, send)


def client(*, base=BASE, keys=None, app=echo, **how):
    guard = Guard(app, keys=keys or Keys(secret=SECRET), names=["127.0.0.1", "localhost", "::1"], **how)
    return TestClient(guard, base_url=base, follow_redirects=False)


def with_password(**how):
    return client(keys=Keys(password="correct horse"), **how)


# ---- names and sites -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1"])
def test_the_names_of_this_machine_pass(host):
    assert client().get("/api/x", headers={**BEARER, "Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8000",
        "localhost@evil.example",
        "",
        "192.168.1.5",
        "[::2]",
        "127.0.0.1/evil",
        "[::1",
        "localhost.",
        "127.0.0.1:80:80x",
        "0x7f.1",
    ],
)
def test_a_forged_host_is_refused_even_with_the_secret(host):
    reply = client().get("/api/x", headers={**BEARER, "Host": host})
    assert reply.status_code == 421
    assert "another name" in reply.json()["error"]


def test_elsewhere_addresses_in_figures_pass_and_names_do_not():
    """A name can be pointed at this machine by others, an address cannot."""
    there = client(any_address=True)
    assert there.get("/api/x", headers={**BEARER, "Host": "192.168.1.5:8000"}).status_code == 200
    assert there.get("/api/x", headers={**BEARER, "Host": "[fe80::1]:8000"}).status_code == 200
    assert there.get("/api/x", headers={**BEARER, "Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9000"},
        {"Origin": "file://"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_requests_from_other_sites_are_refused(headers, method):
    assert client().request(method, "/api/x", headers=BEARER | headers).status_code == 403


def test_requests_from_the_page_itself_and_visits_pass():
    own = {"Origin": BASE, "Sec-Fetch-Site": "same-origin"}
    assert client().post("/api/x", headers=BEARER | own).status_code == 200
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client().get("/", headers=BEARER | visit).status_code == 200


# ---- the secret and the password -------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer"}, {"Cookie": "lnbnn=x"}, {"Cookie": "lnbnn"}])
def test_nothing_is_answered_without_the_secret(headers):
    for path in ("/", "/api/model", "/api/images/1/picture", "/anything"):
        assert client().get(path, headers=headers).status_code == 401
    assert client().get("/static/style.css").status_code == 200


def test_the_secret_in_the_address_becomes_a_session():
    page = client()
    reply = page.get("/", params={"secret": SECRET})
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert SECRET not in cookie, "the browser keeps a session, not the secret"
    assert page.get("/api/x").status_code == 200
    assert client().get("/", params={"secret": "wrong"}).status_code == 403
    assert client().get("/api/x", params={"secret": SECRET}).status_code == 401, "only where it becomes a session"


def test_a_session_of_another_server_is_none():
    other = client()
    other.get("/", params={"secret": SECRET})
    held = "; ".join(f"{name}={value}" for name, value in other.cookies.items())
    assert other.get("/api/x").status_code == 200
    assert client().get("/api/x", headers={"Cookie": held}).status_code == 401


def test_a_password_is_asked_for():
    page = with_password()
    assert page.get("/").headers["location"] == "/login"
    assert page.get("/login").status_code == 200
    assert page.get("/api/x").status_code == 401
    assert page.get("/api/x", headers={"Authorization": "Bearer correct horse"}).status_code == 200
    assert page.get("/", params={"secret": "correct horse"}).headers["location"] == "/login"


def test_passwords_cannot_be_tried_without_end(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("lnbnn.page.guard.time.monotonic", lambda: now[0])
    page, right = with_password(), {"Authorization": "Bearer correct horse"}
    for number in range(10):
        assert page.get("/api/x", headers={"Authorization": f"Bearer {number}"}).status_code == 401
    reply = page.get("/api/x", headers=right)
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "60")
    now[0] += 61.0
    assert page.get("/api/x", headers=right).status_code == 200


def test_wrong_passwords_from_elsewhere_shut_nobody_out():
    keys = Keys(password="correct horse")
    for number in range(3000):
        assert not keys.opens("x", f"192.168.1.{number}")
    for _ in range(9):
        assert not keys.opens("x", "192.168.1.9")
    assert keys.opens("correct horse", "192.168.1.8")
    assert not keys.opens("x", "192.168.1.9")
    with pytest.raises(Refused, match="wait a minute"):
        keys.opens("correct horse", "192.168.1.9")
    assert len(keys._failures) <= 1000


def test_a_secret_cannot_be_guessed_and_wrong_ones_shut_nobody_out():
    page = client()
    for number in range(50):
        assert page.get("/api/x", headers={"Authorization": f"Bearer {number}"}).status_code == 401
    assert page.get("/api/x", headers=BEARER).status_code == 200


# ---- how much --------------------------------------------------------------------------------------------------------

SMALL = Limits(request_bytes=2 << 20, json_bytes=1 << 20, n_requests=2, idle_s=0.05)


@pytest.mark.parametrize(("path", "most"), [("/api/relabel", 1 << 20), ("/api/predict", 2 << 20), ("/login", 1 << 20)])
def test_a_body_has_its_limit_declared_or_not(path, most):
    page = client(limits=SMALL)
    assert page.post(path, content=b"x" * most, headers=BEARER).text == str(most)
    declared = page.post(path, content=b"x" * (most + 1), headers=BEARER)
    chunked = page.post(path, content=(b"x" * 65536 for _ in range(most // 65536 + 1)), headers=BEARER)
    assert "content-length" not in chunked.request.headers
    for reply in (declared, chunked):
        assert reply.status_code == 413
        assert f"at most {most >> 20} MiB" in reply.json()["error"]
        assert reply.headers["connection"] == "close"


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 40, "0x10", ""])
def test_a_length_that_is_none_is_refused(length):
    headers = [(b"host", b"127.0.0.1"), (b"authorization", BEARER["Authorization"].encode())]
    sent = call(
        Guard(echo, keys=Keys(secret=SECRET), names=["127.0.0.1"]), [*headers, (b"content-length", length.encode())]
    )
    assert sent[0]["status"] == 413


def call(guard, headers, receive=None, path="/api/x"):
    """One request, as a server makes it; the messages that are sent."""
    sent = []

    async def send(message):
        sent.append(message)

    async def nothing():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    asyncio.run(guard(scope, receive or nothing, send))
    return sent


def test_a_body_that_does_not_come_is_not_waited_for():
    parts = iter([{"type": "http.request", "body": b"x", "more_body": True}])

    async def slow():
        part = next(parts, None)
        if part is None:
            await asyncio.sleep(60)
        return part

    headers = [(b"host", b"127.0.0.1"), (b"authorization", BEARER["Authorization"].encode())]
    sent = call(Guard(echo, keys=Keys(secret=SECRET), names=["127.0.0.1"], limits=SMALL), headers, slow)
    assert sent[0]["status"] == 408


def test_a_body_that_drips_is_not_waited_for(monkeypatch):
    """Each byte comes in time, all of them would take a day."""
    now = [0.0]
    monkeypatch.setattr("lnbnn.page.guard.time.monotonic", lambda: now[0])
    n_parts = [0]

    async def drip():
        now[0] += 10.0
        n_parts[0] += 1
        return {"type": "http.request", "body": b"x", "more_body": True}

    headers = [(b"host", b"127.0.0.1"), (b"authorization", BEARER["Authorization"].encode())]
    sent = call(Guard(echo, keys=Keys(secret=SECRET), names=["127.0.0.1"]), headers, drip)
    assert sent[0]["status"] == 408
    assert 3 < n_parts[0] < 10


def test_requests_at_a_time_have_a_limit():
    gate, inside = asyncio.Event(), []

    async def wait(scope, receive, send):
        inside.append(1)
        await gate.wait()
        await PlainTextResponse("done")(scope, receive, send)

    guard = Guard(wait, keys=Keys(secret=SECRET), names=["127.0.0.1"], limits=SMALL)

    async def one():
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        headers = [(b"host", b"127.0.0.1"), (b"authorization", BEARER["Authorization"].encode())]
        scope = {"type": "http", "method": "GET", "path": "/api/x", "headers": headers, "query_string": b""}
        await guard(scope, receive, send)
        return sent[0]

    async def three():
        first = [asyncio.ensure_future(one()) for _ in range(2)]
        while len(inside) < 2:
            await asyncio.sleep(0)
        third = await one()
        gate.set()
        return [reply["status"] for reply in await asyncio.gather(*first)], third, (await one())["status"]

    served, refused, later = asyncio.run(three())
    assert served == [200, 200]
    assert refused["status"] == 503
    assert dict(refused["headers"])[b"retry-after"] == b"1"
    assert later == 200


def test_places():
    places = Places(1, "questions")
    with places, pytest.raises(Refused, match="too many questions"), places:
        pass
    with places:
        pass


# ---- headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "status"), [("/api/x", 401), ("/static/x", 200), ("/login", 200)])
def test_every_reply_has_the_headers_that_shut_the_browser_in(path, status):
    reply = client().get(path)
    assert reply.status_code == status
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"
    assert reply.headers["cache-control"] == "no-store"


def test_websockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(echo, keys=Keys(secret=SECRET), names=[])({"type": "websocket"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]

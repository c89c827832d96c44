"""The real command: its address, its end, kill -9 and cut uploads while teaching, and the examples of the API."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from paging import Server, picture

from lnbnn.errors import InvalidInputError
from lnbnn.page.app import STATIC
from lnbnn.page.server import serve


def form(*contents):
    """A form of files as curl sends it: its body and its type."""
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="photo"; filename="%d.png"\r\n\r\n%s\r\n' % (number, content)
        for number, content in enumerate(contents)
    ]
    return b"".join(parts) + b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}


def add(server, label, *contents):
    body, headers = form(*contents)
    return server.ask(f"/api/add?label={label}", body, **headers)


@pytest.fixture
def copied(model, tmp_path):
    return shutil.copytree(model, tmp_path / "copied")


def test_the_address_it_prints_opens_the_page_and_sigterm_ends_it(copied):
    with Server(copied) as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?secret=[\w-]{32}", server.address)
        assert server.ask("/api/model")[1]["n_images"] == 9
        assert server.ask("/api/model", Authorization="Bearer x")[0] == 401
        assert server.ask("/api/model", Host="evil.example")[0] == 421
        said = server.close()
        assert server.process.returncode in (0, 128 + signal.SIGTERM, -signal.SIGTERM)
    assert "Traceback" not in said
    assert not [path for path in copied.parent.iterdir() if path.name not in ("copied",)], "looking leaves nothing"


def test_an_open_page_does_not_hold_up_the_end(copied):
    with Server(copied) as server:
        port = int(server.base.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as line:
            request = (
                f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {server.secret}\r\n\r\n"
            )
            line.sendall(request.encode())
            assert b"200 OK" in line.recv(4096)
            assert "Traceback" not in server.close()


def test_elsewhere_only_with_a_password(tmp_path):
    with pytest.raises(InvalidInputError, match="needs a password"):
        serve(tmp_path / "new", host="0.0.0.0")
    with pytest.raises(InvalidInputError, match="at least 8 characters"):
        serve(tmp_path / "new", password="short")


def test_a_port_that_is_taken_and_a_model_that_is_none(tmp_path, run_main):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "cannot be listened on" in run_main("serve", tmp_path / "new", "--port", port).error
    (tmp_path / "file").write_text("x")
    assert "a file is in the way" in run_main("serve", tmp_path / "file", "--port", "0").error


def test_a_password_in_place_of_the_secret(copied):
    with Server(copied, env={"LNBNN_PASSWORD": "correct horse"}) as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", server.address)
        assert server.ask("/api/model")[0] == 401
        assert server.ask("/api/model", Authorization="Bearer correct horse")[0] == 200


def test_without_the_extra_one_line_says_what_to_install(copied, tmp_path):
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "starlette.py").write_text("raise ModuleNotFoundError(name='starlette')")
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "none"), *sys.path])}
    command = [sys.executable, "-m", "lnbnn", "serve", str(copied)]
    done = subprocess.run(command, capture_output=True, text=True, env=given)
    assert done.returncode == 1
    assert done.stderr == "lnbnn: error: the page needs starlette; install it with: pip install 'lnbnn[page]'\n"


# ---- kills and cuts --------------------------------------------------------------------------------------------------


def test_kills_cuts_and_mutated_requests(tmp_path):
    """Nothing that was confirmed is lost, nothing is half taught; the long form is ``benchmarks/page.py``."""
    script = Path(__file__).with_name("page_soak.py")
    counts = ["--kills", "6", "--cuts", "20", "--requests", "300"]
    done = subprocess.run([sys.executable, script, tmp_path / "soak", *counts], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["kills"]["kills"] == 6
    assert found["kills"]["changes"] > 0
    assert found["cuts"]["cuts"] + found["cuts"]["whole"] == 20
    assert sum(found["requests"]["statuses"].values()) == 300


def test_an_upload_that_is_cut_teaches_nothing(copied):
    with Server(copied) as server:
        host, port = "127.0.0.1", int(server.base.rpartition(":")[2])
        body, headers = form(picture("rows", 1), picture("rows", 2))
        head = f"POST /api/add?label=rows HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.secret}\r\n"
        head += f"Content-Length: {len(body)}\r\nContent-Type: {headers['Content-Type']}\r\n\r\n"
        for cut in (0, 10, len(body) // 3, len(body) // 2, len(body) - 5):
            with socket.create_connection((host, port)) as line:
                line.sendall(head.encode() + body[:cut])
        assert server.ask("/api/model")[1]["n_images"] == 9
        status, reply = add(server, "rows", picture("rows", 1))
        assert (status, len(reply["added"])) == (200, 1)
        assert server.ask("/api/model")[1]["n_images"] == 10
        said = server.close()
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET " + b"/" * 100000,
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000,
        b"POST /api/add HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=range(7),
)
def test_what_is_no_request_harms_nobody(server_of_all, raw):
    port = int(server_of_all.base.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        try:
            line.sendall(raw)
            line.shutdown(socket.SHUT_WR)
            reply = line.recv(4096)
        except (ConnectionError, BrokenPipeError):
            reply = b""
    assert reply == b"" or reply.split(b" ")[1][:1] == b"4"
    assert server_of_all.ask("/api/model")[0] == 200


@pytest.fixture(scope="module")
def server_of_all(model, tmp_path_factory):
    with Server(shutil.copytree(model, tmp_path_factory.mktemp("served") / "model")) as server:
        yield server


# ---- the examples of the description ---------------------------------------------------------------------------------


def example(name):
    text = (STATIC / "api.html").read_text(encoding="utf-8")
    return html.unescape(re.search(rf'<pre id="{name}"[^>]*><code>(.*?)</code>', text, re.DOTALL)[1])


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_example_with_curl(server_of_all, tmp_path):
    for number in (1, 2):
        (tmp_path / f"otter-{number}.jpg").write_bytes(picture("checks", 200 + number, format="JPEG"))
    (tmp_path / "new.jpg").write_bytes(picture("rows", 203, format="JPEG"))
    given = {**os.environ, "ADDRESS": server_of_all.base, "SECRET": server_of_all.secret}
    done = subprocess.run(
        ["sh", "-c", example("curl")], cwd=tmp_path, env=given, capture_output=True, text=True, check=True
    )
    assert '"added":[{"id":' in done.stdout
    assert '"label":"rows"' in done.stdout


def test_the_example_in_python(server_of_all, tmp_path):
    (tmp_path / "new.jpg").write_bytes(picture("columns", 204, format="JPEG"))
    given = {**os.environ, "ADDRESS": server_of_all.base, "SECRET": server_of_all.secret}
    command = [sys.executable, "-c", example("python")]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "columns"

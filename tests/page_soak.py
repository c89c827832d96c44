"""Teaching through the page while it is killed and its connections are cut, and requests that were mutated.

``python tests/page_soak.py FOLDER --kills 100 --cuts 100 --requests 1000``; ``benchmarks/page.py`` runs the long form.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from paging import KINDS, picture

import lnbnn
from lnbnn.model.changes import check_model, list_images
from lnbnn.page.photo_store import photo_store_folder
from lnbnn.page.server import serve

GRID = {"bin_sizes": [4, 6], "step_px": 8, "longest_side": 96}
State = dict[str, str]  # digest of a photo -> its label


def begin(folder: Path) -> Path:
    """A small model of six photos, made elsewhere."""
    (folder / "photos").mkdir(parents=True)
    files, labels = [], []
    for kind in KINDS:
        for seed in (1, 2):
            files.append(folder / "photos" / f"{kind}-{seed}.png")
            files[-1].write_bytes(picture(kind, seed))
            labels.append(kind)
    lnbnn.LocalNBNN(index="exact", descriptor_params=GRID, n_jobs=1).fit(files, labels).save(folder / "model")
    return folder / "model"


class Life:
    """A server in a process of its own, to be ended by any signal."""

    def __init__(self, model: Path) -> None:
        out, into = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(out)
            code = 1
            try:
                signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
                serve(model, port=0, on_ready=lambda address: os.write(into, address.encode()))
                code = 0
            except SystemExit:
                code = 0
            finally:
                os._exit(code)
        os.close(into)
        with os.fdopen(out) as reader:
            address = os.read(reader.fileno(), 500).decode()  # written in one piece
        assert address, "the server did not start"
        self.port = int(address.split(":")[2].split("/")[0])
        self.secret = address.partition("secret=")[2]

    def end(self, sent: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.child, sent)
        os.waitpid(self.child, 0)

    def headers(self, **more: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}", **more}

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            line.request(method, path, body, self.headers(**headers))
            reply = line.getresponse()
            return reply.status, json.loads(reply.read() or b"{}")
        finally:
            line.close()


def form(contents: list[bytes]) -> tuple[bytes, str]:
    head = b'--b\r\nContent-Disposition: form-data; name="photo"; filename="%d.png"\r\n\r\n'
    return b"".join(
        head % n + one + b"\r\n" for n, one in enumerate(contents)
    ) + b"--b--\r\n", "multipart/form-data; boundary=b"


def state_of(model: Path) -> State:
    return {str(image.digest): str(image.label) for image in list_images(model)}


def next_change(state: State, ids: dict[str, int], rng: np.random.Generator, seed: int):
    """A request that changes the model, and the state after it."""
    action = rng.choice(["add", "add", "add", "relabel", "remove"])
    if len(state) < 5:
        action = "add"
    elif len(state) > 14:
        action = "remove"
    if action == "add":
        label = str(rng.choice(KINDS))
        contents = [picture(label, 10_000 + 10 * seed + n) for n in range(int(rng.integers(1, 4)))]
        body, kind = form(contents)
        added = {hashlib.sha256(content).hexdigest(): label for content in contents}
        return ("POST", f"/api/add?label={label}", body, {"Content-Type": kind}), state | added
    chosen = [str(digest) for digest in rng.choice(sorted(state), int(rng.integers(1, 3)), replace=False)]
    content: dict = {"ids": [ids[digest] for digest in chosen]}
    if action == "relabel":
        content["label"] = str(rng.choice(KINDS))
        after = state | dict.fromkeys(chosen, content["label"])
    else:
        after = {digest: label for digest, label in state.items() if digest not in chosen}
    return ("POST", f"/api/{action}", json.dumps(content).encode(), {"Content-Type": "application/json"}), after


def check(model: Path, before: State, after: State | None) -> State:
    """The state on the disk: whole, one of the two, and every photo taught here is there with its content."""
    report = check_model(model)
    assert report.problems == (), report.problems
    found = state_of(model)
    assert found in (before, after), "neither before nor after the change under way"
    photo_store = photo_store_folder(model)
    for image in list_images(model):
        if Path(image.name).parent == photo_store:
            assert hashlib.sha256(Path(image.name).read_bytes()).hexdigest() == image.digest
    return found


def kill(model: Path, n: int, seed: int) -> dict[str, int]:
    """Teach and correct, and end the server at a random moment; again and again."""
    rng, state = np.random.default_rng(seed), state_of(model)
    counts = Counter(kills=0, changes=0, after_the_kill=0, last=0)
    longest_s = 0.3
    for life in range(n):
        server = Life(model)
        under_way: list[State | None] = [None]
        confirmed: list[State] = [state]

        def work(server=server, under_way=under_way, confirmed=confirmed, life=life) -> None:
            own = np.random.default_rng([seed, life])
            for number in range(100):
                ids = {str(image.digest): image.id for image in list_images(model)}
                (method, path, body, headers), after = next_change(confirmed[0], ids, own, 100 * life + number)
                under_way[0] = after
                try:
                    status, reply = server.ask(method, path, body, **headers)
                except (OSError, http.client.HTTPException, ValueError):
                    return
                assert status == 200, reply
                confirmed[0], under_way[0] = after, None
                counts["changes"] += 1

        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(rng.uniform(0, longest_s))
        before = counts["changes"]
        server.end(signal.SIGKILL if life % 5 else signal.SIGTERM)
        worker.join(30)
        assert not worker.is_alive()
        state = check(model, confirmed[0], under_way[0])
        counts["after_the_kill"] += state != confirmed[0]
        counts["kills"] += 1
        longest_s = min(2.0, longest_s * 1.2) if before == counts["last"] else max(0.05, longest_s / 1.1)
        counts["last"] = counts["changes"]
    del counts["last"]
    return dict(counts)


def cut(model: Path, n: int, seed: int) -> dict[str, int]:
    """Break off uploads at any byte; what was not sent whole teaches nothing, what was is taught whole."""
    rng, state, counts = np.random.default_rng(seed + 1), state_of(model), Counter(cuts=0, whole=0)
    server = Life(model)
    try:
        for number in range(n):
            contents = [picture("rows", 500_000 + 10 * number + k) for k in range(int(rng.integers(1, 4)))]
            body, kind = form(contents)
            lines = [f"POST /api/add?label=rows HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: {kind}\r\n"]
            lines += [f"{name}: {value}\r\n" for name, value in server.headers().items()]
            whole = "".join([*lines, f"Content-Length: {len(body)}\r\n\r\n"]).encode() + body
            at = int(rng.integers(0, len(whole) + 1)) if rng.random() < 0.9 else len(whole)
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
                if rng.random() < 0.5:  # an abrupt end, not a polite one
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                line.sendall(whole[:at])
            after = state | {hashlib.sha256(content).hexdigest(): "rows" for content in contents}
            is_whole = at == len(whole)
            counts["cuts"] += not is_whole
            counts["whole"] += is_whole
            if is_whole or number % 20 == 19:
                assert server.ask("GET", "/api/model")[0] == 200
            state = check(model, state, after if is_whole else None)
            if is_whole and state != after:  # it may still be under way
                until = time.monotonic() + 20
                while state_of(model) != after and time.monotonic() < until:
                    time.sleep(0.05)
                state = check(model, after, state)
            if len(state) > 14:
                ids = [image.id for image in list_images(model)][4:]
                status, _ = server.ask(
                    "POST", "/api/remove", json.dumps({"ids": ids}).encode(), **{"Content-Type": "application/json"}
                )
                assert status == 200
                state = state_of(model)
    finally:
        server.end(signal.SIGTERM)
    return dict(counts)


def mutate(model: Path, n: int, seed: int) -> dict[str, int]:
    """Requests with bytes flipped, left out, put in and cut; none may crash the server or change the model."""
    rng, statuses = np.random.default_rng(seed + 2), Counter()
    server = Life(model)
    before = state_of(model)
    try:
        host = f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.secret}\r\n"
        photo = picture("rows", 3)
        body, kind = form([photo, photo])
        templates = [
            f"GET /api/model HTTP/1.1\r\n{host}\r\n".encode(),
            f"GET /api/images/1/picture?size=256 HTTP/1.1\r\n{host}\r\n".encode(),
            f"GET /static/style.css HTTP/1.1\r\n{host}\r\n".encode(),
            _post("predict?top=3&name=x.png", host, "image/png", photo),
            _post("predict", host, kind, body),
            f"POST /api/explain?label=rows HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n".encode()
            + b"%x\r\n%s\r\n0\r\n\r\n" % (len(photo), photo),
            _post("decide", host, "application/json", b"{}"),
        ]
        with ThreadPoolExecutor(16) as pool:
            for first in range(0, n, 100):
                made = [_mutated(templates, rng) for _ in range(min(100, n - first))]
                statuses.update(pool.map(lambda raw: _send(server.port, raw), made))
                assert server.ask("GET", "/api/model")[0] == 200, "the server is gone"
        assert not [status for status in statuses if status.startswith("5") and status != "503"], statuses
        assert server.ask("GET", "/api/model")[0] == 200
        assert state_of(model) == before
    finally:
        server.end(signal.SIGTERM)
    return {"requests": n, "statuses": dict(sorted(statuses.items()))}


def _post(path: str, host: str, kind: str, body: bytes) -> bytes:
    head = f"POST /api/{path} HTTP/1.1\r\n{host}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _mutated(templates: list[bytes], rng: np.random.Generator) -> bytes:
    raw = bytearray(templates[int(rng.integers(len(templates)))])
    for _ in range(int(rng.integers(1, 8))):
        head = max(raw.find(b"\r\n\r\n"), 1)
        at = int(rng.integers(0, head if rng.random() < 0.6 else max(len(raw), 1)))
        action = int(rng.integers(9))
        if action < 3 and raw:
            raw[at % len(raw)] = int(rng.integers(256))
        elif action < 5:
            del raw[at : at + int(rng.integers(1, 20))]
        elif action < 7:
            raw[at:at] = rng.integers(0, 256, int(rng.integers(1, 20)), dtype=np.uint8).tobytes()
        elif action == 7:
            raw[at:at] = raw[at : at + int(rng.integers(1, 200))]
        else:
            del raw[max(at, 20) :]
    return bytes(raw)


def _send(port: int, raw: bytes) -> str:
    """The status of the reply; none where the server waits for more, or hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        try:
            line.sendall(raw)
            line.settimeout(0.5)
            reply = line.recv(200)
        except (ConnectionError, TimeoutError):
            reply = b""
    return reply[9:12].decode("ascii", "replace") if reply.startswith(b"HTTP/1.1 ") else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name in ("kills", "cuts", "requests", "seed"):
        parser.add_argument(f"--{name}", type=int, default=0)
    options = parser.parse_args()
    model = begin(options.folder)
    result: dict = {}
    for name, work, n in (
        ("kills", kill, options.kills),
        ("cuts", cut, options.cuts),
        ("requests", mutate, options.requests),
    ):
        if n:
            result[name] = work(model, n, options.seed)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

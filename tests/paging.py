"""The page of a model, served in the process or by the real command, for the tests of the page."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from conftest import SMALL_GRID, make_texture
from PIL import Image
from starlette.testclient import TestClient

from lnbnn import LocalNBNN
from lnbnn.page.app import make_app
from lnbnn.page.guard import Keys

SECRET = "the-secret-of-these-tests"
BASE = "http://127.0.0.1:8000"
KINDS = ("checks", "columns", "rows")


def quick_model():
    """What models begin with in these tests: about 190 descriptors per photo, searched exactly."""
    return LocalNBNN(index="exact", descriptor_params=SMALL_GRID, n_jobs=1)


def picture(kind="rows", seed=100, size=(110, 96), format="PNG"):
    """The bytes of a picture file of a texture."""
    file = io.BytesIO()
    Image.fromarray(make_texture(kind, seed, size)).save(file, format)
    return file.getvalue()


def bomb():
    """A small file of a picture with more pixels than are read."""
    file = io.BytesIO()
    Image.new("1", (40_000, 40_000)).save(file, "PNG")
    return file.getvalue()


def noise(side=64, seed=0):
    """The bytes of a picture file without any likeness."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def files(kind, seeds):
    """A form of pictures of one kind, as a client sends it."""
    return [("photo", (f"{kind}-{seed}.png", picture(kind, seed), "image/png")) for seed in seeds]


@contextmanager
def serving(path, **how):
    """A client of the page of a model, let in."""
    app = make_app(path, Keys(secret=SECRET), **{"new": quick_model} | how)
    with TestClient(app, base_url=BASE, headers={"Authorization": f"Bearer {SECRET}"}) as client:
        yield client


def teach(client, kind, seeds, label=None):
    """Add pictures of one kind; the reply, which must be good."""
    reply = client.post("/api/add", params={"label": label or kind}, files=files(kind, seeds))
    assert reply.status_code == 200, reply.text
    return reply.json()


def labels_of(client):
    """The label of each photo of the model, by its id."""
    return {image["id"]: image["label"] for image in client.get("/api/images").json()["images"]}


def wait_for(condition, seconds=300.0):
    """Wait until something is so; what it was in the end."""
    until = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    assert found, "it did not come to be"
    return found


class Server:
    """The real command, serving a model."""

    def __init__(self, model: Path, *options: str, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "lnbnn", "serve", str(model), "--no-browser", "--port", "0", *options]
        given = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=given)
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.stderr.read()
        self.base, _, self.secret = self.address.partition("/?secret=")
        self.base = self.base.rstrip("/")

    def ask(self, path, data=None, **headers):
        """A request; its status and what the reply says."""
        request = urllib.request.Request(self.base + path, data, {"Authorization": f"Bearer {self.secret}", **headers})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"{}")

    def close(self) -> str:
        """End it as a user does; what it had said."""
        if self.process.poll() is None:
            self.process.terminate()
        _, said = self.process.communicate(timeout=20)
        return said

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def find_browser():
    """A Chromium that is installed, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("LNBNN_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def live(path, **how):
    """The address of the page of a model, served in a thread."""
    import socket
    import threading

    from lnbnn.page.server import PageServer

    server = PageServer(make_app(path, Keys(secret=SECRET), **{"new": quick_model} | how))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(20)

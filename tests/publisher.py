"""A publisher of a tiny set on 127.0.0.1: its archive, and a server that can be told to misbehave."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lnbnn.data.published import Archive, PublishedSet

CLASSES = ("ant", "bee", "none")  # the last is the background


def make_tar(members, mode="w:gz"):
    """A tar file of (name or TarInfo, content)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for member, content in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def make_zip(members):
    """A zip file of (name, content)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def pictures():
    """Two pictures a class under the publisher's folder; noise, so that the archive is larger than a block."""
    names = [f"Set/{label}/image_{number:04d}.jpg" for label in CLASSES for number in (1, 2)]
    return [(name, hashlib.shake_128(name.encode()).digest(100_000)) for name in names]


def make_archive():
    """As the publisher of Caltech 101 does it: a zip file that holds a tar.gz and other things."""
    return make_zip(
        [("set/Set.tar.gz", make_tar(pictures())), ("set/notes.m", b"x"), ("__MACOSX/set/._Set.tar.gz", b"x")]
    )


def make_set(content, url, **changes):
    """The tiny set, published as ``content`` at ``url``."""
    settings = {
        "name": "tiny",
        "title": "Tiny Set",
        "folder": "Set",
        "image_pattern": r"[a-z]+/image_\d{4}\.jpg",
        "background": "none",
        "n_classes": 2,
        "n_images": 4,
        "page": "https://publisher.example/tiny",
        "url": url,
        "archives": (Archive("set.zip", len(content), f"sha256:{hashlib.sha256(content).hexdigest()}"),),
        "unpacked_bytes": 1_000_000,
        "variable": "LNBNN_TINY",
    }
    return PublishedSet(**{**settings, **changes})


class Publisher:
    """A server for one file.

    ``cuts`` holds, for each coming answer, after how many bytes it breaks off; ``status`` is answered in place of the
    file; without ``ranges`` the server always sends all. ``asked`` lists the Range headers that came.
    """

    def __init__(self, content):
        self.content = content
        self.cuts = []
        self.status = None
        self.ranges = True
        self.asked = []
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                publisher.answer(self)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/set.zip"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, request):
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        if self.status:
            request.send_error(self.status)
            return
        first = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and self.ranges else 0
        if first >= len(self.content):
            request.send_error(416)
            return
        body = self.content[first:]
        request.send_response(206 if first else 200)
        if first:
            size = len(self.content)
            request.send_header("Content-Range", f"bytes {first}-{size - 1}/{size}")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.cuts.pop(0)] if self.cuts else body)

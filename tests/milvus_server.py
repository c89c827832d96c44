"""A real Milvus server for tests and benchmarks: started on a free port, killed, started again, ended with its child.

Its package pins versions that others do not bear, so it lives in an environment of its own, ``.venv-milvus``, which
``make .venv-milvus/.ready`` sets up. A part of it has a fixed port (2380): one server runs on a machine at a time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

COMMAND = Path(__file__).resolve().parent.parent / ".venv-milvus" / "bin" / "milvus-server"
_FIXED_PORT = 2380


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class MilvusServer:
    """A standalone server with its data in a folder; a context manager that ends it.

    Parameters
    ----------
    folder : Path, optional
        For its data, which outlives a kill; by default one that is removed at the end.
    """

    def __init__(self, folder: Path | None = None) -> None:
        if not COMMAND.exists():
            raise FileNotFoundError(f"{COMMAND}: missing; make .venv-milvus/.ready installs it")
        self._is_own = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="milvus-")) if folder is None else folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, timeout_s: float = 120.0) -> MilvusServer:
        """Start it and wait until it answers; on another port each time, as closed connections block the one it had."""
        until = time.monotonic() + 30.0
        while not _is_free(_FIXED_PORT):
            if time.monotonic() > until:
                raise TimeoutError(f"port {_FIXED_PORT} is taken: another Milvus server runs on this machine")
            time.sleep(0.5)
        self.port = free_port()
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [str(COMMAND), "--data", str(self.folder / "data"), "--proxy-port", str(self.port)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + timeout_s
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                self.kill()
                raise TimeoutError(f"the Milvus server does not start; see {self.folder / 'server.log'}")
            time.sleep(0.5)
        return self

    def _answers(self) -> bool:
        """Whether it lists collections: before, it takes connections and refuses everything. Asked in a new process."""
        code = (
            "import sys, logging; logging.disable(); from pymilvus import MilvusClient; "
            "MilvusClient(uri=sys.argv[1], timeout=3).list_collections(timeout=3)"
        )
        if _is_free(self.port):
            return False
        asked = subprocess.run([sys.executable, "-W", "ignore", "-c", code, self.uri], capture_output=True)
        return asked.returncode == 0

    def memory_mib(self) -> tuple[int, int]:
        """Resident memory of all its processes, and how much of it are pages of files, which the system can drop."""
        assert self._process is not None
        resident = in_files = 0
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # no process, or one that has just ended
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == self._process.pid:  # its session
                    pages = (entry / "statm").read_text().split()
                    resident, in_files = resident + int(pages[1]), in_files + int(pages[2])
        page = os.sysconf("SC_PAGE_SIZE")
        return resident * page >> 20, in_files * page >> 20

    def kill(self) -> None:
        """Kill -9 of the server and its child: they are one session."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            until = time.monotonic() + 20.0
            while not _is_free(self.port) and time.monotonic() < until:
                time.sleep(0.1)

    def __enter__(self) -> MilvusServer:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # so that the server is ended, too
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._is_own:
            shutil.rmtree(self.folder, ignore_errors=True)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) != 0


class Wire:
    """A connection to a server that can be cut: a port that hands everything on until :meth:`cut`."""

    def __init__(self, to_port: int) -> None:
        self._to = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                if self._is_cut:
                    raise ConnectionError
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:  # the server is away, or the wire is cut
                near.close()
                continue
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._hand_on, args=(one, other), daemon=True).start()

    def _hand_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Break what is open, and refuse what comes."""
        self._is_cut = True
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open = []

    def lead_to(self, port: int) -> None:
        """The server is at another port now."""
        self._to = port

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

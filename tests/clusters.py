"""A real Ray cluster on this machine: nodes of one core each, on free ports of 127.0.0.1, ended by kill -9."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

STORE_BYTES = 100 << 20
_TRIES = 4
_FAST = {  # workers are as important as others here, and a lost node is noticed within seconds
    "RAY_worker_niceness": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_worker_register_timeout_seconds": "300",  # the machine may be busy
}


class RayNodes:
    """A head and further nodes; ``env`` is what a process needs to reach them."""

    def __init__(
        self, n_nodes: int = 2, *, cpus: int = 1, store_bytes: int = STORE_BYTES, token: str | None = None
    ) -> None:
        self.cpus, self.store_bytes = cpus, store_bytes
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # a short name: sockets are in it
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        off = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token or secrets.token_hex(32),
        }
        self.env = {**os.environ, **off, **_FAST, "RAY_TMPDIR": str(self.folder), "PYTHONWARNINGS": "ignore"}
        self.raylets: list[int] = []
        try:
            for _ in range(n_nodes):
                self.add()
        except BaseException:
            self.stop()
            raise

    def add(self) -> int:
        """Start one more node; the first is the head. Returns its process."""
        words = ["--node-ip-address=127.0.0.1", f"--num-cpus={self.cpus}", "--disable-usage-stats"]
        words += [f"--object-store-memory={self.store_bytes}"]
        if self.raylets:
            words += [f"--address={self.address}"]
        else:
            words += ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.folder}/s"]
        code = "from ray.scripts.scripts import main; main()"
        command = [sys.executable, "-c", code, "start", *words]
        before = set(self._processes())
        for _ in range(_TRIES):  # Ray gives up after 30 s, on a busy machine too
            done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=120)
            if not done.returncode:
                break
            for process in set(self._processes()) - before:
                _kill(process)
        else:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        (new,) = set(self._processes("raylet/raylet")) - before
        self.raylets.append(new)
        return new

    def kill_node(self, place: int = -1) -> None:
        """End a node, its workers too, as a power cut would."""
        raylet = self.raylets.pop(place)
        for process in [raylet, *_descendants(raylet)]:
            _kill(process)

    def freeze_node(self, place: int = -1) -> None:
        """Let a node stand still, its workers too: what is not done yet on it stays undone."""
        for process in [self.raylets[place], *_descendants(self.raylets[place])]:
            _send(process, signal.SIGSTOP)

    def workers(self, place: int | None = None) -> list[int]:
        """The processes that do the work, of one node or all."""
        raylets = self.raylets if place is None else [self.raylets[place]]
        found = [child for raylet in raylets for child in _descendants(raylet)]
        return [child for child in found if _title(child).startswith(("ray::_run", "ray::_Holder", "ray::IDLE"))]

    def busy_workers(self) -> list[int]:
        """Those that work on a task now."""
        return [worker for worker in self.workers() if _title(worker).startswith("ray::_run")]

    def stop(self) -> None:
        """End every process of the cluster."""
        until = time.monotonic() + 20
        while found := self._processes():
            for process in found:
                _kill(process)
            if time.monotonic() > until:
                raise RuntimeError(f"these processes of Ray do not end: {found}")
            time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _processes(self, word: str = "") -> list[int]:
        """The processes that were started with this cluster's folder in their environment, by their own words."""
        mark = f"RAY_TMPDIR={self.folder}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    is_ours = mark in (entry / "environ").read_bytes() + b"\0" and _is_rays(entry)
                    if is_ours and word.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found


def _is_rays(entry: Path) -> bool:
    """Whether it is part of the cluster rather than a program that uses it."""
    line = (entry / "cmdline").read_bytes()
    return b"/ray/" in line or line.startswith(b"ray::")


def _descendants(process: int) -> list[int]:
    found, waiting = [], [process]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
            except OSError:
                continue
            found += children
            waiting += children
    return found


def _title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _kill(process: int) -> None:
    _send(process, signal.SIGKILL)


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

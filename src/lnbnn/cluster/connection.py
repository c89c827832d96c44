"""The connection of this process to a Ray cluster. The only module that imports Ray."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lnbnn.errors import InvalidInputError, LnbnnError, MissingExtraError

__all__ = ["check_address", "connect", "disconnect", "first_line"]

_REACH_S = 5.0  # for the first sign of life of a cluster at an address
_TOKENS = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
_LOCAL_STORE_BYTES = 1 << 29  # of a cluster that is started here: results wait in it, a few at a time

_logger = logging.getLogger(__name__)
_state: dict[str, str | None] = {"address": None}  # of the connection that was made here; Ray allows one per process


def check_address(address: str) -> None:
    """Raise unless an address is ``auto``, ``local`` or ``HOST:PORT``."""
    found = re.fullmatch(r"auto|local|(?:[\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", address)
    if not found or (found[1] and not 0 < int(found[1]) < 1 << 16):
        raise InvalidInputError(f"a Ray address must be auto, local or HOST:PORT; got {address!r}.")


def connect(address: str | None = None) -> Any:
    """Connect this process to a Ray cluster, unless it is; returns the module ``ray``.

    Parameters
    ----------
    address : str, optional
        ``auto``, the cluster that this machine is part of; ``local``, a new one of this machine alone, which ends with
        this process; or ``HOST:PORT`` of a cluster that this machine is part of. By default the cluster that is in use,
        or ``auto``.
    """
    if address is not None:
        check_address(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is sent anywhere
    if address == "local" and "ray" not in sys.modules and not _TOKENS & os.environ.keys():
        # No one else may use the cluster. Ray looks at these once, when it is imported.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError as error:
        raise MissingExtraError("working on a Ray cluster needs the extra: pip install 'lnbnn[ray]'.") from error
    if ray.is_initialized():
        used = _state["address"]
        if address is not None and used not in (None, address):
            raise InvalidInputError(f"this process works on the Ray cluster {used!r} already; got {address!r}.")
        return ray
    address = address or "auto"
    _check_reachable(address)
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        os.environ.setdefault("RAY_worker_niceness", "0")  # as important as threads would be
        options |= {"include_dashboard": False, "object_store_memory": _LOCAL_STORE_BYTES}
    try:
        with _own_handlers(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(**options)
    except Exception as error:  # Ray raises many types, and bare ones: a node that takes too long to start
        raise LnbnnError(_refusal(address, error)) from error
    _state["address"] = address
    _keep_output_clean()
    return ray


def disconnect() -> None:
    """Close the connection that :func:`connect` made, if there is one; a local cluster ends."""
    ray = sys.modules.get("ray")
    if ray is not None and _state["address"] is not None:
        ray.shutdown()
    _state["address"] = None


def first_line(error: BaseException) -> str:
    """What an error of Ray says, shortened to one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:300]


def _check_reachable(address: str) -> None:
    """Raise if nothing answers there; Ray itself would try for a long time."""
    host, _, port = address.rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise LnbnnError(f"no Ray cluster answers at {address} ({reason}); start one with: ray start --head") from error


def _refusal(address: str, error: Exception) -> str:
    text = str(error)
    if "uthenticat" in type(error).__name__ + text:
        return (
            f"the Ray cluster {address!r} wants a token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to what its nodes "
            "were started with."
        )
    if address == "auto" and isinstance(error, ConnectionError):
        return "no Ray cluster runs on this machine; start or join one with ray start, or use the address local."
    if "Failed to connect" in text:
        return (
            f"the Ray cluster {address!r} answers, but not to this process: its nodes were started with another token "
            "(RAY_AUTH_MODE, RAY_AUTH_TOKEN), another version of Ray, or are about to end."
        )
    return f"the Ray cluster {address!r} cannot be used ({first_line(error)})."


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Keep what this process does on SIGTERM and on an uncaught error: Ray would put its own in place."""
    in_main, hook = threading.current_thread() is threading.main_thread(), sys.excepthook
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        sys.excepthook = hook
        if in_main and before is not None:
            signal.signal(signal.SIGTERM, before)


def _keep_output_clean() -> None:
    """Ray prints the fate of its nodes on stdout, among the results; here it is logged instead."""
    import ray._private.worker as internals

    def log(data: Any, *args: Any, **kwargs: Any) -> None:
        for line in data.get("lines", ()):
            _logger.debug("Ray: %s", line)

    if hasattr(internals, "print_to_stdstream"):
        internals.print_to_stdstream = log

"""Where Milvus is: addresses that a user gives, and addresses that a model holds, which may come from anyone."""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError

__all__ = ["TOKEN", "URI", "check_uri", "full_uri", "is_file", "trusted_uri"]

URI = "LNBNN_MILVUS_URI"
"""Environment variable: the address to use instead of the one that a model holds."""
TOKEN = "LNBNN_MILVUS_TOKEN"
"""Environment variable: what the server asks for, ``user:password`` or a key. It is never stored."""


def check_uri(uri: object) -> str:
    """An address of Milvus: ``http://HOST:PORT``, or a file of milvus-lite, whose name ends in ``.db``."""
    if not (
        isinstance(uri, str) and (_host_of(uri) if "://" in uri else uri.endswith(".db") and len(uri) > len(".db"))
    ):
        raise InvalidInputError(
            f"uri must be a file whose name ends in .db, or http://HOST:PORT of a Milvus server; got {uri!r}."
        )
    return uri


def is_file(uri: str) -> bool:
    """Whether an address is a file of milvus-lite, which one process at a time can open."""
    return "://" not in uri


def full_uri(uri: str) -> str:
    """The address to connect to, for one that the user gives; the environment has precedence, a file is a full path."""
    uri = check_uri(os.environ.get(URI) or uri)
    return os.path.abspath(uri) if is_file(uri) else uri


def trusted_uri(stored: str, where: Path) -> str:
    """The address to connect to, for one that a model holds.

    A model may come from anyone: a server on another machine is asked only if the user names it.
    """
    if os.environ.get(URI):
        return full_uri(stored)
    try:
        check_uri(stored)
    except InvalidInputError as error:
        raise ModelFormatError(f"{where}: {error}") from error
    if is_file(stored) and not os.path.isdir(stored):
        raise ModelFormatError(
            f"{where}: the vectors are in {stored}, which is missing; copy it there, or set {URI} to where it is."
        )
    if not is_file(stored) and not _is_this_machine(_host_of(stored)):
        raise LnbnnError(
            f"{where}: the vectors are on the Milvus server {stored}; to allow the connection, set {URI}={stored}"
        )
    return stored


def _host_of(uri: str) -> str:
    """The host of an address with ``http``; nothing if it is no such address."""
    try:
        parts = urlsplit(uri)
        _ = parts.port  # raises if it is no number
    except ValueError:
        return ""
    return (parts.hostname or "") if parts.scheme in ("http", "https") else ""


def _is_this_machine(host: str) -> bool:
    """Whether a host is this machine by its spelling alone: a name may lead anywhere, whatever it begins with."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

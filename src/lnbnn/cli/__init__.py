"""The ``lnbnn`` command: each command parses, calls one library function and prints."""

from lnbnn.cli.app import app, main

__all__ = ["app", "main"]

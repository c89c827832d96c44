"""The command that serves the page: serve."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from lnbnn.cli.console import PhotoFolders, TrustNetwork, note, say

__all__ = ["serve"]


def serve(
    model: Annotated[
        Path, typer.Argument(help="A model folder; if there is none yet, the page starts empty.", show_default=False)
    ],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port to listen on.", show_default="8000, or a free one")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this computer's own needs a password.")
    ] = "127.0.0.1",
    password: Annotated[
        str | None,
        typer.Option(
            envvar="LNBNN_PASSWORD", help="The password of the page; safer as LNBNN_PASSWORD.", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Another host name of this computer, such as that of a proxy.", show_default=False),
    ] = None,
    images: PhotoFolders = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    trust_network: TrustNetwork = False,
) -> None:
    """Open a model in the browser: teach it, ask it, see why, correct it.

    Only this computer can reach the page, and its address contains a secret. Photos added there are stored beside the
    model, in MODEL.photos. Ctrl-C stops it.

        lnbnn serve my-model
    """
    from lnbnn.errors import MissingExtraError

    try:
        from lnbnn.page.server import serve as serve_page
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("lnbnn"):
            raise
        raise MissingExtraError(f"the page needs {error.name}; install it with: pip install 'lnbnn[page]'") from error

    def on_ready(address: str) -> None:
        say(address)
        sys.stdout.flush()
        note("open this address in a browser; Ctrl-C stops the page")
        if browser and sys.stdout.isatty() and (sys.platform != "linux" or _has_display()):
            import webbrowser

            webbrowser.open(address)

    serve_page(
        model,
        host=host,
        port=port,
        password=password,
        name=name,
        images=images or [],
        trust_network=trust_network,
        on_ready=on_ready,
    )


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

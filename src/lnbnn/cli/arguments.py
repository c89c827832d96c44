"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Cache", "Images", "Jobs", "ModelDir", "Strict"]

ModelDir = Annotated[Path, typer.Argument(help="A model folder made by **lnbnn fit**.", show_default=False)]
Images = Annotated[
    Path,
    typer.Argument(
        help="A folder with one sub-folder of pictures a class, or a CSV list (path,label) from lnbnn split.",
        show_default=False,
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Threads; default: all cores.", show_default=False)
]
Cache = Annotated[
    Path | None, typer.Option("--cache", help="Feature cache folder, used and filled.", show_default=False)
]

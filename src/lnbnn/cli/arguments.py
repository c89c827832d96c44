"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lnbnn.descriptors import DESCRIPTORS

__all__ = ["DESCRIPTOR_NAMES", "Cache", "DescriptorParams", "Images", "Jobs", "ModelDir", "Strict", "TrustNetwork"]

DESCRIPTOR_NAMES = ", ".join(
    {"deep@": "deep@LAYER", "onnx:": "onnx:PATH[@OUTPUT]", "timm:": "timm:MODEL[@LAYER]"}.get(name, name)
    for name in DESCRIPTORS
)
"""What can be given as a descriptor, for the help."""

ModelDir = Annotated[Path, typer.Argument(help="A model folder made by **lnbnn fit**.", show_default=False)]
Images = Annotated[
    Path,
    typer.Argument(
        help="A folder with one sub-folder of pictures a class, or a CSV list (path,label) from lnbnn split.",
        show_default=False,
    ),
]
DescriptorParams = Annotated[
    list[str] | None,
    typer.Option("--descriptor-param", "-D", metavar="NAME=VALUE", help="e.g. -D step_px=3 -D bin_sizes=4,6,9"),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Threads; default: all cores.", show_default=False)
]
Cache = Annotated[
    Path | None, typer.Option("--cache", help="Feature cache folder, used and filled.", show_default=False)
]
TrustNetwork = Annotated[
    bool,
    typer.Option(
        "--trust-network", help="Run the network that the model names outside its folder, or download it; see docs."
    ),
]

"""The command that writes a network as a file: export-onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lnbnn.cli.arguments import DescriptorParams
from lnbnn.cli.console import parse_params, say

__all__ = ["export_onnx"]


def export_onnx(
    descriptor: Annotated[str, typer.Argument(help="timm:MODEL[@LAYER], or deep[@LAYER].", show_default=False)],
    output: Annotated[Path, typer.Argument(help="The network file to write (.onnx).", show_default=False)],
    descriptor_param: DescriptorParams = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that is there already.")] = False,
) -> None:
    """Write a network as one ONNX file that runs without PyTorch.

    The file says how its pictures are prepared, so that it is used as it is:

        lnbnn export-onnx timm:resnet50 resnet50.onnx

        lnbnn fit photos model --descriptor onnx:resnet50.onnx
    """
    from lnbnn.descriptors import make_descriptor
    from lnbnn.files.atomic import atomic_path
    from lnbnn.files.outputs import check_file

    if output.exists() and not force:
        raise typer.BadParameter(f"{output} is there already; choose another name, or replace it (--force)")
    check_file(output)
    network = make_descriptor(descriptor, parse_params(descriptor_param, "--descriptor-param"))
    data, difference = network.onnx_file()
    with atomic_path(output) as partial:
        partial.write_bytes(data)
    say(f"{output}: {len(data) / 2**20:.1f} MiB, features differ by at most {difference:.1g} (relative)")

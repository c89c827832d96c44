"""Local descriptors, one per file; the registry maps public names to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lnbnn.descriptors.base import MAX_NETWORK_BYTES, Descriptor, StoredNetwork
from lnbnn.errors import ModelFormatError, UntrustedNetworkError
from lnbnn.files.regular import read_regular
from lnbnn.params import resolve

__all__ = [
    "DESCRIPTORS",
    "Descriptor",
    "distinct",
    "make_descriptor",
    "network_fields",
    "open_descriptor",
    "write_network",
]

DESCRIPTORS = {
    "dense-sift": "lnbnn.descriptors.dense_sift:DenseSIFT",
    "root-sift": "lnbnn.descriptors.root_sift:RootSIFT",
    "keypoint-sift": "lnbnn.descriptors.keypoint_sift:KeypointSIFT",
    "deep": "lnbnn.descriptors.lite:EfficientNetLite",
    "deep@": "lnbnn.descriptors.lite:EfficientNetLite",
    "deep-small": "lnbnn.descriptors.lite:EfficientNetLite",
    "deep-small@": "lnbnn.descriptors.lite:EfficientNetLite",
    "onnx:": "lnbnn.descriptors.onnx_network:OnnxNetwork",
    "timm:": "lnbnn.descriptors.timm_network:TimmNetwork",
}

_OUTSIDE = ("onnx:", "timm:")  # their names lead to files, or to a place to download from
_NETWORK = "network.onnx"


def make_descriptor(name: str, params: dict[str, Any] | None = None) -> Descriptor:
    """The named descriptor with the given settings."""
    return resolve(DESCRIPTORS, name, "descriptor").from_name(name, params or {})


def network_fields(descriptor: Descriptor) -> dict[str, Any]:
    """What the manifest of a model says of the network in its folder; nothing where there is none."""
    network = descriptor.network_to_store()
    return {} if network is None else {"network": {"file": _NETWORK, "output": network.output}}


def write_network(descriptor: Descriptor, folder: Path) -> None:
    """Write the network that a descriptor runs, if it is a file, into the folder of a model's data."""
    network = descriptor.network_to_store()
    if network is not None:
        (folder / _NETWORK).write_bytes(network.data)


def open_descriptor(manifest: dict[str, Any], data: Path, *, trust_network: bool) -> Descriptor:
    """The descriptor of a model, whose network is the file in the model's own folder.

    A network elsewhere is a program, or a download, that the manifest chooses: it is used only
    if the user says so (``trust_network``).
    """
    name, params = manifest["params"]["descriptor"], manifest["params"].get("descriptor_params")
    family = next((family for family in _OUTSIDE if name.startswith(family)), None)
    if family == "onnx:" and "network" in manifest:
        try:
            content = read_regular(data / _NETWORK, MAX_NETWORK_BYTES)
        except OSError as error:
            raise ModelFormatError(f"{data / _NETWORK}: cannot be read ({error.strerror}); copy it again.") from error
        stored = StoredNetwork(content, manifest["network"]["output"])
        return resolve(DESCRIPTORS, name, "descriptor").from_name(name, params or {}, stored)
    if family is not None and not trust_network:
        raise UntrustedNetworkError(
            f"{data.parent}: the model runs a network outside its folder, {name[:200]!r}; if you trust it, open the "
            "model with --trust-network (in Python: trust_network=True)."
        )
    return make_descriptor(name, params)


def distinct(descriptors: Sequence[Descriptor]) -> tuple[list[Descriptor], list[int]]:
    """The descriptors that give different features, and which of them each one is like."""
    keys = []
    for descriptor in descriptors:
        settings = {k: v for k, v in descriptor.settings().items() if k not in descriptor.learned_settings}
        keys.append(repr((descriptor.name, settings)))
    first = dict(zip(reversed(keys), reversed(descriptors), strict=True))
    order = list(dict.fromkeys(keys))
    return [first[key] for key in order], [order.index(key) for key in keys]

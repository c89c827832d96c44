"""Local descriptors, one a file; the registry maps public names to them."""

from __future__ import annotations

from typing import Any

from lnbnn.descriptors.base import Descriptor
from lnbnn.registry import resolve

__all__ = ["DESCRIPTORS", "Descriptor", "make_descriptor"]

DESCRIPTORS = {
    "dense-sift": "lnbnn.descriptors.dense_sift:DenseSIFT",
    "root-sift": "lnbnn.descriptors.root_sift:RootSIFT",
    "keypoint-sift": "lnbnn.descriptors.keypoint_sift:KeypointSIFT",
    "deep": "lnbnn.descriptors.lite0:Lite0",
    "deep@": "lnbnn.descriptors.lite0:Lite0",
    "onnx:": "lnbnn.descriptors.onnx_network:OnnxNetwork",
    "timm:": "lnbnn.descriptors.timm_network:TimmNetwork",
}


def make_descriptor(name: str, params: dict[str, Any] | None = None) -> Descriptor:
    """The named descriptor with the given settings."""
    return resolve(DESCRIPTORS, name, "descriptor").from_name(name, params or {})

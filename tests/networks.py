"""Small network files that several test files share, made with the onnx package, simple enough to check by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lnbnn.descriptors.onnx_file import with_config

CONFIG = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "longest_side": 64, "stride": 16}


def value(name: str, shape: list[Any] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """The name, type and shape of an input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def make_model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[Any]) -> onnx.ModelProto:
    """A model of one graph."""
    graph = helper.make_graph(nodes, "test", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mean_network(stride: int = 16, sides: tuple[Any, Any] = ("height", "width")) -> onnx.ModelProto:
    """Cells are the mean of each color over ``stride`` x ``stride`` pixels, then their negatives: 6 numbers.

    Outputs ``map`` (1, 6, rows, columns) and ``pooled`` (1, 6); ``means`` is a value inside.
    """
    nodes = [
        helper.make_node("AveragePool", ["image"], ["means"], kernel_shape=[stride] * 2, strides=[stride] * 2),
        helper.make_node("Neg", ["means"], ["negative"]),
        helper.make_node("Concat", ["means", "negative"], ["map"], axis=1),
        helper.make_node("ReduceMean", ["map"], ["pooled"], axes=[2, 3], keepdims=0),
    ]
    outputs = [value("map", [1, 6, "rows", "columns"]), value("pooled", [1, 6])]
    return make_model(nodes, [value("image", [1, 3, *sides])], outputs, [])


def token_network(n_prefix: int, stride: int = 16) -> onnx.ModelProto:
    """The same color means as patch tokens (1, n_prefix + rows * columns, 3), row by row, after constant ones."""
    nodes = [
        helper.make_node("AveragePool", ["image"], ["means"], kernel_shape=[stride] * 2, strides=[stride] * 2),
        helper.make_node("Reshape", ["means", "flat"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["first", "patches"], ["tokens"], axis=1),
    ]
    constants = [
        numpy_helper.from_array(np.array([1, 3, -1]), "flat"),
        numpy_helper.from_array(np.full((1, n_prefix, 3), 9.0, np.float32), "first"),
    ]
    return make_model(nodes, [value("image", [1, 3, "h", "w"])], [value("tokens", [1, "n", 3])], constants)


def endless_network() -> onnx.ModelProto:
    """Its map is that of :func:`mean_network`, after a loop that never ends."""
    step = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Neg", ["x"], ["y"])],
        "step",
        [value("n", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("x", None)],
        [value("go_on", [], TensorProto.BOOL), value("y", None)],
    )
    nodes = [
        helper.make_node("AveragePool", ["image"], ["means"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Loop", ["", "yes", "means"], ["map"], body=step),
    ]
    yes = numpy_helper.from_array(np.array(True), "yes")
    return make_model(nodes, [value("image", [1, 3, "h", "w"])], [value("map", [1, 3, "r", "c"])], [yes])


def write_network(path: Path, model: onnx.ModelProto, **config: Any) -> Path:
    """Write a model with its configuration, by default one of 64-pixel pictures."""
    path.write_bytes(with_config(model, **(config or CONFIG)))
    return path

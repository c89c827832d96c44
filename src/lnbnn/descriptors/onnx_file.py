"""Network files (ONNX): checked before they are run, and run by ONNX Runtime. The one door to both packages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.network import Network, first_line
from lnbnn.errors import InvalidInputError, MissingExtraError

try:
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as error:
    raise MissingExtraError("descriptors that are networks need the extra: pip install 'lnbnn[deep]'.") from error

__all__ = ["helper", "numpy_helper", "onnx", "open_checked", "open_network", "with_config"]

_CONFIG = "lnbnn"  # the key of a file's metadata that says how its input is prepared
_PROBE_SIDE = 224  # of the blank picture shown to a network to see what comes out
_MAX_DIMS = 1 << 16
_MAX_STRIDE = 256
_MAX_NUMBER = 1e30  # of what is subtracted from a color, and what it is divided by

_Run = Callable[[NDArray[np.float32]], list[NDArray[Any]]]


def with_config(model: onnx.ModelProto, **config: Any) -> bytes:
    """A network file with what :func:`open_network` needs to know written into its metadata, and into the model's.

    ``mean``, ``std``, ``longest_side``, ``stride`` and, for patch tokens, ``n_prefix``.
    """
    kept = [(entry.key, entry.value) for entry in model.metadata_props if entry.key != _CONFIG]
    helper.set_model_props(model, dict(kept) | {_CONFIG: json.dumps(config)})
    return model.SerializeToString()


def open_network(data: bytes, output: str | None, *, name: str) -> Network:
    """Check the content of an ONNX file and make it ready to run.

    Parameters
    ----------
    data : bytes
        The file's content.
    output : str, optional
        Name of the feature map, an output of the network or any value inside it; by default its last output that is
        a feature map or a row of patch tokens.
    name : str
        What to call it in an error message.
    """
    model = _parse(data, name)
    if output is not None:
        _offer(model, output, name)
        data = model.SerializeToString()
    return open_checked(model, data, output, name=name, sha256=hashlib.sha256(data).hexdigest())


def open_checked(model: onnx.ModelProto, data: bytes, output: str | None, *, name: str, sha256: str) -> Network:
    """Make a network ready to run that needs no check.

    Parameters
    ----------
    model : onnx.ModelProto
    data : bytes
        The same, serialized.
    output, name
        As in :func:`open_network`; ``output`` is one of its outputs.
    sha256 : str
        Of what identifies the network.
    """
    config = _config(model, name)
    channels_last, fixed_size = _input_form(model, name)
    session = _session(data, name)
    names = [item.name for item in session.get_outputs()] if output is None else [output]
    input_name = session.get_inputs()[0].name

    def run_all(planes: NDArray[np.float32]) -> list[NDArray[Any]]:
        fed = np.ascontiguousarray(planes.transpose(0, 2, 3, 1)) if channels_last else planes
        try:
            return session.run(names, {input_name: fed})
        except Exception as error:  # ONNX Runtime raises types of its own, one per cause
            width, height = planes.shape[3], planes.shape[2]
            raise InvalidInputError(
                f"{name}: the network failed on a picture of {width} x {height} pixels ({first_line(error)})."
            ) from error

    width, height = fixed_size or (_PROBE_SIDE, _PROBE_SIDE)
    found = run_all(np.zeros((1, 3, height, width), np.float32))
    forms = [_output_form(array, width, height, channels_last, config.get("n_prefix")) for array in found]
    usable = [place for place, form in enumerate(forms) if form is not None]
    if not usable:
        shapes = "; ".join(f"{n} {tuple(np.shape(array))}" for n, array in zip(names, found, strict=True))
        raise InvalidInputError(
            f"{name}: no usable output: expected a feature map (1, d, rows, columns) or patch tokens (1, n, d), of "
            f"floats; got {shapes}. Name a layer: onnx:PATH@NAME."
        )
    names, form = [names[usable[-1]]], forms[usable[-1]]
    assert form is not None

    def run(planes: NDArray[np.float32]) -> NDArray[np.float32]:
        return form.cells(run_all(planes)[0], planes.shape[3], planes.shape[2])

    mean, std, longest_side, stride = (config.get(key) for key in ("mean", "std", "longest_side", "stride"))
    return Network(run, form.n_dims, mean, std, longest_side, stride or form.stride, fixed_size, sha256)


class _Form(NamedTuple):
    """How an output array becomes cells."""

    n_dims: int
    stride: int
    n_prefix: int | None  # None: a feature map
    channels_last: bool

    def cells(self, array: NDArray[Any], width: int, height: int) -> NDArray[np.float32]:
        values = np.asarray(array[0], np.float32)
        if self.n_prefix is not None:
            return values[self.n_prefix :].reshape(height // self.stride, width // self.stride, -1)
        return values if self.channels_last else values.transpose(1, 2, 0)


def _output_form(array: Any, width: int, height: int, channels_last: bool, n_prefix: int | None) -> _Form | None:
    """What the answer to a blank picture of this size says about an output; None if it holds no cells."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or 0 in array.shape or array.shape[:1] != (1,):
        return None
    if array.ndim == 4:
        rows, columns, n_dims = array.shape[1:] if channels_last else (*array.shape[2:], array.shape[1])
        stride = max(round(width / columns), round(height / rows))
        is_map = rows * columns > 1 and stride <= _MAX_STRIDE and n_dims <= _MAX_DIMS
        return _Form(n_dims, max(1, stride), None, channels_last) if is_map else None
    if array.ndim == 3 and array.shape[1] > 1 and array.shape[2] <= _MAX_DIMS:
        n_tokens = array.shape[1]
        for stride in range(1, _MAX_STRIDE + 1):  # the finest grid that leaves the fewest tokens over
            n_cells = (width // stride) * (height // stride)
            extra = n_tokens - n_cells
            if n_cells > 1 and width % stride == height % stride == 0 and extra >= 0 and n_prefix in (None, extra):
                return _Form(array.shape[2], stride, extra, channels_last)
    return None


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
        if not model.graph.node:
            raise ValueError("it holds no network")
        external = onnx.TensorProto.EXTERNAL
        if any(tensor.data_location == external or tensor.external_data for tensor in _tensors(model)):
            raise ValueError("it keeps weights in other files, which are not followed; save it as one file")
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf and the checker raise many types on a damaged file
        raise InvalidInputError(f"{name}: not a usable ONNX file ({first_line(error)}).") from error
    return model


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every constant, in the graph, in the graphs inside its nodes and in its functions."""
    waiting: list[Any] = [model.graph, *(info.algorithm for info in model.training_info)]
    nodes = [node for function in model.functions for node in function.node]
    while waiting or nodes:
        while waiting:
            graph = waiting.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes += graph.node
        while nodes:
            for attribute in nodes.pop().attribute:
                yield from (attribute.t, *attribute.tensors)
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    yield from (sparse.values, sparse.indices)
                waiting += [graph for graph in (attribute.g, *attribute.graphs) if graph.node or graph.initializer]


def _config(model: onnx.ModelProto, name: str) -> dict[str, Any]:
    text = next((entry.value for entry in model.metadata_props if entry.key == _CONFIG), "{}")
    try:
        config = json.loads(text)
        if not isinstance(config, dict):
            raise ValueError("it is no JSON object")
        for key in ("mean", "std"):
            if key in config and not _are_three_numbers(config[key]):
                raise ValueError(f"{key} must be three numbers")
        for key, low, high in (("longest_side", 8, 10_000), ("stride", 1, _MAX_STRIDE), ("n_prefix", 0, 1 << 16)):
            value = config.get(key)
            if value is not None and not (type(value) is int and low <= value <= high):
                raise ValueError(f"{key} must be a whole number from {low} to {high}")
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{name}: its metadata {_CONFIG!r} cannot be used ({first_line(error)}); export it again."
        ) from error
    return config


def _are_three_numbers(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(type(number) in (int, float) and abs(number) <= _MAX_NUMBER for number in value)
    )


def _input_form(model: onnx.ModelProto, name: str) -> tuple[bool, tuple[int, int] | None]:
    """Whether the colors come last, and the (width, height) if it is fixed."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [item for item in model.graph.input if item.name not in constants]
    sides = [[d.dim_value if d.HasField("dim_value") else 0 for d in i.type.tensor_type.shape.dim] for i in inputs]
    is_float = [item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT for item in inputs]
    if len(inputs) != 1 or not is_float[0] or len(sides[0]) != 4 or sides[0][0] not in (0, 1):
        shown = "; ".join(f"{item.name} {tuple(side)}" for item, side in zip(inputs, sides, strict=True)) or "none"
        raise InvalidInputError(f"{name}: expected one input of floats, (1, 3, height, width); got {shown}.")
    _, first, second, last = sides[0]
    if first not in (0, 3) and last != 3:
        raise InvalidInputError(f"{name}: expected an input of three colors, (1, 3, height, width); got {sides[0]}.")
    channels_last = last == 3 and first != 3
    height, width = (first, second) if channels_last else (second, last)
    if max(height, width) > 10_000:
        raise InvalidInputError(f"{name}: its input of {width} x {height} pixels is too large.")
    return channels_last, ((width, height) if width and height else None)


def _offer(model: onnx.ModelProto, output: str, name: str) -> None:
    """Make a value inside the network one of its outputs."""
    if output in {item.name for item in model.graph.output}:
        return
    inside = [value for node in model.graph.node for value in node.output if value]
    if output not in inside:
        outputs = ", ".join(item.name for item in model.graph.output)
        last = ", ".join(inside[-3:])
        raise InvalidInputError(f"{name}: no value {output!r}; its outputs: {outputs}; its last values: {last}.")
    model.graph.output.append(helper.make_empty_tensor_value_info(output))


def _session(data: bytes, name: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # images are worked on side by side instead
    options.log_severity_level = 4  # what goes wrong is raised
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises types of its own, one per cause
        raise InvalidInputError(f"{name}: ONNX Runtime cannot run it ({first_line(error)}).") from error

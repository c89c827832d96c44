"""Any backbone of timm as a descriptor, and the way from there to a network file. The one door to PyTorch and timm."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import math
import threading
import warnings
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.network import Network, NetworkDescriptor, first_line
from lnbnn.errors import InvalidInputError, MissingExtraError, UnknownNameError
from lnbnn.files.regular import read_regular

try:
    import timm
    import torch
except ImportError as error:
    raise MissingExtraError("descriptor 'timm:...' needs the extra: pip install 'lnbnn[timm]'.") from error

__all__ = ["TimmNetwork"]

_loading = threading.Lock()
_MAX_WEIGHTS_BYTES = 1 << 36


@dataclass(eq=False, repr=False)
class TimmNetwork(NetworkDescriptor):
    """The cells of a feature map, or the patch tokens, of a timm backbone.

    Parameters
    ----------
    source : str
        ``MODEL`` or ``MODEL@LAYER``: the number of one of the feature maps that timm lists for the model (0 is the
        first, -1 the last). By default what the model's head is given.
    weights : str, optional
        A file with the weights (.safetensors, or .pth read with ``weights_only``); by default timm downloads those of
        its model.
    longest_side, mean, std, n_components, whitening, sha256
        As in :class:`~lnbnn.descriptors.network.NetworkDescriptor`; what is not given is the model's own data
        configuration.

    Notes
    -----
    PyTorch is set to one thread: images are worked on side by side instead.
    """

    name = "timm:"

    _: KW_ONLY
    weights: str | None = None

    def _network(self) -> Network:
        return self._loaded()[0]

    def onnx_file(self) -> tuple[bytes, float]:
        """The same network as an ONNX file with its configuration in it, and how far its cells differ at most.

        The picture's size stays open where the network allows it; otherwise it is that of its configuration.
        """
        from lnbnn.descriptors.onnx_file import with_config

        network, module = self._loaded()
        stride = network.stride
        side = max(2, self.used_longest_side() // stride) * stride
        config = {"mean": self.used_color("mean").tolist(), "std": self.used_color("std").tolist()}
        config |= {"longest_side": self.used_longest_side(), "stride": stride}
        fixed_height, fixed_width = (side, side) if network.fixed_size is None else network.fixed_size[::-1]
        last_error: Exception = ValueError()
        for is_open in (True, False) if network.fixed_size is None else (False,):
            sizes = [(side, side - stride), (side, side)] if is_open else [(fixed_height, fixed_width)]
            try:
                data = with_config(_export(module, sizes[0], is_open), **config)
                return data, _largest_difference(data, network, sizes)
            except Exception as error:  # the exporter raises many types on what it cannot follow
                last_error = error
        raise InvalidInputError(f"{self.name}: PyTorch cannot write it as ONNX ({first_line(last_error)}).")

    def _loaded(self) -> tuple[Network, torch.nn.Module]:
        with _loading:
            return _load(self.source, self.weights)


class _Cells(torch.nn.Module):
    """A backbone whose answer to (1, 3, height, width) is a feature map (1, n_dims, rows, columns)."""

    def __init__(self, model: torch.nn.Module, layer: int | None) -> None:
        super().__init__()
        self.model = model
        self.layer = layer
        self.n_prefix = int(getattr(model, "num_prefix_tokens", 0))
        self.channels_last = getattr(model, "output_fmt", "NCHW") == "NHWC"

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if self.layer is not None:
            return self.model.forward_intermediates(
                image, indices=[self.layer], norm=True, output_fmt="NCHW", intermediates_only=True
            )[0]
        found = self.model.forward_features(image)
        if found.ndim == 3:  # patch tokens after those that stand for the whole picture
            tokens = found[:, self.n_prefix :]
            rows = image.shape[2] // self._patch()
            columns = image.shape[3] // self._patch()
            return tokens.transpose(1, 2).reshape(1, tokens.shape[2], rows, columns)
        return found.permute(0, 3, 1, 2) if self.channels_last else found

    def _patch(self) -> int:
        size = self.model.patch_embed.patch_size
        return int(size[0] if isinstance(size, tuple | list) else size)


@lru_cache(maxsize=2)
def _load(source: str, weights: str | None) -> tuple[Network, torch.nn.Module]:
    name, at, text = source.rpartition("@")
    try:
        name, layer = (name, int(text)) if at else (source, None)
    except ValueError:
        raise InvalidInputError(f"the layer of a timm model is a number, as in timm:MODEL@-1; got {text!r}.") from None
    if not name.startswith("hf") and timm.is_model(name.partition(".")[0]) is False:
        close = ", ".join(timm.list_models(f"*{name.partition('.')[0].split('_')[0]}*")[:5]) or "see timm.list_models()"
        raise UnknownNameError(f"timm has no model {name!r}; for example: {close}.")
    model = _create(name, weights)
    torch.set_num_threads(1)
    config = timm.data.resolve_model_data_config(model)
    _, height, width = config["input_size"]
    module = _Cells(model, layer).eval()
    try:
        with torch.inference_mode():
            found = module(torch.zeros(1, 3, height, width))
    except (AttributeError, NotImplementedError, IndexError, AssertionError, RuntimeError, ValueError) as error:
        raise InvalidInputError(f"timm:{source}: it has no usable feature map ({first_line(error)}).") from error
    if found.ndim != 4 or found.shape[2] * found.shape[3] < 2:
        raise InvalidInputError(
            f"timm:{source}: expected a feature map (1, d, rows, columns); got {tuple(found.shape)}."
        )
    stride = max(math.ceil(height / found.shape[2]), math.ceil(width / found.shape[3]))
    deepest = [info.get("reduction", 1) for info in getattr(model, "feature_info", [])]
    stride = max([stride, *(int(value) for value in deepest if isinstance(value, int))])
    fixed = (width, height) if config.get("fixed_input_size") or not _takes_other_sizes(module, stride) else None

    def run(planes: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return module(torch.from_numpy(planes))[0].permute(1, 2, 0).numpy()

    digest = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        digest.update(key.encode() + value.contiguous().numpy().tobytes())
    network = Network(
        run, int(found.shape[1]), config["mean"], config["std"], max(width, height), stride, fixed, digest.hexdigest()
    )
    return network, module


def _create(name: str, weights: str | None) -> torch.nn.Module:
    options: dict[str, Any] = {"pretrained": weights is None, "num_classes": 0}
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what fails is said once, below
    try:
        try:
            model = timm.create_model(name, **options, dynamic_img_size=True)
        except TypeError:  # only transformers know this option
            model = timm.create_model(name, **options)
    except Exception as error:  # no network, no such weights, a hub that is down: each has types of its own
        raise InvalidInputError(
            f"timm:{name}: its weights cannot be loaded ({first_line(error)}); download them once with a connection, "
            "or give the file: -D weights=FILE."
        ) from error
    if weights is not None:
        _take_weights(model, name, Path(weights))
    return model


def _take_weights(model: torch.nn.Module, name: str, path: Path) -> None:
    try:
        data = read_regular(path, _MAX_WEIGHTS_BYTES, follow_link=True)
        if path.suffix == ".safetensors":
            from safetensors.torch import load

            state = load(data)
        else:
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        for key in ("state_dict", "model"):
            state = state[key] if isinstance(state.get(key), dict) else state
        missing = set(model.load_state_dict(state, strict=False).missing_keys)
    except OSError as error:
        raise InvalidInputError(f"{path}: no such weights file ({error.strerror}).") from error
    except Exception as error:  # pickle, safetensors and PyTorch raise many types on a damaged or hostile file
        raise InvalidInputError(f"{path}: not weights of {name} ({first_line(error)}).") from error
    if missing:
        raise InvalidInputError(f"{path}: not the weights of {name}: {len(missing)} are missing, e.g. {min(missing)}.")


def _takes_other_sizes(module: torch.nn.Module, stride: int) -> bool:
    try:
        with torch.inference_mode():
            found = module(torch.zeros(1, 3, 4 * stride, 5 * stride))
    except Exception:  # networks of a fixed size fail in ways of their own
        return False
    return found.ndim == 4


def _export(module: torch.nn.Module, size: tuple[int, int], is_open: bool) -> Any:
    from lnbnn.descriptors.onnx_file import onnx

    image = torch.zeros(1, 3, *size)
    axes = {"image": {2: "height", 3: "width"}, "features": {2: "rows", 3: "columns"}} if is_open else None
    buffer = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the tracer warns of every size it reads; the result is compared instead
        torch.onnx.export(
            module,
            (image,),
            buffer,
            input_names=["image"],
            output_names=["features"],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
    return onnx.load_model_from_string(buffer.getvalue())


def _largest_difference(data: bytes, network: Network, sizes: list[tuple[int, int]]) -> float:
    """How far the cells of seeded noise pictures differ, relative to the largest cell where that is above 1."""
    from lnbnn.descriptors.onnx_file import open_network

    written = open_network(data, None, name="the exported network")
    rng = np.random.default_rng(0)
    worst = 0.0
    for size in sizes:
        planes = rng.normal(size=(1, 3, *size)).astype(np.float32)
        expected, found = network.run(planes), written.run(planes)
        if expected.shape != found.shape:
            raise ValueError(f"{found.shape} cells instead of {expected.shape}")
        worst = max(worst, float(np.abs(expected - found).max() / max(1.0, np.abs(expected).max())))
    if worst > 1e-4:
        raise ValueError(f"its cells differ by {worst:.2g}")
    return worst

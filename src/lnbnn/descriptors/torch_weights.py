"""Tensors of a PyTorch weights file (the layout of before version 1.6), read without PyTorch and without running code.

Such a file is a row of pickles, the third of which describes the tensors, followed by their numbers. The reader below
builds nothing but dicts, tuples and numbers: every other name that the pickles ask for is refused, as
``torch.load(weights_only=True)`` does.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_tensors"]

_MAGIC = 0x1950A86A20F9469CFC6C
_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype
    n_values: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


class _PlainUnpickler(pickle.Unpickler):
    """Knows an ordered dict, a tensor's description and the types of its numbers; refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a weights file")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, n_values, _ = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or int(n_values) < 0:
            raise pickle.UnpicklingError(f"{kind!r} is not part of a weights file")
        return _Storage(str(key), dtype, int(n_values))


def read_tensors(data: bytes) -> dict[str, NDArray[np.generic]]:
    """Name to array, a view of the file's content, for every tensor; ``ValueError`` when it is not such a file."""
    file = io.BytesIO(data)
    try:
        magic, _, _ = (_PlainUnpickler(file).load() for _ in range(3))
        if magic != _MAGIC:
            raise ValueError("no PyTorch weights file")
        described: dict[str, _Tensor] = dict(_PlainUnpickler(file).load())
        keys = _PlainUnpickler(file).load()
        storages = {tensor.storage.key: tensor.storage for tensor in described.values()}
        values, place = {}, file.tell()
        for key in map(str, keys):
            values[key] = _values_at(data, place, storages[key])
            place += 8 + values[key].nbytes
        return {name: _as_array(tensor, values[tensor.storage.key]) for name, tensor in described.items()}
    except ValueError:
        raise
    except Exception as error:  # pickle raises many types on damaged data; each means the same here
        raise ValueError(f"not a readable weights file ({error})") from error


def _values_at(data: bytes, place: int, storage: _Storage) -> NDArray[np.generic]:
    """The numbers of a storage: their count, in 8 bytes, then themselves."""
    n_values = int.from_bytes(data[place : place + 8], "little")
    if n_values != storage.n_values:
        raise ValueError(f"{n_values} numbers where {storage.n_values} are described")
    if place + 8 + n_values * storage.dtype.itemsize > len(data):
        raise ValueError("cut short")
    return np.frombuffer(data, storage.dtype, n_values, place + 8)


def _as_array(tensor: _Tensor, values: NDArray[np.generic]) -> NDArray[np.generic]:
    steps = zip(tensor.shape, tensor.strides, strict=True)
    last = tensor.offset + sum((side - 1) * stride for side, stride in steps)
    if min(tensor.offset, *tensor.shape, *tensor.strides, 0) < 0 or (0 not in tensor.shape and last >= len(values)):
        raise ValueError("a tensor reaches beyond its numbers")
    strides = [stride * values.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, strides, writeable=False)

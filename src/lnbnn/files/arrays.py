"""Plain arrays on disk: .npy without pickle, checked before use, large ones memory-mapped."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import ModelFormatError
from lnbnn.files.regular import open_regular

__all__ = ["load_array", "save_array", "save_stacked"]

_MAP_FROM_BYTES = 1 << 20
_ROWS_AT_ONCE = 1 << 16
_MAX_SIDE = 1 << 31  # of an array without data; else the size of the file is the limit
_NATIVE = {np.dtype(name).str for name in ("bool", "uint8", "int32", "int64", "float16", "float32", "float64")}


def save_array(path: Path, array: NDArray[np.generic]) -> None:
    """Write an array as a .npy file."""
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)


def save_stacked(path: Path, parts: Sequence[NDArray[np.generic]]) -> None:
    """Write arrays of one type, one after the other along their first dimension, as one .npy file."""
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    header = {"descr": np.lib.format.dtype_to_descr(parts[0].dtype), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            for start in range(0, len(part), _ROWS_AT_ONCE):
                file.write(np.ascontiguousarray(part[start : start + _ROWS_AT_ONCE]).data)


def load_array(path: Path, *, ndim: int, dtypes: Sequence[str]) -> NDArray[np.generic]:
    """Open a .npy file whose number of dimensions and type are known; the header is checked against the file's size.

    A file of 1 MiB or more is memory-mapped read-only: opening it costs nothing and processes share it.
    """
    try:
        with open_regular(path) as file:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"npy version {version}")
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
            start, size = file.tell(), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise ModelFormatError(f"{path}: missing; the model folder is incomplete, fit the model again.") from None
    except Exception as error:  # NumPy's header parser raises many types on damaged text
        raise ModelFormatError(f"{path}: not a readable array file ({error}); fit the model again.") from error
    if fortran_order or len(shape) != ndim or dtype.str not in _NATIVE or dtype.name not in dtypes or min(shape) < 0:
        raise ModelFormatError(
            f"{path}: expected a {ndim}-D array of {' or '.join(dtypes)}, got {dtype} of shape {shape}."
        )
    n_bytes = math.prod(shape) * dtype.itemsize
    if size - start != n_bytes:
        raise ModelFormatError(
            f"{path}: cut short or damaged (expected {n_bytes} bytes of data, got {size - start}); fit the model again."
        )
    if n_bytes == 0:
        if shape[0] or max(shape) > _MAX_SIDE:
            raise ModelFormatError(
                f"{path}: an array without data has no rows; got shape {shape}; fit the model again."
            )
        return np.empty(shape, dtype)
    if n_bytes < _MAP_FROM_BYTES:
        with open_regular(path) as file:
            file.seek(start)
            return np.frombuffer(file.read(n_bytes), dtype).reshape(shape)
    return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=shape)

"""PyTorch weights files read without PyTorch, and without running what they ask for."""

from __future__ import annotations

import io
import os
import pickle
import sys
import types

import numpy as np
import pytest

from lnbnn.descriptors.torch_weights import _MAGIC, read_tensors


class FloatStorage:
    """Stands for ``torch.FloatStorage`` while a file is made."""


def _rebuild_tensor_v2(*arguments):
    """Stands for ``torch._utils._rebuild_tensor_v2`` while a file is made."""


class Tensor:
    def __init__(self, key, shape, strides, offset, n_values):
        self.storage = (key, n_values)
        self.arguments = (self, offset, shape, strides, False, None)

    def __reduce__(self):
        return _rebuild_tensor_v2, (Storage(*self.storage), *self.arguments[1:])


class Storage:
    def __init__(self, key, n_values):
        self.pid = ("storage", FloatStorage, key, "cpu", n_values, None)


class Pickler(pickle.Pickler):
    def persistent_id(self, thing):
        return thing.pid if isinstance(thing, Storage) else None


@pytest.fixture
def write(monkeypatch):
    """``write(tensors, values)``: the bytes of a weights file, as old versions of PyTorch wrote them."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage, utils._rebuild_tensor_v2 = FloatStorage, _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    monkeypatch.setattr(FloatStorage, "__module__", "torch")
    monkeypatch.setattr(_rebuild_tensor_v2, "__module__", "torch._utils")

    def make(tensors, values, magic=_MAGIC):
        file = io.BytesIO()
        for part in (magic, 1001, {"little_endian": True}, tensors, sorted(values)):
            Pickler(file, protocol=2).dump(part)
        for key in sorted(values):
            file.write(len(values[key]).to_bytes(8, "little") + np.array(values[key], "<f4").tobytes())
        return file.getvalue()

    return make


def read(data):
    return read_tensors(data)


def test_arrays_come_back_by_name(write):
    tensors = {"a": Tensor("0", (2, 3), (3, 1), 0, 6), "b": Tensor("1", (2,), (1,), 1, 4)}
    found = read(write(tensors, {"0": [1, 2, 3, 4, 5, 6], "1": [7, 8, 9, 10]}))
    assert found["a"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found["b"].tolist() == [8, 9]
    assert found["a"].dtype == np.float32


def test_turned_arrays_come_back_turned(write):
    found = read(write({"a": Tensor("0", (3, 2), (1, 3), 0, 6)}, {"0": [1, 2, 3, 4, 5, 6]}))
    assert found["a"].tolist() == [[1, 4], [2, 5], [3, 6]]


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((7,), (1,), 0), ((2,), (6,), 0), ((6,), (1,), 1), ((6,), (1,), -1), ((2,), (-1,), 1), ((-2,), (1,), 0)],
)
def test_a_tensor_beyond_its_numbers_is_refused(write, shape, strides, offset):
    with pytest.raises(ValueError, match="reaches beyond its numbers"):
        read(write({"a": Tensor("0", shape, strides, offset, 6)}, {"0": [1, 2, 3, 4, 5, 6]}))


def test_a_file_that_asks_for_code_is_refused_and_not_run(write, tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was here"),)

    with pytest.raises(ValueError, match=r"mkdir is not part of a weights file"):
        read(write({"a": Hostile()}, {}))
    assert not (tmp_path / "was here").exists()


def test_files_cut_short_are_refused(write):
    whole = write({"a": Tensor("0", (6,), (1,), 0, 6)}, {"0": [1, 2, 3, 4, 5, 6]})
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            read(whole[:length])


def test_other_files_are_refused(write):
    with pytest.raises(ValueError, match="no PyTorch weights file"):
        read(write({}, {}, magic=7))
    with pytest.raises(ValueError, match="not a readable weights file"):
        read(b"PK\x03\x04")
    with pytest.raises(ValueError, match="6 numbers where 5 are described"):
        read(write({"a": Tensor("0", (5,), (1,), 0, 5)}, {"0": [1, 2, 3, 4, 5, 6]}))

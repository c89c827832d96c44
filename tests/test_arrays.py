"""Array files: what is read back, and headers that promise what is not there."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from lnbnn.errors import ModelFormatError
from lnbnn.files.arrays import load_array, save_array
from lnbnn.reading.store import FeatureStore


def forge(path, shape, data=b""):
    """An array file whose header says any shape."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.write(data)
    return path


@pytest.mark.parametrize("shape", [(0, 128), (3, 4), (1, 1)])
def test_arrays_are_read_back(tmp_path, shape):
    save_array(tmp_path / "a.npy", np.ones(shape, np.float32))
    found = load_array(tmp_path / "a.npy", ndim=2, dtypes=("float32",))
    assert found.shape == shape
    assert (found == 1).all()


@pytest.mark.parametrize("shape", [(2**70, 0), (0, 2**70), (2**62, 0), (2**40, 0), (0, 2**40), (3, 0), (-1, 0)])
def test_an_array_without_data_has_no_rows(tmp_path, shape):
    with pytest.raises(ModelFormatError, match=r"a\.npy: "):
        load_array(forge(tmp_path / "a.npy", shape), ndim=2, dtypes=("float32",))


@pytest.mark.parametrize("shape", [(2**70, 1), (2**31, 2**31), (2, 2), (10**400, 1)])
def test_a_header_that_promises_more_than_the_file_holds(tmp_path, shape):
    with pytest.raises(ModelFormatError, match="cut short or damaged"):
        load_array(forge(tmp_path / "a.npy", shape, bytes(8)), ndim=2, dtypes=("float32",))


def test_a_number_of_too_many_digits_in_a_header(tmp_path):
    path = forge(tmp_path / "a.npy", (7777, 1), bytes(8))
    text = path.read_bytes()
    digits = b"9" * 5000
    header = text[10:].replace(b"7777", digits)
    path.write_bytes(text[:8] + (len(header) - 8).to_bytes(2, "little") + header)
    with pytest.raises(ModelFormatError, match="not a readable array file"):
        load_array(path, ndim=2, dtypes=("float32",))


@pytest.mark.parametrize("shape", [(2**70, 0), (2**40, 0), (10**6, 10**6)])
def test_an_entry_of_the_feature_cache_with_a_forged_shape_is_absent(tmp_path, shape):
    (tmp_path / "aa").mkdir()
    with zipfile.ZipFile(tmp_path / "aa" / f"{'0' * 62}.npz", "w") as archive:
        for name, kind, sides in (("descriptors", "|u1", shape), ("xy", "<f4", (0, 2)), ("scale", "<f4", (0,))):
            with archive.open(f"{name}.npy", "w") as file:
                header = {"descr": kind, "fortran_order": False, "shape": sides}
                np.lib.format.write_array_header_1_0(file, header)
        with archive.open("size.npy", "w") as file:
            np.lib.format.write_array(file, np.array([9, 9]))
    assert FeatureStore(tmp_path).get("aa" + "0" * 62) is None

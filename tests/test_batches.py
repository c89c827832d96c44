"""The features of added images, written and read; damaged ones are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from synthetic import make_features

from lnbnn.errors import ModelFormatError
from lnbnn.model.batches import TABLE, read_batch, write_batch
from lnbnn.model.folder import read_json


def features(n, seed, dtype=np.uint8):
    return make_features(np.random.default_rng(seed).integers(0, 99, (n, 4)).astype(dtype), seed=seed)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_round_trip(tmp_path, dtype):
    given = {7: features(3, 1, dtype), 2: features(1, 2, dtype), 9: features(5, 3, dtype)}
    write_batch(tmp_path, given.items())
    found = read_batch(tmp_path)
    assert found.keys() == given.keys()
    for number, image in given.items():
        assert found[number].size == image.size
        assert found[number].descriptors.dtype == image.descriptors.dtype
        for name in ("descriptors", "xy", "scale"):
            assert np.array_equal(getattr(found[number], name), getattr(image, name))


@pytest.mark.parametrize(
    "rows",
    [
        [[7, 3, 100, 80]],
        [[7, 3, 100, 80], [2, 2, 100, 80]],
        [[7, 3, 100, 80], [2, 0, 100, 80], [3, 1, 100, 80]],
        [[7, 3, 100], [2, 1, 100, 80]],
        [["7", 3, 100, 80], [2, 1, 100, 80]],
        [[7, 3, -1, 80], [2, 1, 100, 80]],
        {"7": 3},
        3,
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, rows):
    write_batch(tmp_path, {7: features(3, 1), 2: features(1, 2)}.items())
    (tmp_path / TABLE).write_text(json.dumps(rows))
    with pytest.raises(ModelFormatError, match="the added images are damaged"):
        read_batch(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\xff"])
def test_what_is_no_json_is_refused(tmp_path, text):
    (tmp_path / TABLE).write_text(text, encoding="latin-1")
    with pytest.raises(ModelFormatError, match=r"table\.json: cannot be read"):
        read_json(tmp_path / TABLE)
    with pytest.raises(ModelFormatError, match="cannot be read"):
        read_json(tmp_path / "missing.json")

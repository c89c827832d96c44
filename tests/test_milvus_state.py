"""Which rows a folder stands for, and which go with it."""

from __future__ import annotations

import numpy as np
import pytest

from lnbnn.errors import ModelFormatError
from lnbnn.indexes.milvus_state import State, let_go, not_in, states_in

STATE = State("http://127.0.0.1:19530", "lnbnn_a", -5, 3, "uint8")


def test_written_and_read(tmp_path):
    STATE.write(tmp_path)
    assert State.read(tmp_path) == STATE
    with pytest.raises(ModelFormatError, match=r"collection\.json: missing"):
        State.read(tmp_path / "nowhere")


def test_states_are_found_at_any_depth_and_damaged_ones_are_left_out(tmp_path):
    for name in ("data-000001", "data-000002/00003", "damaged"):
        (tmp_path / name).mkdir(parents=True)
        STATE.write(tmp_path / name)
    (tmp_path / "damaged" / "collection.json").write_text("{")
    assert [folder.name for folder, _ in states_in(tmp_path)] == ["data-000001", "00003"]


def test_a_folder_without_a_collection_may_go(tmp_path):
    assert let_go(tmp_path, tmp_path)
    assert let_go(tmp_path / "nowhere", tmp_path)


def test_the_ids_of_no_other():
    ids = np.array([1, 2, 3, 9])
    assert not_in(ids, [np.array([2]), np.array([9, 10])]).tolist() == [1, 3]
    assert not_in(ids, []).tolist() == [1, 2, 3, 9]

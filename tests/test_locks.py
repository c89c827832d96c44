"""Locks that could not be taken leave nothing to clean up."""

from __future__ import annotations

import gc

import pytest

from lnbnn.files.locks import Lock, read_lock


def test_a_folder_that_cannot_be_opened_leaves_no_half_lock(tmp_path):
    # A failing __del__ is reported as a warning, and warnings are errors here.
    with pytest.raises(FileNotFoundError):
        read_lock(tmp_path / "missing")
    gc.collect()


def test_a_lock_of_which_nothing_was_made_can_be_closed():
    Lock().close()

"""What the version before answered, and the models that it wrote: this one answers the same.

The bits are compared by ``python tests/golden.py compare``; here another machine may round otherwise.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golden import EXACT_CASES, all_answers, model_answers, unpack_models

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def before():
    with np.load(DATA / "answers-0.1.npz") as record:
        return dict(record)


def assert_same(found, before):
    assert found.keys() <= before.keys()
    for name, value in found.items():
        value = np.asarray(value)
        if value.dtype.kind in "fc":
            assert np.allclose(value, before[name], rtol=1e-6), name
        else:
            assert np.array_equal(value, before[name]), name


def test_every_method_answers_as_before(before, tmp_path):
    found = all_answers(tmp_path, EXACT_CASES)
    assert_same(found, before)
    assert len(found) >= 50


def test_models_of_the_version_before_answer_as_before(before, tmp_path):
    unpack_models(DATA / "models-0.1.tar.gz", tmp_path)
    found = model_answers(tmp_path / "models")
    assert_same(found, before)
    assert found.keys() == {name for name in before if name.startswith("model ")}

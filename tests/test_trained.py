"""The settings of the spatial pyramids and of the pooled SVM."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from synthetic import grating_set, small_sift

from lnbnn.classifiers.trained import HardSpatialPyramid, SoftSpatialPyramid
from lnbnn.errors import InvalidInputError

KINDS = [HardSpatialPyramid, SoftSpatialPyramid]


def fitted(kind, **changes):
    return kind(**{"n_words": 12, "descriptor": small_sift(), "n_jobs": 1, **changes}).fit(*grating_set())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_words": 0}, "n_words must be a whole number from 1"),
        ({"n_levels": 9}, "n_levels must be a whole number from 1 to 8; got 9"),
        ({"n_samples": 1.5}, "n_samples must be a whole number"),
        ({"pooling": "median"}, "pooling must be one of average, max; got 'median'"),
        ({"norm": "l3"}, "norm must be one of l1, l2, none; got 'l3'"),
        ({"C": 0}, "C must be a number above 0; got 0"),
        ({"C": float("nan")}, "C must be a number above 0"),
        ({"C": "much"}, "C must be a number above 0; got 'much'"),
    ],
)
def test_bad_settings(kind, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        fitted(kind, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": -1.0}, "beta must be a number above 0; got -1.0"),
        ({"n_nearest_words": 0}, "n_nearest_words must be a whole number from 1"),
    ],
)
def test_bad_settings_of_soft_assignment(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        fitted(SoftSpatialPyramid, **changes)


@pytest.mark.parametrize(("kind", "column"), [(HardSpatialPyramid, 0), (SoftSpatialPyramid, 1)])
def test_documented_defaults_are_the_constructors(kind, column):
    page = (Path(__file__).resolve().parent.parent / "docs" / "spatial-pyramid.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\w+)`[^|]* \| ([^|]+) \| ([^|]+) \|", page.partition("## Settings")[2], flags=re.MULTILINE
    )
    documented = {name: defaults[column] for name, *defaults in rows if defaults[column] != "-"}
    parameters = inspect.signature(kind).parameters
    expected = {name: str(found.default) for name, found in parameters.items() if found.default is not None}
    assert documented == expected
    assert all(name in inspect.getdoc(kind) for name in parameters)

"""The settings of NBNN with an affine correction, and the figures that were chosen and measured with them."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from synthetic import grating_set

from lnbnn import AffineNBNN
from lnbnn.errors import InvalidInputError
from lnbnn.lab.records import read_record
from lnbnn.methods.affine_correction import cross_fit_affine, fit_affine

HERE = Path(__file__).resolve().parent.parent


def affine(**changes):
    return AffineNBNN(**{"location_weight": 0, "index": "exact", "n_jobs": 1, **changes})


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "strong", True, None])
def test_bad_regularization(value):
    with pytest.raises(InvalidInputError, match="regularization must be a number above 0"):
        affine(regularization=value).fit(*grating_set())


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "even", True, None])
def test_bad_balance(value):
    with pytest.raises(InvalidInputError, match="balance must be a number from 0 to 1"):
        affine(balance=value).fit(*grating_set())


def test_defaults_are_those_chosen_on_training_images():
    record = read_record(HERE / "results" / "unequal-choice.json")
    rows, chosen = record.results["settings"], record.results["chosen"]
    best = max(row["accuracy"] for row in rows)
    equal = [row for row in rows[1:] if row["accuracy"] >= best - record.settings["tolerance"]]
    assert chosen == min(equal, key=lambda row: abs(row["answers_large"] - 50))
    assert chosen["left_out"] == "one of each class"
    for defaults in (AffineNBNN().get_params(), signature_of(fit_affine), signature_of(cross_fit_affine)):
        assert (defaults["regularization"], defaults["balance"]) == (chosen["regularization"], chosen["balance"])
    page = (HERE / "docs" / "unequal-classes.md").read_text(encoding="utf-8")
    shown = [row for row in rows if row["regularization"] in (None, chosen["regularization"])]
    for row in shown:
        figures = [row[name] for name in ("accuracy", "accuracy_small", "accuracy_large", "answers_large")]
        assert f"| {' | '.join(f'{value:.1f}' for value in figures)} |" in page, row


def signature_of(function):
    return {name: value.default for name, value in inspect.signature(function).parameters.items()}


def test_documented_figures_are_the_record():
    record = read_record(HERE / "results" / "unequal.json").results
    page = (HERE / "docs" / "unequal-classes.md").read_text(encoding="utf-8")
    for method, figures in record.items():
        if method != "runs":
            assert f"| {' | '.join(f'{value:.1f}' for value in figures.values())} |" in page, method
    assert record["nbnn"]["answers_large"] > 80, "plain NBNN leans to the large classes"
    assert record["nbnn-affine"]["accuracy"] > record["nbnn"]["accuracy"] + 5
    for method in ("nbnn", "nbnn-affine"):
        for measure, value in record[method].items():
            mean = np.mean([run[method][measure] for run in record["runs"]])
            assert value == pytest.approx(mean, abs=0.006)


def test_numbers_of_numpy():
    affine(regularization=np.float32(0.1), balance=np.float32(1.0)).check_settings()

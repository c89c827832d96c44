"""Names in figures: as they are, harmless, and apart."""

from __future__ import annotations

import numpy as np
import pytest

from lnbnn.features import ImageFeatures
from lnbnn.trust.evaluation import Evaluation
from lnbnn.trust.evidence import Evidence
from lnbnn.trust.figures import confusion_figure, evidence_figure, save_figure

LABELS = ("$x^2$", r"a\$b", "one $", "\\frac{$", "two\nlines", "\x1b[31m", "caf\udce9", "x" * 30 + "1", "x" * 30 + "2")


def shown(text):
    """What matplotlib draws for a text; it must not take it for a formula."""
    drawn, is_formula = text._preprocess_math(text.get_text())
    assert not is_formula
    return drawn


def test_names_of_a_confusion_matrix(tmp_path):
    evaluation = Evaluation(LABELS, LABELS, np.eye(len(LABELS), dtype=np.int64), 1.0, ())
    figure = confusion_figure(evaluation)
    save_figure(figure, tmp_path / "confusion.svg")
    names = [shown(text) for text in figure.axes[0].get_yticklabels()]
    assert names[:4] == list(LABELS[:4])
    assert names[4:7] == [r"two\x0alines", r"\x1b[31m", r"caf\udce9"]
    assert names[7:] == list(LABELS[7:])
    assert (tmp_path / "confusion.svg").read_text(encoding="utf-8").replace("\n", "").isprintable()


def test_long_names_are_cut_where_they_stay_different():
    labels = ("y" * 40, "x" * 30 + "1")
    figure = confusion_figure(Evaluation(labels, labels, np.eye(2, dtype=np.int64), 1.0, ()))
    assert [shown(text) for text in figure.axes[0].get_yticklabels()] == ["y" * 25 + "…", "x" * 25 + "…"]


@pytest.mark.parametrize(("label", "against"), [("$x$", "two\nlines"), ("x" * 30 + "1", "x" * 30 + "2")])
def test_names_of_an_evidence_figure(tmp_path, label, against):
    features = ImageFeatures(
        np.zeros((2, 1), np.uint8), np.full((2, 2), 0.5, np.float32), np.full(2, 4, np.float32), (9, 9)
    )
    ranking = ((label, 2.0), (against, 1.0))
    evidence = Evidence(label, against, np.array([1.0, -1.0]), np.ones((9, 9)), features, ranking)
    figure = evidence_figure(np.zeros((9, 9), np.uint8), evidence, title="a$b$c\x1b.jpg")
    save_figure(figure, tmp_path / "why.png")
    assert shown(figure._suptitle) == r"a$b$c\x1b.jpg"
    names = [shown(text) for text in figure.axes[2].get_yticklabels()]
    assert len(set(names)) == 2
    assert shown(figure.axes[1].title) == f"evidence for  {names[0]}  against  {names[1]}"

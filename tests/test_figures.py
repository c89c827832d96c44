"""Names in figures: as they are, harmless, and apart."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from lnbnn.features import ImageFeatures
from lnbnn.references import Reference, References
from lnbnn.trust.evaluation import Evaluation
from lnbnn.trust.evidence import Evidence
from lnbnn.trust.figures import confusion_figure, evidence_figure, explanation_figure, save_figure
from lnbnn.trust.matches import Matches, match_photos

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


# ---- labeled photos --------------------------------------------------------------------------------------------------


def explanation(tmp_path, n_photos, against="dog", name="a$b$c"):
    """Evidence of one patch a photo, the first the strongest; photos of cat and dog by turns, whose files are gone."""
    n = n_photos
    features = ImageFeatures(
        np.zeros((n, 1), np.uint8), np.linspace(0.1, 0.9, 2 * n).reshape(n, 2), np.full(n, 6, np.float32), (90, 60)
    )
    labels = ["cat" if against is None or number % 2 == 0 else against for number in range(n)]
    images = References(Reference(i, f"{tmp_path}/{name}{i}.jpg", labels[i], 1) for i in range(n))
    sides = np.array([1 if label == "cat" else -1 for label in labels], np.int8)
    support = sides * np.arange(n, 0, -1.0)
    ids = np.arange(n, dtype=np.int64) << 20
    matches = Matches(features, None, images, np.arange(n), ids, support, sides)
    ranking = (("cat", 2.0), ("dog", 1.0))
    return Evidence("cat", against, support, np.ones((60, 90)), features, ranking, (matches,))


def texts_of(figure):
    """All texts that are drawn, with their boxes."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    hidden = {text for axes in figure.findobj(Axes) if not axes.axison for text in axes.get_xticklabels()}
    hidden |= {text for axes in figure.findobj(Axes) if not axes.axison for text in axes.get_yticklabels()}
    return [(text, text.get_window_extent(canvas.get_renderer())) for text in shown if text not in hidden]


@pytest.mark.parametrize("n_photos", [1, 2, 4, 30])
@pytest.mark.parametrize("against", [None, "dog"])
@pytest.mark.parametrize("name", ["1", "a long name of a photo that goes on and on " * 3])
def test_no_text_is_cut_or_lies_on_another(tmp_path, n_photos, against, name):
    evidence = explanation(tmp_path, n_photos, against, name)
    photos = match_photos(evidence.matches, evidence.photos[:4])
    figure = explanation_figure(np.zeros((60, 90), np.uint8), evidence, photos, title="photo.jpg    answer: cat")
    found = texts_of(figure)
    width, height = figure.canvas.get_width_height()
    for place, (text, box) in enumerate(found):
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
        for other, other_box in found[place + 1 :]:
            assert not box.padded(-1).overlaps(other_box.padded(-1)), (text, other)


def test_what_an_explanation_says(tmp_path):
    # Four photos that gave 4, -3, 2 and -1: of 10 that is 40, 30, 20 and 10 %.
    evidence = explanation(tmp_path, 4)
    figure = explanation_figure(
        np.zeros((60, 90), np.uint8), evidence, match_photos(evidence.matches, evidence.photos[:2])
    )
    save_figure(figure, tmp_path / "why.png")
    drawn = [shown(text) for text, _ in texts_of(figure)]
    assert "cat: a$b$c0.jpg\n40.0 % of all evidence, for cat (1 patch)" in drawn
    assert "dog: a$b$c1.jpg\n30.0 % of all evidence, for dog (1 patch)" in drawn
    assert drawn.count("picture not found") == 2
    assert [text.strip() for text in drawn if text.startswith(" ")] == ["40.0 %", "30.0 %", "20.0 %", "10.0 %"]


def test_without_labeled_photos_nothing_is_below_the_evidence(tmp_path):
    evidence = dataclasses.replace(explanation(tmp_path, 2, against=None), matches=())
    assert not evidence.photos
    drawn = [shown(text) for text, _ in texts_of(explanation_figure(np.zeros((60, 90), np.uint8), evidence, []))]
    assert "strongest patches" in drawn
    assert not [text for text in drawn if "labeled photos" in text]


def test_many_photos_share_a_bar(tmp_path):
    # 30 photos gave 30, 29 ... 1, together 465; the 18 after the first twelve 18 + 17 + ... + 1 = 171.
    evidence = explanation(tmp_path, 30, against=None)
    drawn = [shown(text) for text, _ in texts_of(explanation_figure(np.zeros((60, 90), np.uint8), evidence, []))]
    assert "18 more" in drawn
    assert f" {100 * 171 / 465:.1f} %" in drawn

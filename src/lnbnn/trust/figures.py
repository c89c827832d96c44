"""Arrays to matplotlib figures. Nothing here computes a result."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from lnbnn.escaping import plot_text
from lnbnn.files.atomic import atomic_path
from lnbnn.trust.evaluation import Evaluation
from lnbnn.trust.evidence import Evidence

__all__ = ["confusion_figure", "evidence_figure", "save_figure"]

_INK = "#222222"
_FOR, _AGAINST = "#d7301f", "#2166ac"
_MAX_TICKS = 60


def save_figure(figure: Figure, path: str | os.PathLike[str], *, source: str = "") -> None:
    """Write a figure in the format its file name ends in (.png, .pdf, .svg ...).

    ``source`` is kept in the file (PNG: the text field ``Source``): what the figure was drawn from.
    """
    FigureCanvasAgg(figure)
    with warnings.catch_warnings(), atomic_path(path) as partial:
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a class name in letters the font lacks
        figure.savefig(partial, dpi=130, metadata={"Source": source} if source else None)


def confusion_figure(evaluation: Evaluation) -> Figure:
    """The confusion matrix: rows are true classes, columns answers, shade is the share of the row."""
    shares = evaluation.confusion / evaluation.confusion.sum(axis=1, keepdims=True)
    n_rows, n_columns = shares.shape
    side = float(np.clip(0.22 * max(n_rows, n_columns), 4.5, 14.0))
    figure = Figure(figsize=(side + 2.2, side + 1.2), layout="constrained")
    axes = figure.add_subplot()
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    size = float(np.clip(260 / max(n_rows, n_columns), 4.0, 9.0))
    for set_ticks, names in ((axes.set_yticks, evaluation.labels), (axes.set_xticks, evaluation.answers)):
        step = -(-len(names) // _MAX_TICKS) if len(names) > 2 * _MAX_TICKS else 1
        places = range(0, len(names), step)
        set_ticks(places, _short_names([names[place] for place in places]), fontsize=size)
    axes.tick_params(axis="x", rotation=90)
    if n_columns <= 25:
        for row, column in zip(*np.nonzero(evaluation.confusion), strict=True):
            shade = "white" if shares[row, column] > 0.5 else _INK
            count = str(evaluation.confusion[row, column])
            axes.text(column, row, count, ha="center", va="center", color=shade, fontsize=8)
    axes.set_xlabel("answer")
    axes.set_ylabel("true class")
    title = f"mean per-class accuracy {100 * evaluation.mean_per_class_accuracy:.1f} %  "
    title += f"({evaluation.n_images} images, {len(evaluation.labels)} classes)"
    if evaluation.known:
        new = evaluation.without_known()
        figure_of_new = "no image is new" if new is None else f"without: {100 * new.mean_per_class_accuracy:.1f} %"
        title += f"\n{len(evaluation.known)} of the images are in the model itself; {figure_of_new}"
    axes.set_title(title, fontsize=11)
    figure.colorbar(picture, ax=axes, label="share of the class's images", shrink=0.6)
    return figure


def evidence_figure(picture: NDArray[np.uint8], evidence: Evidence, *, title: str = "", n_patches: int = 12) -> Figure:
    """The image, gray or RGB, with its strongest patches, the evidence laid over it, and the leading classes."""
    width, height = evidence.features.size
    panel = 3.6
    panel_height = float(np.clip(panel * height / width, 2.2, 5.0))
    figure = Figure(figsize=(3 * panel + 1.0, panel_height + 1.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1, 0.85])
    _draw_patches(left, picture, evidence, n_patches)
    _draw_map(figure, middle, picture, evidence)
    _draw_ranking(right, evidence)
    if title:
        figure.suptitle(plot_text(title), fontsize=11, color=_INK)
    return figure


def _draw_patches(axes, picture, evidence, n_patches):  # type: ignore[no-untyped-def]
    width, height = evidence.features.size
    axes.imshow(picture, cmap="gray", vmin=0, vmax=255, extent=(0, width, height, 0))
    strongest = np.argsort(-np.abs(evidence.support), kind="stable")[:n_patches]
    largest = np.abs(evidence.support).max() or 1.0
    for place in strongest[::-1]:
        support = evidence.support[place]
        if support == 0:
            continue
        side = float(evidence.features.scale[place])
        x, y = evidence.features.xy[place] * (width, height)
        color = _FOR if support > 0 else _AGAINST
        line = 0.8 + 1.6 * abs(support) / largest
        axes.add_patch(Rectangle((x - side / 2, y - side / 2), side, side, fill=False, ec=color, lw=line))
    axes.set_title("strongest patches", fontsize=9)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()


def _draw_map(figure, axes, picture, evidence):  # type: ignore[no-untyped-def]
    width, height = evidence.features.size
    limit = np.quantile(np.abs(evidence.map), 0.995) or 1.0
    axes.imshow(picture, cmap="gray", vmin=-60, vmax=255, extent=(0, width, height, 0))
    strength = np.clip(np.abs(evidence.map) / limit, 0, 1)
    low, cmap = (0, "inferno") if evidence.against is None else (-limit, "RdBu_r")
    heat = axes.imshow(
        evidence.map, cmap=cmap, vmin=low, vmax=limit, alpha=0.15 + 0.65 * strength, extent=(0, width, height, 0)
    )
    label, *against = _short_names([name for name in (evidence.label, evidence.against) if name is not None])
    axes.set_title(f"evidence for  {'  against  '.join([label, *against])}", fontsize=9)
    axes.set_axis_off()
    bar = figure.colorbar(heat, ax=axes, shrink=0.75, pad=0.01)
    bar.solids.set_alpha(1.0)
    bar.set_ticks([low, limit], labels=["none" if low == 0 else "against", "for"])
    bar.ax.tick_params(labelsize=7, length=0)


def _draw_ranking(axes, evidence):  # type: ignore[no-untyped-def]
    shown = list(evidence.ranking[:6])
    for name in (evidence.label, evidence.against):
        if name is not None and name not in [label for label, _ in shown]:
            shown += [entry for entry in evidence.ranking if entry[0] == name]
    names = _short_names([label for label, _ in shown])
    scores = np.array([score for _, score in shown])
    base = min(0.0, scores.min() * 1.02) if scores.max() <= 0 else 0.0
    colors = [
        _FOR if label == evidence.label else _AGAINST if label == evidence.against else "#bbbbbb" for label, _ in shown
    ]
    axes.barh(range(len(shown)), scores - base, left=base, color=colors)
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title("total evidence of the leading classes", fontsize=9)


def _short_names(labels: Sequence[object], length: int = 26) -> list[str]:
    """The labels to draw: cut where they are long, unless two would then look the same."""
    texts = [plot_text(label) for label in labels]
    short = [text if len(text) <= length else text[: length - 1] + "…" for text in texts]
    return [text if short.count(cut) > 1 else cut for text, cut in zip(texts, short, strict=True)]

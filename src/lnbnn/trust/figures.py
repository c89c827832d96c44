"""Arrays to matplotlib figures. Nothing here computes a result."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke
from numpy.typing import NDArray

from lnbnn.escaping import plot_text
from lnbnn.files.atomic import atomic_path
from lnbnn.references import Reference
from lnbnn.trust.evaluation import Evaluation
from lnbnn.trust.evidence import Evidence
from lnbnn.trust.matches import PhotoMatches

__all__ = ["confusion_figure", "evidence_figure", "explanation_figure", "save_figure"]

_INK = "#222222"
_FOR, _AGAINST = "#d7301f", "#2166ac"
_MAX_TICKS = 60
_MAX_PHOTOS = 12
_PAIR_COLORS = ("#e69f00", "#0072b2", "#009e73", "#cc79a7")  # safe for color blindness (Okabe and Ito)


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
    _draw_evidence(figure, picture, evidence, n_patches)
    if title:
        figure.suptitle(plot_text(title), fontsize=11, color=_INK)
    return figure


def explanation_figure(
    picture: NDArray[np.uint8],
    evidence: Evidence,
    photos: Sequence[PhotoMatches],
    *,
    color_picture: NDArray[np.uint8] | None = None,
    title: str = "",
    n_patches: int = 12,
) -> Figure:
    """What :func:`evidence_figure` shows, and below it the labeled images that the evidence comes from.

    Each of ``photos`` is shown beside the query, its strongest pairs of patches in one color each, joined by a line; at
    the right are all images by their contribution. There is nothing below if no method of the model matches patches
    with those of labeled images.
    """
    if not evidence.photos:
        return evidence_figure(picture, evidence, title=title, n_patches=n_patches)
    n_rows = -(-len(photos) // 2)
    width, height = evidence.features.size
    evidence_height = float(np.clip(4.2 * height / width, 2.6, 5.0)) + 0.5
    figure = Figure(figsize=(14.0, evidence_height + 2.75 * max(n_rows, 1) + 0.8), layout="constrained")
    above, below = figure.subfigures(
        2, 1, squeeze=False, height_ratios=[evidence_height, 2.75 * max(n_rows, 1) + 0.3], hspace=0.02
    ).flat
    _draw_evidence(above, picture, evidence, n_patches)
    cards, bars = below.subfigures(1, 2, squeeze=False, width_ratios=[1, 0.38]).flat
    cards.suptitle(
        "strongest pairs of patches: the picture at left, the labeled photos that contribute most at right", fontsize=9
    )
    shown = picture if color_picture is None else color_picture
    for axes, found in zip(cards.subplots(max(n_rows, 1), 2, squeeze=False).flat, photos, strict=False):
        _draw_pairs(axes, shown, found, evidence)
    for axes in cards.axes:
        axes.set_axis_off()
    bars.suptitle("labeled photos by their share", fontsize=9)
    _draw_shares(bars.subplots(), evidence)
    if title:
        figure.suptitle(plot_text(title), fontsize=12, color=_INK)
    return figure


def _draw_evidence(figure, picture, evidence, n_patches):  # type: ignore[no-untyped-def]
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1, 0.85])
    _draw_patches(left, picture, evidence, n_patches)
    _draw_map(figure, middle, picture, evidence)
    _draw_ranking(right, evidence)


_BOX, _GAP = 100.0, 14.0  # of a picture in a card, and between two


def _draw_pairs(axes, picture, found, evidence):  # type: ignore[no-untyped-def]
    """Query and labeled image side by side, each as large as fits its box; a line from patch to patch."""
    axes.set_xlim(0, 2 * _BOX + _GAP)
    axes.set_ylim(_BOX, 0)
    axes.set_aspect("equal")
    left = _place_picture(axes, picture, 0.0)
    right = _place_picture(axes, found.picture, _BOX + _GAP)
    strongest = max((abs(pair.support) for pair in found.pairs), default=1.0) or 1.0
    halo = [Stroke(linewidth=3.4, foreground="white", alpha=0.9), Normal()]
    for number, (pair, color) in enumerate(zip(found.pairs, _PAIR_COLORS, strict=False), 1):
        at = number / (len(_PAIR_COLORS) + 1)  # of a box's height: lines of patches in one row lie beside each other
        line = {"lw": 1.2 + 0.8 * abs(pair.support) / strongest, "path_effects": halo}
        ends = []
        for patch, (x, y, width, height) in ((pair.query, left), (pair.match, right)):
            if patch is not None:
                size = patch.width * width, patch.height * height
                corner = x + patch.x * width - size[0] / 2, y + patch.y * height - size[1] / 2
                axes.add_patch(Rectangle(corner, *size, fill=False, ec=color, **line))
                ends.append((corner, size))
        if len(ends) == 2:
            ((ax, ay), (aw, ah)), ((bx, by), (_, bh)) = ends
            axes.plot([ax + aw, bx], [ay + at * ah, by + at * bh], color=color, solid_capstyle="round", **line)
    photo = found.photo
    label = _short_names([photo.image.label])[0]
    patches = "1 patch" if photo.n_patches == 1 else f"{photo.n_patches} patches"
    what = f"of the evidence for {label}" if evidence.against is None else f"of all evidence, for {label}"
    axes.set_title(
        f"{_photo_name(photo.image, 55)}\n{100 * photo.share:.1f} % {what} ({patches})", fontsize=8.5, color=_INK
    )


def _place_picture(axes, picture, left):  # type: ignore[no-untyped-def]
    """Draw a picture in the middle of its box; where it stands: x, y, width, height."""
    if picture is None:
        axes.add_patch(Rectangle((left, 0), _BOX, _BOX, fc="#eeeeee", ec="none"))
        axes.text(left + _BOX / 2, _BOX / 2, "picture not found", ha="center", va="center", fontsize=8, color="#777777")
        return left, 0.0, _BOX, _BOX
    height, width = (side * _BOX / max(picture.shape[:2]) for side in picture.shape[:2])
    x, y = left + (_BOX - width) / 2, (_BOX - height) / 2
    axes.imshow(picture, cmap="gray", vmin=0, vmax=255, extent=(x, x + width, y + height, y), aspect="equal")
    axes.set_xlim(0, 2 * _BOX + _GAP)
    axes.set_ylim(_BOX, 0)
    return x, y, width, height


def _draw_shares(axes, evidence):  # type: ignore[no-untyped-def]
    """The labeled images by their contribution to the evidence; the rest in one bar."""
    photos = evidence.photos
    shown, rest = photos[:_MAX_PHOTOS], photos[_MAX_PHOTOS:]
    texts = [_photo_name(photo.image, 32) for photo in shown]
    texts = [
        text if texts.count(text) == 1 else f"image {photo.image.id}: {text}"
        for text, photo in zip(texts, shown, strict=True)
    ]
    shares = [100 * photo.share for photo in shown]
    colors = [_AGAINST if photo.image.label == evidence.against else _FOR for photo in shown]
    if rest:
        texts.append(f"{len(rest)} more")
        shares.append(100 * sum(photo.share for photo in rest))
        colors.append("#bbbbbb")
    axes.barh(range(len(texts)), shares, color=colors)
    for row, share in enumerate(shares):
        axes.text(share, row, f" {share:.1f} %", va="center", fontsize=7.5, color=_INK)
    axes.set_yticks(range(len(texts)), texts, fontsize=7.5)
    axes.set_ylim(max(len(texts), 6) - 0.5, -0.5)
    axes.set_xticks([])
    axes.margins(x=0.25)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


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


def _photo_name(image: Reference, length: int) -> str:
    """Label and file name of a labeled image, without the middle where they are long."""
    text, n_first = f"{image.label}: {os.path.basename(image.name)}", length // 2
    return plot_text(text if len(text) <= length else text[: n_first - 1] + "…" + text[n_first - length :])


def _short_names(labels: Sequence[object], length: int = 26) -> list[str]:
    """The labels to draw: cut where they are long, unless two would then look the same."""
    texts = [plot_text(label) for label in labels]
    short = [text if len(text) <= length else text[: length - 1] + "…" for text in texts]
    return [text if short.count(cut) > 1 else cut for text, cut in zip(texts, short, strict=True)]

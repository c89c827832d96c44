"""What the figures of experiments share: plain axes, and one look for a method and index."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLUE", "RED", "new_plot", "plain_log", "plain_ticks", "plot_curve"]

RED, BLUE = "#d7301f", "#2166ac"

_CURVES = {  # color, marker, words
    ("local-nbnn", "faiss"): (RED, "o", "Local NBNN, default index"),
    ("local-nbnn", "flann"): ("#fc8d59", "s", "Local NBNN, FLANN"),
    ("nbnn", "faiss"): (BLUE, "^", "NBNN, default index"),
    ("nbnn", "flann"): ("#67a9cf", "v", "NBNN, FLANN"),
}


def new_plot(
    xlabel: str, ylabel: str = "", *, size: tuple[float, float] = (6.4, 4.2), n_panels: int = 1, share_y: bool = False
) -> tuple[Any, Any]:
    """A figure and its axes, or the list of them; matplotlib is loaded here and not before."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, n_panels, squeeze=False, sharey=share_y)[0]
    for axes in panels:
        axes.set_xlabel(xlabel)
        axes.grid(visible=True, color="#e5e5e5", lw=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(ylabel)
    return figure, panels[0] if n_panels == 1 else panels


def plot_curve(axes: Any, curve: dict[str, Any], x: str, y: str, words: str) -> str:
    """Plot one field of a method and index's curve against another; returns its color."""
    color, marker, name = _CURVES[curve["method"], curve["index"]]
    axes.plot(curve[x], curve[y], marker=marker, color=color, ms=5, label=f"{name}{words}")
    return color


def plain_log(axis: Any) -> None:
    """Plain numbers at 1, 2 and 5 times the powers of ten of a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def plain_ticks(axes: Any, values: NDArray[np.integer], n_most: int = 12) -> None:
    """Ticks at the values themselves, every other one when they are many."""
    shown = values[:: -(-len(values) // n_most)]
    axes.set_xticks(shown, [str(value) for value in shown], fontsize=8)
    axes.set_xticks([], minor=True)

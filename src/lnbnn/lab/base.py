"""What an experiment is: its settings, the paper's figures, its parts, and how its results are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lnbnn.lab.lab import Lab

__all__ = ["Arrays", "Experiment", "Part", "markdown_table", "mean_sd"]

Arrays: TypeAlias = dict[str, NDArray[Any]]
"""The outcome of a part: named arrays, kept in one file."""


@dataclass(frozen=True)
class Part:
    """One piece of an experiment's work, done once and kept.

    Parameters
    ----------
    kind : str
        What is computed. Two parts with one kind and the same settings are the same work, whoever asks for them.
    settings : dict
        Plain values that the outcome depends on.
    compute : callable
        From a :class:`~lnbnn.lab.lab.Lab` to named arrays.
    """

    kind: str
    settings: dict[str, Any]
    compute: Callable[[Lab], Arrays]

    @property
    def title(self) -> str:
        """A few words for the progress line."""
        shown = [f"{self.settings['n_train']} images"] if "n_train" in self.settings else []
        shown += [f"split {self.settings['seed']}"] if "seed" in self.settings else []
        return ", ".join([self.kind, *shown])


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Parameters
    ----------
    name, title : str
    settings : dict
        Of the full run; plain values.
    quick : dict
        What the quick run changes in them.
    paper : dict
        The paper's own figures.
    plan : callable
        Settings to the list of parts, the ones worth having first in front.
    summarize : callable
        Settings and the outcomes of the parts, in order, to the results of the record.
    tabulate : callable
        Results to a Markdown table, ours beside the paper's.
    draw : str
        The function of :mod:`lnbnn.trust.figures` that draws the results; empty for a table.
    """

    name: str
    title: str
    settings: dict[str, Any]
    quick: dict[str, Any]
    paper: Mapping[str, Any]
    plan: Callable[[dict[str, Any]], list[Part]]
    summarize: Callable[[dict[str, Any], list[tuple[Part, Arrays]]], dict[str, Any]]
    tabulate: Callable[[dict[str, Any]], str]
    draw: str = ""


def mean_sd(values: list[float]) -> str:
    """``66.1 ± 0.8``, or the one value there is."""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, one line a row."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

"""An experiment: its settings, the paper's figures, its parts, and how its results are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from lnbnn.lab.lab import Lab

__all__ = ["Experiment", "Outcome", "Outcomes", "Part", "Results", "Settings", "markdown_table", "mean_sd"]

Settings: TypeAlias = dict[str, Any]
"""Plain values, as JSON has them."""

Results: TypeAlias = dict[str, Any]
"""What an experiment found, as its record has it."""

Outcome: TypeAlias = dict[str, Any]
"""What a part found, kept in one file: arrays, and plain values as JSON has them."""


@dataclass(frozen=True)
class Part:
    """One part of an experiment, computed once and stored.

    Parameters
    ----------
    kind : str
        What is computed. Two parts of the same kind and settings are the same, in any experiment.
    settings : dict
        All that the outcome depends on.
    compute : callable
        From a :class:`~lnbnn.lab.lab.Lab` and the settings to the outcome.
    timed : bool, default=False
        Whether times are measured: such an outcome is reused only with the same code, libraries and processor.
    """

    kind: str
    settings: Settings
    compute: Callable[[Lab, Settings], Outcome]
    timed: bool = False

    @property
    def title(self) -> str:
        """A few words for the progress line."""
        shown = [f"{self.settings['n_train']} images"] if "n_train" in self.settings else []
        shown += [f"split {self.settings['seed']}"] if "seed" in self.settings else []
        return ", ".join([self.kind, *shown])


Outcomes: TypeAlias = list[tuple[Part, Outcome]]
"""What the parts of a plan found, in order."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure: of the paper, or a benchmark's.

    Parameters
    ----------
    name, title : str
    settings : dict
        Of the full run.
    plan : callable
        Settings to the list of parts, the most useful ones first.
    summarize : callable
        Settings and the outcomes of the parts, in order, to the results of the record.
    tabulate : callable
        Results to Markdown, ours beside the paper's.
    quick : dict
        What the quick run changes in the settings.
    paper : dict
        The paper's own figures; empty for a benchmark.
    draw : callable, optional
        Results to a matplotlib figure.
    dataset : str, default="caltech101"
        The published set it needs; empty: none.
    label : callable, optional
        Settings to the name of the record, where that is not ``name``.
    source : str
        How a page names the record below the table, ``{}`` standing for it; empty: not at all.
    """

    name: str
    title: str
    settings: Settings
    plan: Callable[[Settings], list[Part]]
    summarize: Callable[[Settings, Outcomes], Results]
    tabulate: Callable[[Results], str]
    quick: Settings = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[Results], Any] | None = None
    dataset: str = "caltech101"
    label: Callable[[Settings], str] | None = None
    source: str = "\n{}\n"


def mean_sd(values: list[float]) -> str:
    """``66.1 ± 0.8``, or the one value there is."""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, one line per row."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)

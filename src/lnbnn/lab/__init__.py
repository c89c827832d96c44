"""The tables and figures of the paper, one file each; ``lnbnn reproduce NAME`` runs them."""

from __future__ import annotations

from lnbnn.lab.base import Experiment, Outcome, Outcomes, Part, Results, Settings
from lnbnn.lab.lab import Lab, PartStatus, of_classes
from lnbnn.params import resolve

__all__ = ["EXPERIMENTS", "Experiment", "Lab", "Outcome", "Outcomes", "Part", "PartStatus", "Results", "Settings"]
__all__ += ["get_experiment", "get_experiments", "of_classes"]

EXPERIMENTS: dict[str, str] = {
    "table1": "lnbnn.lab.table1:EXPERIMENT",
    "figure-k": "lnbnn.lab.figure_k:EXPERIMENT",
    "figure-computation": "lnbnn.lab.figure_computation:EXPERIMENT",
    "figure-scaling": "lnbnn.lab.figure_scaling:EXPERIMENT",
    "table2-methods": "lnbnn.lab.table2:METHODS",
    "table2-authors-grid": "lnbnn.lab.table2:AUTHORS_GRID",
    "table2-nbnn": "lnbnn.lab.table2:NBNN",
    "table2-nbnn-kernel": "lnbnn.lab.table2:NBNN_KERNEL",
}
"""Names of the experiments and their import strings."""


def get_experiment(name: str) -> Experiment:
    """The experiment of this name."""
    return resolve(EXPERIMENTS, name, "experiment")


def get_experiments(name: str) -> list[Experiment]:
    """The experiment of this name, or those that make a table together: ``table2`` is four. ``all`` is every one."""
    several = [one for one in EXPERIMENTS if name == "all" or one.startswith(f"{name}-")]
    return [get_experiment(one) for one in ([name] if name in EXPERIMENTS or not several else several)]

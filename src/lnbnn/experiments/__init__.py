"""The tables and figures of the paper, one file each; ``lnbnn reproduce NAME`` runs them."""

from __future__ import annotations

from lnbnn.experiments.base import Experiment, Part
from lnbnn.experiments.lab import Lab, PartStatus
from lnbnn.registry import resolve

__all__ = ["EXPERIMENTS", "Experiment", "Lab", "Part", "PartStatus", "get_experiment"]

EXPERIMENTS: dict[str, str] = {
    "table1": "lnbnn.experiments.table1:EXPERIMENT",
    "figure-k": "lnbnn.experiments.figure_k:EXPERIMENT",
    "figure-computation": "lnbnn.experiments.figure_computation:EXPERIMENT",
    "figure-scaling": "lnbnn.experiments.figure_scaling:EXPERIMENT",
    "table2": "lnbnn.experiments.table2:EXPERIMENT",
}
"""Names of the experiments and their import strings."""


def get_experiment(name: str) -> Experiment:
    """The experiment of this name."""
    found: Experiment = resolve(EXPERIMENTS, name, "experiment")
    return found

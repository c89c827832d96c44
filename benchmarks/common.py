"""What the benchmark scripts share."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent.parent
"""The project's folder: records go to ``results/`` in it, unfinished parts to ``runs/``."""


def mean_per_class(answers: np.ndarray, truth: np.ndarray) -> float:
    """Mean over the classes of the percentage of right answers, to two decimals."""
    shares = [np.mean(answers[truth == label] == label) for label in np.unique(truth)]
    return round(float(100 * np.mean(shares)), 2)


def show(stage: str, done: int, total: int) -> None:
    """Progress as a line a tenth on stderr."""
    if done % max(1, total // 10) == 0:
        print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)

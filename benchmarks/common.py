"""What the benchmark scripts share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lnbnn import FeatureStore

HERE = Path(__file__).resolve().parent.parent
"""The project's folder: records go to ``results/`` in it, unfinished parts to ``runs/``."""


def options_parser(doc: str | None) -> argparse.ArgumentParser:
    """A script's options: its text is the help, and ``--data`` says where Caltech 101 is."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="101_ObjectCategories; default: LNBNN_CALTECH101")
    return parser


def mean_per_class(answers: np.ndarray, truth: np.ndarray) -> float:
    """Mean over the classes of the percentage of right answers, to two decimals."""
    shares = [np.mean(answers[truth == label] == label) for label in np.unique(truth)]
    return round(float(100 * np.mean(shares)), 2)


def show(stage: str, done: int, total: int) -> None:
    """Progress as a line a tenth on stderr."""
    if done % max(1, total // 10) == 0:
        print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)


def kept_part(name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A part of a run as runs/<name>.json has it; done and written there first if it is not."""
    path = HERE / "runs" / f"{name}.json"
    if not path.exists():
        done = work()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(done), encoding="utf-8")
        print(f"{path.name}: {done}", file=sys.stderr, flush=True)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def runs_by_preset(
    name: str, work: Callable[[str, int], dict[str, Any]], options: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """``work(preset, seed)`` for the presets and seeds asked for, each kept in runs/ once it is done."""
    return {
        preset: [kept_part(f"{name}/{preset}-{seed}", lambda p=preset, s=seed: work(p, s)) for seed in options.seeds]
        for preset in options.presets
    }


def mean_of(runs: list[Any]) -> Any:
    """The mean of numbers, or of what is in the same place in dicts and lists of them, to four decimals."""
    first = runs[0]
    if isinstance(first, dict):
        return {name: mean_of([one[name] for one in runs]) for name in first}
    if isinstance(first, list):
        return [mean_of(list(values)) for values in zip(*runs, strict=True)]
    return round(float(np.mean(runs)), 4)


def store_for(preset: str, cache: Path) -> FeatureStore | None:
    """Where the features of a preset are kept: those of a network; others take less to make than to read."""
    return FeatureStore(cache) if preset == "deep" else None

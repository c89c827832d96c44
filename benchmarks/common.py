"""What the benchmarks share. Each is an experiment: settings, parts, summary, table; this runs it from its file.

Settings that are single values or lists of them are options: ``n_train`` is ``--train``, ``seeds`` is ``--seeds``.
Finished parts are kept in runs/ by all that they depend on, so that a run that was stopped goes on where it was; times
are found again only with the same code, libraries and processor, and measured anew with ``--again``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lnbnn import FeatureStore, LateFusion
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.data.folder import LabelledImages
from lnbnn.lab import Experiment, Lab
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.parts import full_params
from lnbnn.lab.reproduce import find_images, reproduce
from lnbnn.presets import preset_params
from lnbnn.registry import resolve

HERE = Path(__file__).resolve().parent.parent
"""The project's folder: records go to ``results/`` in it, finished parts to ``runs/``."""


def run(experiment: Experiment, words: Sequence[str] | None = None) -> Path:
    """Run a benchmark as the command line asks; write its record and picture, print its table."""
    parser = _parser(experiment)
    options = parser.parse_args(words)
    given = {key: getattr(options, key) for key in experiment.settings if getattr(options, key, None) is not None}
    settings = experiment.settings | (experiment.quick if options.quick else {}) | given
    runs = options.runs or (HERE / "runs" / "quick" if options.quick else HERE / "runs")
    output = options.output or (runs / "results" if options.quick else HERE / "results")
    pictures = HERE / "docs" / "images" if output == HERE / "results" else None
    images = LabelledImages((), ())
    if experiment.dataset:
        images = find_images(experiment.dataset, options.data, runs, quick=options.quick, note=_tell)
    command = ["python", f"benchmarks/{experiment.name.replace('-', '_')}.py", *_words(given)]
    command += ["--quick"] * options.quick + ["--finished"] * options.finished
    lab = Lab(experiment.dataset + "-quick" * options.quick, images, runs, progress=_show)
    done = reproduce(
        experiment,
        settings,
        lab,
        command=" ".join(command),
        output=output,
        pictures=pictures,
        finished=options.finished,
        again=options.again,
        on_part=_tell,
    )
    print(experiment.tabulate(done.record.results))
    print(f"record: {done.path}")
    return done.path


def _parser(experiment: Experiment) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=experiment.title)
    parser.add_argument("--data", type=Path, help="where Caltech 101 is; by default where `lnbnn data` looks")
    parser.add_argument("--runs", type=Path, help="folder of features and finished parts; default: runs")
    parser.add_argument("--output", type=Path, help="folder of the record; default: results")
    parser.add_argument("--quick", action="store_true", help="a few classes and images: does it run?")
    parser.add_argument("--finished", action="store_true", help="do no work: record the parts that are done")
    parser.add_argument("--again", action="store_true", help="compute parts that are done, too")
    for key, value in experiment.settings.items():
        many = isinstance(value, list)
        kind = type(value[0] if many and value else value)
        if kind in (int, float, str):
            parser.add_argument(
                _option(key), dest=key, type=kind, nargs="+" if many else None, help=f"default: {value}"
            )
        elif kind is bool:
            parser.add_argument(_option(key), dest=key, action="store_true", default=None)
    return parser


def _option(key: str) -> str:
    return "--" + key.removeprefix("n_").replace("_", "-")


def _words(given: Settings) -> list[str]:
    found = []
    for key, value in given.items():
        found += (
            [_option(key)]
            if value is True
            else [_option(key), *map(str, value if isinstance(value, list) else [value])]
        )
    return found


def _show(stage: str, done: int, total: int) -> None:
    if done % max(1, total // 10) == 0:
        _tell(f"{stage}: {done} of {total}")


def _tell(what: object) -> None:
    print(what, file=sys.stderr, flush=True)


# ---- classifiers as plain values, so that a part's settings say all of them ----------------------------------------

Recipe = Any
"""``[method, parameters]``, or a dict of named ones that are fused."""


def full(recipe: Recipe) -> Recipe:
    """A recipe with every setting said."""
    if isinstance(recipe, dict):
        return {name: full(inner) for name, inner in recipe.items()}
    method, params = recipe
    return [method, full_params(method, params)]


def make(recipe: Recipe) -> Any:
    """The classifier of a recipe, unfitted."""
    if isinstance(recipe, dict):
        return LateFusion([(name, make(inner)) for name, inner in recipe.items()])
    method, params = recipe
    return resolve(CLASSIFIERS, method, "method")(**params)


def preset(name: str, **changes: Any) -> Settings:
    """All parameters of a preset of Local NBNN."""
    return full_params("local-nbnn", preset_params(name) | changes)


def store_for(lab: Lab, params: Settings) -> FeatureStore | None:
    """Where features are kept: those of a network; others take less to make than to read."""
    return lab.store if params["descriptor"].startswith("deep") else None


# ---- figures and tables ---------------------------------------------------------------------------------------------


def values_of(outcome: Outcome) -> Settings:
    """What a part found, its arrays left out."""
    return {name: value for name, value in outcome.items() if not isinstance(value, np.ndarray)}


def mean_of(runs: list[Any], digits: int = 4) -> Any:
    """The mean of numbers, or of what is in the same place in dicts and lists of them."""
    first = runs[0]
    if isinstance(first, dict):
        return {name: mean_of([one[name] for one in runs], digits) for name in first}
    if isinstance(first, list):
        return [mean_of(list(values), digits) for values in zip(*runs, strict=True)]
    return round(float(np.mean(runs)), digits)


def table(header: str, rows: list[list[str]]) -> str:
    """A Markdown table; the header's cells stand between bars."""
    lines = [f"| {header} |", "|---" * (header.count("|") + 1) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"

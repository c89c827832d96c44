"""What the benchmarks share. Each is an experiment: settings, parts, summary, table; this runs it from its file.

Settings that are single values or lists of them are options: ``n_train`` is ``--train``, ``seeds`` is ``--seeds``.
Finished parts are kept in runs/ by all that they depend on, so that a run that was stopped goes on where it was; times
are found again only with the same code, libraries and processor, and measured again with ``--again``.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Self

import numpy as np

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before FAISS is loaded, as the command has it: idle threads sleep

from lnbnn import LateFusion
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.data.folder import LabeledImages
from lnbnn.descriptors import make_descriptor
from lnbnn.lab import Experiment, Lab, Outcome, Outcomes, Part, Settings
from lnbnn.lab.parts import full_params
from lnbnn.lab.reproduce import find_images, reproduce
from lnbnn.params import AUTO, preset_params, resolve

HERE = Path(__file__).resolve().parent.parent  # the project's folder


def benchmark(module: dict[str, Any], **given: Any) -> Experiment:
    """The experiment that a file of this folder holds, by the names in it; it is run if that file is the program.

    The names are ``SETTINGS``, ``QUICK``, and those of the fields of :class:`~lnbnn.lab.base.Experiment`; ``given`` may
    stand in for them. Without ``summarize`` the results are what the only part found.
    """
    module = {"QUICK": {}, "summarize": lambda settings, outcomes: values_of(outcomes[0][1])} | module
    fields = {"settings": module["SETTINGS"], "quick": module["QUICK"]}
    fields |= {name: module[name] for name in ("plan", "summarize", "tabulate", "draw", "label") if name in module}
    name = Path(module["__file__"]).stem.replace("_", "-")
    experiment = Experiment(name, module["__doc__"], **fields | given)
    if module["__name__"] == "__main__":
        run(experiment)
    return experiment


def run(experiment: Experiment, words: Sequence[str] | None = None) -> Path:
    """Run a benchmark as the command line asks; write its record and picture, print its table."""
    options = _parser(experiment).parse_args(words)
    given = {key: getattr(options, key) for key in experiment.settings if getattr(options, key, None) is not None}
    settings = experiment.settings | (experiment.quick if options.quick else {}) | given
    runs = options.runs or (HERE / "runs" / "quick" if options.quick else HERE / "runs")
    output = options.output or (runs / "results" if options.quick else HERE / "results")
    images = LabeledImages((), ())
    if options.dataset:
        images = find_images(options.dataset, options.data, runs, quick=options.quick, note=_tell)
    lab = Lab(options.dataset + "-quick" * options.quick, images, runs, progress=show)
    command = ["python", f"benchmarks/{experiment.name.replace('-', '_')}.py"]
    command += ["--dataset", options.dataset] if options.dataset != experiment.dataset else []
    for key, value in given.items():
        command += [_option(key), *map(str, [] if value is True else np.atleast_1d(value).tolist())]
    command += ["--quick"] * options.quick + ["--finished"] * options.finished
    places = {"output": output, "pictures": HERE / "docs" / "images" if output == HERE / "results" else None}
    how = {"finished": options.finished, "again": options.again, "on_part": _tell}
    done = reproduce(experiment, settings, lab, command=" ".join(command), **places, **how)
    print(f"{experiment.tabulate(done.record.results)}\nrecord: {done.path}")
    return done.path


def _parser(experiment: Experiment) -> argparse.ArgumentParser:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=experiment.title, formatter_class=text)
    parser.add_argument("--dataset", default=experiment.dataset, help="the published set; default: %(default)s")
    parser.add_argument("--data", type=Path, help="where the set is; by default where `lnbnn data` looks")
    parser.add_argument("--runs", type=Path, help="folder of features and finished parts; default: runs")
    parser.add_argument("--output", type=Path, help="folder of the record; default: results")
    parser.add_argument("--quick", action="store_true", help="a few classes and images: does it run?")
    parser.add_argument("--finished", action="store_true", help="do no work: record the parts that are done")
    parser.add_argument("--again", action="store_true", help="compute parts that are done, too")
    for key, value in experiment.settings.items():
        many = isinstance(value, list)
        kind = type(value[0] if many else value)
        if kind is bool and not many:
            parser.add_argument(_option(key), dest=key, action="store_true", default=None)
        elif kind in (int, float, str):
            how = {"type": kind, "nargs": "+" if many else None}
            parser.add_argument(_option(key), dest=key, help=f"default: {value}", **how)
    return parser


def _option(key: str) -> str:
    return "--" + key.removeprefix("n_").replace("_", "-")


def show(stage: str, done: int, total: int) -> None:
    if done % max(1, total // 10) == 0:
        _tell(f"{stage}: {done} of {total}")


def _tell(what: object) -> None:
    print(what, file=sys.stderr, flush=True)


def parts_over(
    kind: str, compute: Callable[[Lab, Settings], Outcome], *, timed: bool = False, **singles: str
) -> Callable[[Settings], list[Part]]:
    """A plan: one part per combination of the settings named (``seeds="seed"``), each with all other settings.

    Of a dict, a part gets the key and the settings that it stands for. Nothing is left to defaults that may change: a
    preset, named, brings all its parameters as ``params``; descriptors and recipes are made full.
    """

    def plan(settings: Settings) -> list[Part]:
        parts = []
        for values in product(*(settings[many] for many in singles)):
            own = {key: value for key, value in settings.items() if key not in singles}
            for (many, single), value in zip(singles.items(), values, strict=True):
                own[single] = value
                own |= settings[many][value] if isinstance(settings[many], dict) else {}
            if own.get("preset") == AUTO:
                own["params"] = {"budget": 30.0}
            elif "preset" in own:
                own["params"] = full_params("local-nbnn", preset_params(own["preset"]))
            if "descriptor" in own:
                given = own.get("descriptor_params", {})
                own["descriptor_params"] = make_descriptor(own["descriptor"], given).settings()
            words = [value for value in values if isinstance(value, str)]
            parts.append(Part(" ".join([kind, *words]), full(own), compute, timed))
        return parts

    return plan


def full(value: Any) -> Any:
    """Settings with every parameter of the recipes in them; a recipe is ``[method, parameters]``."""
    if isinstance(value, dict):
        return {name: full(inner) for name, inner in value.items()}
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict) and value[0] in CLASSIFIERS:
        return [value[0], full_params(*value)]
    return value


def make(recipe: Any) -> Any:
    """The classifier of a recipe, unfitted; of a dict of them, their fusion."""
    if isinstance(recipe, dict):
        return LateFusion([(name, make(inner)) for name, inner in recipe.items()])
    return resolve(CLASSIFIERS, recipe[0], "method")(**recipe[1])


def python(*words: object) -> Any:
    """Run a new process of Python: a :class:`watch` of it, with the ``text`` that it printed and ``peak_mib``."""
    with tempfile.TemporaryFile("w+") as output, watch() as spent:
        process = subprocess.Popen([sys.executable, *map(str, words)], stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"python {' '.join(map(str, words[:3]))} ended with {process.returncode}")
        output.seek(0)
        spent.text, spent.peak_mib = output.read(), round(usage.ru_maxrss / 1024)
    spent.cpu_s = usage.ru_utime + usage.ru_stime
    return spent


class watch:  # noqa: N801
    """Seconds from start to stop, or of a block: ``wall_s``, and ``cpu_s`` of all threads of this process."""

    def start(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def stop(self, *_: object) -> None:
        self.wall_s, self.cpu_s = time.perf_counter() - self.began[0], time.process_time() - self.began[1]

    def __enter__(self) -> Self:
        self.start()
        return self

    __exit__ = stop


def cpu_seconds(repeats: int, work: Callable[..., object], *args: Any, **kwargs: Any) -> list[float]:
    """CPU time of this thread, of each repeat after one to warm up."""
    times = [time.thread_time()]
    for _ in range(repeats + 1):
        work(*args, **kwargs)
        times.append(time.thread_time())
    return np.diff(times)[1:].tolist()


def values_of(outcome: Outcome) -> Settings:
    """What a part found, its arrays left out."""
    return {name: value for name, value in outcome.items() if not isinstance(value, np.ndarray)}


def grouped(outcomes: Outcomes, single: str) -> dict[Any, list[Settings]]:
    """What parts found, by the value of one of their settings."""
    found: dict[Any, list[Settings]] = {}
    for part, outcome in outcomes:
        found.setdefault(part.settings[single], []).append(values_of(outcome))
    return found


def mean_of(runs: list[Any], digits: int = 4) -> Any:
    """The mean of numbers, or of what is in the same place in dicts and lists of them."""
    first = runs[0]
    if isinstance(first, dict):
        return {name: mean_of([one[name] for one in runs], digits) for name in first}
    if isinstance(first, list):
        return [mean_of(list(values), digits) for values in zip(*runs, strict=True)]
    return round(float(np.mean(runs)), digits)


def reliability_bins(sure: Any, right: Any, edges: Any) -> list[list[float]]:
    """For each bin of probabilities that has answers: how many, their mean probability, and the share that is right."""
    bins = []
    for low, high in pairwise(edges):
        inside = (sure >= low) & (sure < high)
        if inside.any():
            bins.append([int(inside.sum()), *(round(float(one[inside].mean()), 4) for one in (sure, right))])
    return bins


def respelled(name: str) -> str:
    """The name of a row in American spelling, which older records do not have."""
    return name.replace("neighbour", "neighbor").replace("normalised", "normalized")


def table(header: str, rows: list[list[str]]) -> str:
    """A Markdown table; the header's cells are separated by bars."""
    lines = [f"| {header} |", "|---" * (header.count("|") + 1) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"

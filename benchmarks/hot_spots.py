"""Where the time of an answer goes: `lnbnn evaluate` on Caltech 101, one thread, sampled by the profiler py-spy.

A sample counts for the line of this package that was being worked on, whatever library it called.

    pip install py-spy
    python benchmarks/hot_spots.py
"""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from common import HERE, run, table

from lnbnn.data.folder import write_list
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings

SETTINGS: Settings = {"n_train": 15, "n_test": 3, "seed": 0, "samples_a_second": 250, "min_share": 1.0}
QUICK: Settings = {"n_train": 3, "n_test": 2}
FRAME = re.compile(r"^(?P<function>\S+) \((?P<file>.*):(?P<line>\d+)\)$")


def plan(settings: Settings) -> list[Part]:
    """One part."""
    own = {key: value for key, value in settings.items() if key != "min_share"}
    return [Part("hot-spots", own, compute, timed=True)]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Fit a model and watch its answers."""
    lnbnn = [sys.executable, "-m", "lnbnn"]
    watch = ["py-spy", "record", "--format", "raw", "--rate", str(settings["samples_a_second"])]
    with tempfile.TemporaryDirectory() as folder:
        model, stacks = Path(folder) / "model", Path(folder) / "stacks.txt"
        for name, images in zip(("train", "test"), lab.split_of(settings), strict=True):
            write_list(Path(folder) / f"{name}.csv", images)
        subprocess.run([*lnbnn, "fit", f"{folder}/train.csv", str(model)], check=True)
        evaluate = [*lnbnn, "evaluate", str(model), f"{folder}/test.csv", "--jobs", "1"]
        subprocess.run([*watch, "--output", str(stacks), "--", *evaluate], check=True)
        counts = lines_of(stacks.read_text(encoding="utf-8"))
    return {"lines": [{**line, "count": count} for line, count in named(counts)]}


def lines_of(stacks: str) -> Counter[tuple[str, str, int]]:
    """Samples by file, function and line: of each stack its innermost frame in this package, while it answered."""
    counts: Counter[tuple[str, str, int]] = Counter()
    for entry in stacks.splitlines():
        stack, _, count = entry.rpartition(" ")
        if "decision_function" not in stack and "scores" not in stack:
            continue  # starting up, opening the model, printing
        own = [found for frame in stack.split(";") if (found := FRAME.match(frame)) and "lnbnn/" in found["file"]]
        if own:
            counts[own[-1]["file"], own[-1]["function"], int(own[-1]["line"])] += int(count)
    return counts


def named(counts: Counter[tuple[str, str, int]]) -> list[tuple[dict[str, str], int]]:
    """The lines with their module and text, most expensive first."""
    found = []
    for (file, function, line), count in counts.most_common():
        module = file[file.rindex("lnbnn/") :].removesuffix(".py").replace("/", ".")
        path = HERE / "src" / file[file.rindex("lnbnn/") :]
        found.append(({"function": f"{module}.{function}", "line": linecache.getline(str(path), line).strip()}, count))
    return found


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """Shares of the time in per cent; lines with little of it are left out."""
    lines = outcomes[0][1]["lines"]
    total = sum(line["count"] for line in lines)
    shares = [round(100 * line["count"] / total, 1) for line in lines]
    rows = [
        {"function": line["function"], "line": line["line"], "share": share}
        for line, share in zip(lines, shares, strict=True)
    ]
    return {"n_samples": total, "lines": [row for row in rows if row["share"] >= settings["min_share"]]}


def tabulate(results: dict[str, Any]) -> str:
    """The lines of the program that an answer spends its time in."""
    rows = []
    for row in results["lines"]:
        function = row["function"].removeprefix("lnbnn.").removesuffix(".<locals>.<listcomp>")
        rows.append([f"`{function}`", f"`{row['line'].replace('|', chr(92) + '|')}`", f"{row['share']:.1f}"])
    rest = 100 - sum(row["share"] for row in results["lines"])
    return table("function | line | share of the time, %", [*rows, ["the rest |", f"{rest:.1f}"]])


TITLE = "The lines that an answer spends its time in"
EXPERIMENT = Experiment("hot-spots", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, source="")

if __name__ == "__main__":
    run(EXPERIMENT)

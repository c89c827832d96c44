"""Where the time of an answer goes: `lnbnn evaluate` on Caltech 101, one thread, sampled by the profiler py-spy.

A sample counts for the line of this package that was being worked on, whatever library it called.

    pip install py-spy
    python benchmarks/hot_spots.py
"""

import linecache
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from common import HERE, benchmark, parts_over, table

from lnbnn.data.folder import write_list
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings

SETTINGS: Settings = {"n_train": 15, "n_test": 3, "seed": 0, "samples_a_second": 250, "min_share": 1.0}
SETTINGS |= {"preset": "balanced"}
QUICK: Settings = {"n_train": 3, "n_test": 2}
FRAME = re.compile(r"^(?P<function>\S+) \((?P<file>.*):(?P<line>\d+)\)$")


def compute(lab: Lab, settings: Settings) -> Outcome:
    lnbnn = [sys.executable, "-m", "lnbnn"]
    watch = ["py-spy", "record", "--format", "raw", "--rate", str(settings["samples_a_second"])]
    with tempfile.TemporaryDirectory() as folder:
        model, stacks = Path(folder) / "model", Path(folder) / "stacks.txt"
        for name, images in zip(("train", "test"), lab.split_of(settings), strict=True):
            write_list(Path(folder) / f"{name}.csv", images)
        subprocess.run([*lnbnn, "fit", f"{folder}/train.csv", str(model), "--preset", settings["preset"]], check=True)
        evaluate = [*lnbnn, "evaluate", str(model), f"{folder}/test.csv", "--jobs", "1"]
        subprocess.run([*watch, "--output", str(stacks), "--", *evaluate], check=True)
        return {"lines": lines_of(stacks.read_text(encoding="utf-8"))}


def lines_of(stacks: str) -> list[list[Any]]:
    """Function, line and samples, most expensive first: of each stack its innermost frame here, while it answered."""
    counts: Counter[tuple[str, str]] = Counter()
    for entry in stacks.splitlines():
        stack, _, count = entry.rpartition(" ")
        if "decision_function" not in stack and "scores" not in stack:
            continue  # starting up, opening the model, printing
        own = [found for frame in stack.split(";") if (found := FRAME.match(frame)) and "lnbnn/" in found["file"]]
        if own:
            file = own[-1]["file"][own[-1]["file"].rindex("lnbnn/") :]
            text = linecache.getline(str(HERE / "src" / file), int(own[-1]["line"])).strip()
            counts[f"{file.removesuffix('.py').replace('/', '.')}.{own[-1]['function']}", text] += int(count)
    return [[function, text, count] for (function, text), count in counts.most_common()]


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """Shares of the time in per cent; lines with little of it are left out."""
    lines = outcomes[0][1]["lines"]
    total = sum(count for _, _, count in lines)
    rows = [{"function": name, "line": text, "share": round(100 * count / total, 1)} for name, text, count in lines]
    return {"n_samples": total, "lines": [row for row in rows if row["share"] >= settings["min_share"]]}


def tabulate(results: Results) -> str:
    rows = []
    for row in results["lines"]:
        function = row["function"].removeprefix("lnbnn.").removesuffix(".<locals>.<listcomp>")
        rows.append([f"`{function}`", f"`{row['line'].replace('|', chr(92) + '|')}`", f"{row['share']:.1f}"])
    rest = 100 - sum(row["share"] for row in results["lines"])
    return table("function | line | share of the time, %", [*rows, ["the rest |", f"{rest:.1f}"]])


EXPERIMENT = benchmark(globals(), plan=parts_over("hot-spots", compute, timed=True), source="")

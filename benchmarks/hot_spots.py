"""Where the time of an answer goes: `lnbnn evaluate` on Caltech 101, one thread, sampled by the profiler py-spy.

A sample counts for the line of this package that was being worked on, whatever library it called. Writes
results/hot-spots.json.

    pip install py-spy
    python benchmarks/hot_spots.py
"""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from common import HERE, options_parser

from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import write_list
from lnbnn.data.splits import split_images
from lnbnn.lab.records import make_record, write_record

N_TEST = 3
SAMPLES_A_SECOND = 250
MIN_SHARE = 1.0  # per cent; lines with less are summed up
FRAME = re.compile(r"^(?P<function>\S+) \((?P<file>.*):(?P<line>\d+)\)$")


def main() -> None:
    """Fit a model, watch its answers, write the record."""
    parser = options_parser(__doc__)
    options = parser.parse_args()
    start = time.perf_counter()
    train, test = split_images(load_caltech101(options.data), n_train=15, n_test=N_TEST, seed=0)
    lnbnn = [sys.executable, "-m", "lnbnn"]
    watch = ["py-spy", "record", "--format", "raw", "--rate", str(SAMPLES_A_SECOND)]
    with tempfile.TemporaryDirectory() as folder:
        model, stacks = Path(folder) / "model", Path(folder) / "stacks.txt"
        for name, images in (("train", train), ("test", test)):
            write_list(Path(folder) / f"{name}.csv", images)
        subprocess.run([*lnbnn, "fit", f"{folder}/train.csv", str(model)], check=True)
        evaluate = [*lnbnn, "evaluate", str(model), f"{folder}/test.csv", "--jobs", "1"]
        subprocess.run([*watch, "--output", str(stacks), "--", *evaluate], check=True)
        counts = lines_of(stacks.read_text(encoding="utf-8"))
    total = sum(counts.values())
    rows = [{**line, "share": round(100 * count / total, 1)} for line, count in named(counts)]
    record = make_record(
        "hot-spots",
        "python benchmarks/hot_spots.py",
        settings={"n_train": 15, "n_test": N_TEST, "samples_a_second": SAMPLES_A_SECOND},
        seeds=[0],
        results={"n_samples": total, "lines": [row for row in rows if row["share"] >= MIN_SHARE]},
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "hot-spots.json", record)
    for row in rows[:20]:
        print(row)


def lines_of(stacks: str) -> Counter[tuple[str, str, int]]:
    """Samples by file, function and line: of each stack its innermost frame in this package, while it answered."""
    counts: Counter[tuple[str, str, int]] = Counter()
    for entry in stacks.splitlines():
        stack, _, count = entry.rpartition(" ")
        if "decision_function" not in stack and "_scores" not in stack:
            continue  # starting up, opening the model, printing
        own = [found for frame in stack.split(";") if (found := FRAME.match(frame)) and "lnbnn/" in found["file"]]
        if own:
            counts[own[-1]["file"], own[-1]["function"], int(own[-1]["line"])] += int(count)
    return counts


def named(counts: Counter[tuple[str, str, int]]) -> list[tuple[dict[str, str], int]]:
    """The lines with their module and text, the dearest first."""
    found = []
    for (file, function, line), count in counts.most_common():
        module = file[file.rindex("lnbnn/") :].removesuffix(".py").replace("/", ".")
        path = HERE / "src" / file[file.rindex("lnbnn/") :]
        found.append(({"function": f"{module}.{function}", "line": linecache.getline(str(path), line).strip()}, count))
    return found


if __name__ == "__main__":
    main()

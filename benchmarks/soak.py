"""The long form of the tests of changing models: signals, failing calls, power cuts, damage, forgery, random changes.

Each part stops at its share of the time even if it has not done all it was asked for. Writes results/soak.json.

    python benchmarks/soak.py --minutes 15
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE

from lnbnn.lab.records import make_record, write_record

sys.path.insert(0, str(HERE / "tests"))

from test_editing import APPROXIMATE, KINDS, MARGIN, run_approximate_steps, run_steps

ROUNDS: dict[str, tuple[str, list[str]]] = {  # one round of each part, repeated with other seeds
    "kills": ("killing.py", ["--kills", "40", "--full-disks", "10"]),
    "signals": ("killing.py", ["--signals", "100"]),
    "faults": ("faults.py", ["--errors", "--power-cuts"]),
    "commands": ("killing.py", ["--commands", "12"]),
    "models": ("fuzzing.py", ["--model", "500", "--forged", "500"]),
    "images": ("fuzzing.py", ["--images", "2000"]),
}
SHARES = {"kills": 0.2, "signals": 0.25, "faults": 0.1, "commands": 0.12} | {
    "models": 0.15,
    "images": 0.05,
    "steps": 0.08,
    "approximate": 0.05,
}
AT_LEAST = {"kills": 5, "signals": 10}  # rounds that are run however long they take; the other parts one
ENOUGH = {"kills": 8, "signals": 10, "faults": 1, "commands": 4, "models": 8, "images": 5} | {
    "steps": 400,
    "approximate": 200,
}
ACTIONS = ["add", "add", "remove", "relabel", "compact", "in memory"]


def main() -> None:
    """Run all parts and write the record; the first failure ends it with an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0, help="of all parts together, at most 18")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    minutes = min(options.minutes, 18.0)
    start = time.perf_counter()
    results: dict[str, Any] = {}
    for part, share in SHARES.items():
        until = time.perf_counter() + 60 * minutes * share
        work = {"steps": random_steps, "approximate": approximate_steps}.get(part, script_rounds)
        results[part] = work(part, until, options.seed)
        print(part, results[part], flush=True)
    record = make_record(
        "soak",
        f"python benchmarks/soak.py --minutes {options.minutes:g}",
        settings={"shares_of_the_time": SHARES},
        seeds=[options.seed],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "soak.json", record)


def script_rounds(part: str, until: float, seed: int) -> dict[str, Any]:
    """Rounds of a script of the tests, each with a seed of its own; what they counted, added up."""
    script, args = ROUNDS[part]
    totals: dict[str, Any] = {"rounds": 0}
    while totals["rounds"] < ENOUGH[part] and (time.perf_counter() < until or totals["rounds"] < AT_LEAST.get(part, 1)):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(HERE / "tests" / script), folder, *args]
            done = subprocess.run(
                [*command, "--seed", str(1000 * seed + totals["rounds"])], capture_output=True, text=True
            )
        if done.returncode:
            raise SystemExit(f"{part}, round {totals['rounds']}: {done.stderr[-4000:]}")
        totals["rounds"] += 1
        add_up(totals, json.loads(done.stdout.splitlines()[-1]))
    return totals


def add_up(totals: dict[str, Any], found: dict[str, Any]) -> None:
    """Add counts, those within counts too."""
    for name, value in found.items():
        if isinstance(value, dict):
            add_up(totals.setdefault(name, {}), value)
        else:
            totals[name] = totals.get(name, 0) + value


def random_steps(part: str, until: float, seed: int) -> dict[str, Any]:
    """Random sequences of changes, in the folder and in memory, against a fresh fit."""
    rng = np.random.default_rng(seed)
    n_sequences = n_steps = 0
    while n_sequences < ENOUGH[part] and (time.perf_counter() < until or not n_sequences):
        for method in sorted(KINDS):
            size = int(rng.integers(1, 16))
            steps = [(ACTIONS[rng.integers(6)], int(rng.integers(1000)), int(rng.integers(4))) for _ in range(size)]
            with tempfile.TemporaryDirectory() as folder:
                run_steps(method, steps, Path(folder) / "model")
            n_steps += size
            n_sequences += 1
    return {"sequences": n_sequences, "steps": n_steps}


def approximate_steps(part: str, until: float, seed: int) -> dict[str, Any]:
    """Random sequences of changes to models of approximate indexes: the recall they lose against a fresh fit."""
    lost: dict[str, list[float]] = {form: [] for form in APPROXIMATE}
    n_rounds = 0
    while n_rounds < ENOUGH[part] and (time.perf_counter() < until or not n_rounds):
        for form, losses in lost.items():
            with tempfile.TemporaryDirectory() as folder:
                losses += run_approximate_steps(form, 1000 * (seed + 1) + n_rounds, Path(folder) / "model")
            if max(losses) > MARGIN:
                raise SystemExit(f"{part}, {form}, round {n_rounds}: {max(losses):.3f} of the recall was lost")
        n_rounds += 1
    most = {form: round(float(max(losses)), 4) for form, losses in lost.items()}
    return {"sequences": n_rounds * len(lost), "most_recall_lost": most}


if __name__ == "__main__":
    main()

"""The long form of the tests of changing models: signals, failing calls, power cuts, damage, forgery, random changes.

Each part stops at its share of the time even if it has not done all it was asked for, and is run again every time.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, benchmark, parts_over, values_of

from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.base import markdown_table

ROUNDS: dict[str, tuple[str, list[str]]] = {  # one round of each part, repeated with other seeds
    "kills": ("killing.py", ["--kills", "40", "--full-disks", "10"]),
    "signals": ("killing.py", ["--signals", "100"]),
    "faults": ("faults.py", ["--errors", "--power-cuts"]),
    "commands": ("killing.py", ["--commands", "12"]),
    "models": ("fuzzing.py", ["--model", "500", "--forged", "500"]),
    "images": ("fuzzing.py", ["--images", "2000"]),
}
LIMITS = {  # share of the time; rounds that are run however long they take; rounds that are enough
    "kills": (0.2, 5, 8),
    "signals": (0.25, 10, 10),
    "faults": (0.1, 1, 1),
    "commands": (0.12, 1, 4),
    "models": (0.15, 1, 8),
    "images": (0.05, 1, 5),
    "steps": (0.08, 1, 400),
    "approximate": (0.05, 1, 200),
}
ACTIONS = ["add", "add", "remove", "relabel", "compact", "in memory"]
SHARES = {part: {"share": share} for part, (share, _, _) in LIMITS.items()}
SETTINGS: Settings = {"minutes": 15.0, "seed": 0, "shares_of_the_time": SHARES}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Rounds of one part."""
    sys.path.insert(0, str(HERE / "tests"))
    part = settings["part"]
    until = time.perf_counter() + 60 * min(settings["minutes"], 18.0) * settings["share"]
    work = {"steps": random_steps, "approximate": approximate_steps}.get(part, script_rounds)
    return work(part, until, settings["seed"])


def script_rounds(part: str, until: float, seed: int) -> dict[str, Any]:
    """Rounds of a script of the tests, each with a seed of its own; what they counted, added up."""
    script, args = ROUNDS[part]
    _, least, enough = LIMITS[part]
    totals: dict[str, Any] = {"rounds": 0}
    while totals["rounds"] < enough and (time.perf_counter() < until or totals["rounds"] < least):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, HERE / "tests" / script, folder, *args, "--seed", 1000 * seed + totals["rounds"]]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{part}, round {totals['rounds']}: {done.stderr[-4000:]}")
        totals = added(totals, {"rounds": 1} | json.loads(done.stdout.splitlines()[-1]))
    return totals


def added(first: Results, second: Results) -> Results:
    """The sums of counts, of those within counts too."""
    sums = {n: added(first.get(n, {}), v) if isinstance(v, dict) else first.get(n, 0) + v for n, v in second.items()}
    return first | sums


def random_steps(part: str, until: float, seed: int) -> dict[str, Any]:
    """Random sequences of changes, in the folder and in memory, against a fresh fit."""
    from changing import KINDS, run_steps

    rng = np.random.default_rng(seed)
    n_sequences = n_steps = 0
    while n_sequences < LIMITS[part][2] and (time.perf_counter() < until or not n_sequences):
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
    from changing import APPROXIMATE, MARGIN, run_approximate_steps

    lost: dict[str, list[float]] = {form: [] for form in APPROXIMATE}
    n_rounds = 0
    while n_rounds < LIMITS[part][2] and (time.perf_counter() < until or not n_rounds):
        for form, losses in lost.items():
            with tempfile.TemporaryDirectory() as folder:
                losses += run_approximate_steps(form, 1000 * (seed + 1) + n_rounds, Path(folder) / "model")
            if max(losses) > MARGIN:
                raise SystemExit(f"{part}, {form}, round {n_rounds}: {max(losses):.3f} of the recall was lost")
        n_rounds += 1
    most = {form: round(float(max(losses)), 4) for form, losses in lost.items()}
    return {"sequences": n_rounds * len(lost), "most_recall_lost": most}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    return {part.settings["part"]: values_of(found) for part, found in outcomes}


def tabulate(results: Results) -> str:
    """What was done and how often, one row per kind; a single loss would have ended the run without a record."""
    killed, signaled, faults = results["kills"]["killed"], results["signals"]["signaled"], results["faults"]
    models, sent = results["models"], signaled["sent"]
    damaged, forged = (sum(models[kind].values()) for kind in ("model", "forged"))
    lost = ", ".join(f"{share:.3f} ({form})" for form, share in results["approximate"]["most_recall_lost"].items())
    rows = {
        "writers ended by SIGKILL": f"{killed['sent']['SIGKILL']:,}, in the course of {killed['changes']:,} changes",
        "writers interrupted by SIGINT and SIGTERM": f"{sent['SIGINT']:,} and {sent['SIGTERM']:,}, in the course of "
        f"{signaled['changes']:,} changes; {signaled['between_commit_and_report']:,} at the moment of commit",
        "system calls that failed, or were followed by a signal": f"{faults['failures']:,}: every call of seven kinds "
        "of change, with EIO, ENOSPC, EINTR, SIGINT, SIGTERM, before and after it; the model was as before in "
        f"{faults['kept']:,} and as after in {faults['changed']:,}",
        "disks after a power cut": f"{faults['power_cuts']:,}: a cut after every call, unsynced writes dropped or kept",
        "commands ended by a signal": f"{results['commands']['commands_killed']:,}",
        "writers on a full disk": f"{results['kills']['full_disks']:,}",
        "damaged files of models": f"{damaged:,}: {models['model']['refused']:,} refused, the others read the same",
        "forged files of models, all checksums right": f"{forged:,}: {models['forged']['refused']:,} refused, the "
        "others answer without harm",
        "damaged pictures": f"{sum(results['images']['images'].values()):,}",
        "random changes": f"{results['steps']['steps']:,} in {results['steps']['sequences']:,} sequences, answers as "
        "of a fresh fit",
        "sequences on approximate indexes": f"{results['approximate']['sequences']:,}; share of the true neighbors "
        f"lost at most: {lost}",
    }
    return markdown_table(["what", "how often"], [list(row) for row in rows.items()]) + (
        "\nEach time every checksum and the answers of the model were compared. Lost: 0. Crashed: 0. Hung: 0.\n"
    )


if __name__ == "__main__":
    sys.argv.append("--again")
EXPERIMENT = benchmark(globals(), plan=parts_over("soak", compute, shares_of_the_time="part"), dataset="")

"""Faults at random moments of changes to a model on a Milvus standalone server: is it whole, is anything lost?

Kills of the writer, kills of the server, and cuts of the connection between them, in turn. After each the model is
checked, and must answer as one that is fitted on what it should hold; at the end nothing may be left over on the
server. Each round has a server and a seed of its own; a round that is done is not repeated.
"""

import json
import subprocess
import sys
import tempfile

from common import HERE, benchmark, parts_over, table

from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings

SETTINGS: Settings = {"seeds": list(range(7)), "n_faults": 10}
QUICK: Settings = {"seeds": [0], "n_faults": 3}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """One round: a model, a server, and faults."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", HERE / "tests" / "milvus_faults.py", folder]
        command += ["--faults", settings["n_faults"], "--seed", settings["seed"]]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"round {settings['seed']} of the faults ended with {done.returncode}")
    found: Outcome = json.loads(done.stdout.splitlines()[-1])
    return found


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    kinds = outcomes[0][1]["faults"]
    faults = {kind: sum(found["faults"][kind] for _, found in outcomes) for kind in kinds}
    changes = sum(found["changes"] for _, found in outcomes)
    left_over = sum(found["left_over"] for _, found in outcomes)
    return {"faults": faults, "n_faults": sum(faults.values()), "changes": changes, "left_over": left_over}


def tabulate(results: Results) -> str:
    rows = [[kind, str(n)] for kind, n in results["faults"].items()]
    return table("fault | times", rows) + (
        f"\n{results['n_faults']} faults within {results['changes']} changes: after each the model was whole, as "
        f"before or as after the change, and answered as it should. At the end {results['left_over']} rows were left "
        "over.\n"
    )


EXPERIMENT = benchmark(
    globals(), plan=parts_over("engine faults", compute, timed=True, seeds="seed"), source="", dataset=""
)

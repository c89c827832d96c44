"""What of the authors' setup makes which difference: one thing at a time, on test images of Caltech 101.

Nothing is chosen by it. Rows that table 2 has too are the same parts, found again.
"""

from typing import Any

from common import benchmark, table

from lnbnn.lab import Outcomes, Part, Results, Settings
from lnbnn.lab.base import mean_sd
from lnbnn.lab.parts import accuracy, full_params, scores_part
from lnbnn.params import preset_params

SIX: Settings = {"scale_weight": 0.0, "stop_confidence": None}
THREE: Settings = SIX | {"descriptor_params": {"bin_sizes": [4, 6, 9]}}
DENSE: Settings = SIX | {"descriptor_params": {"bin_sizes": [4, 6, 9], "step_px": 3}}
ROWS: dict[str, list[Any]] = {  # method, parameters
    "Local NBNN, six scales every 8 px, 500 query descriptors": ["local-nbnn", SIX],
    "Local NBNN, three scales every 8 px, 500 query descriptors": ["local-nbnn", THREE],
    "Local NBNN, three scales every 3 px, 500 query descriptors": ["local-nbnn", DENSE],
    "Local NBNN, three scales every 3 px, all query descriptors": ["local-nbnn", preset_params("paper")],
    "Local NBNN, three scales every 3 px, 500 query descriptors, k = 100": ["local-nbnn", DENSE | {"n_neighbors": 100}],
    "hard pyramid, six scales every 8 px": ["spm-hard", {}],
    "hard pyramid, three scales every 8 px": ["spm-hard", {"descriptor_params": THREE["descriptor_params"]}],
    "hard pyramid, three scales every 3 px": ["spm-hard", {"descriptor_params": DENSE["descriptor_params"]}],
    "hard pyramid, six scales, C = 1": ["spm-hard", {"C": 1.0}],
    "soft pyramid, six scales every 8 px": ["spm-soft", {}],
    "soft pyramid, three scales every 3 px": ["spm-soft", {"descriptor_params": DENSE["descriptor_params"]}],
}
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seeds": [0, 1, 2], "all_others_tested": False, "rows": ROWS}
QUICK: Settings = {"n_train": 3, "n_test": 2, "seeds": [0, 1]}
QUICK["rows"] = {name: ROWS[name] for name in list(ROWS)[:2]}


def plan(settings: Settings) -> list[Part]:
    """Split by split, row by row; ``all_others_tested``: every image that is not trained on is a test image."""
    n_test = None if settings["all_others_tested"] else settings["n_test"]
    split = {"n_train": settings["n_train"], "n_test": n_test}
    return [
        scores_part(method, split | {"seed": seed}, params)
        for seed in settings["seeds"]
        for method, params in settings["rows"].values()
    ]


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By row: the accuracy of each split, and the minutes it took."""
    rows = {str([method, full_params(method, params)]): name for name, (method, params) in settings["rows"].items()}
    found: Results = {}
    for part, arrays in outcomes:
        name = rows[str([part.kind, part.settings["params"]])]
        row = found.setdefault(name, {"accuracy": [], "minutes": []})
        row["accuracy"].append(accuracy(arrays["scores"], arrays["truth"]))
        row["minutes"].append(round(float(arrays["seconds"]) / 60, 1))
    return found


def tabulate(results: Results) -> str:
    rows = [[name, mean_sd(row["accuracy"]), str(len(row["accuracy"]))] for name, row in results.items()]
    return table("on test images | accuracy, % | splits", rows)


def label(settings: Settings) -> str:
    words = ["paper-setup", str(settings["n_train"]), *["all-others"] * settings["all_others_tested"]]
    return "-".join(words)


EXPERIMENT = benchmark(globals())

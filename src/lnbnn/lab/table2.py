"""Table 2: every method of the comparison on one feature set, 15 and 30 training images per class.

The paper's methods come first: as published, with nothing of ours but the search. Ours come below, and say what was
added to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lnbnn.lab.base import Experiment, Outcomes, Part, Results, Settings, markdown_table, mean_sd
from lnbnn.lab.parts import accuracy, kernel_part, per_class, responses_part, scores_part
from lnbnn.params import preset_params

__all__ = ["EXPERIMENT"]

_AUTHORS = "the authors' grid"  # bins of 4, 6 and 9 pixels every 3 pixels, every query descriptor: the preset paper
_NBNN = {"query_budget": 500, "index_params": {"form": "ivf-4bit", "n_lists": 128, "n_probes": 2}, "scale_weight": 0.0}
_LOCAL_NBNN = {"query_budget": 500, "index_params": {"n_probes": 32}, "scale_weight": 0.0}
_SIZES = {"scale_weight": 0.25}
SETTINGS: Settings = {"n_train": [15, 30], "n_test": 15, "seeds": [0, 1, 2, 3, 4], "seeds_slow": [0, 1, 2]}
SETTINGS["params"] = {  # by the method, and what is different about it
    "local-nbnn": _LOCAL_NBNN,
    "spm-hard": {},
    "spm-soft": {},
    "local-nbnn + sizes": _LOCAL_NBNN | _SIZES,
    f"local-nbnn, {_AUTHORS}": preset_params("paper"),
    "nbnn": _NBNN,
}
SETTINGS["slow"] = [f"local-nbnn, {_AUTHORS}", "nbnn"]
SETTINGS["kernels"] = [  # as published, then what was added
    {"machine": "svm", "blend": 0.0},
    {"machine": "svm"},
    {"response": "unit", "levels": 2, "blend": 0.0},
    {"response": "unit", "levels": 2},
]
SETTINGS["kernels_with_sizes"] = [{"response": "unit", "levels": 2}]  # cross-validated best on Local NBNN responses
QUICK: Settings = {"n_train": [3, 5], "n_test": 3, "seeds": [0], "seeds_slow": [0]}
QUICK["params"] = {
    "local-nbnn": {"query_budget": 200, "scale_weight": 0.0},
    "spm-hard": {"n_words": 64, "n_samples": 4000},
    "spm-soft": {"n_words": 64, "n_samples": 4000},
    "local-nbnn + sizes": {"query_budget": 200} | _SIZES,
    f"local-nbnn, {_AUTHORS}": preset_params("paper") | {"query_budget": 200},
    "nbnn": {"query_budget": 100, "scale_weight": 0.0},
}
PAPER: dict[str, dict[str, tuple[str, str]]] = {  # at 15 and 30 images, as printed
    "caltech101": {
        "nbnn": ("63.2 ± 0.9", "70.3 ± 0.6"),
        "local-nbnn": ("66.1 ± 1.1", "71.9 ± 0.6"),
        f"local-nbnn, {_AUTHORS}": ("66.1 ± 1.1", "71.9 ± 0.6"),
        "spm-hard": ("62.5 ± 0.9", "66.3 ± 2.6"),
        "spm-soft": ("68.6 ± 0.7", "76.0 ± 0.9"),
        "nbnn-kernel": ("61.3 ± 0.2 (cited)", "69.6 ± 0.9 (cited)"),
        "local-nbnn-kernel": ("suggested only", "suggested only"),
    },
    "caltech256": {
        "nbnn": ("30.5 (cited)", "37 (cited)"),
        "local-nbnn": ("33.5 ± 0.9", "40.1"),
        f"local-nbnn, {_AUTHORS}": ("33.5 ± 0.9", "40.1"),
        "spm-hard": ("27.3 ± 0.5", "33.1 ± 0.5"),
        "spm-soft": ("33.2 ± 0.8", "39.5 ± 0.4"),
        "nbnn-kernel": ("", ""),
        "local-nbnn-kernel": ("suggested only", "suggested only"),
    },
}


def plan(settings: Settings) -> list[Part]:
    """Split by split, so that a run that is stopped has whole splits; the slow methods come last, one by one."""
    parts = []
    slow = settings["slow"]
    others = [row for row in settings["params"] if row not in slow]
    for rows, seeds in ((others, settings["seeds"]), *(([row], settings["seeds_slow"]) for row in slow)):
        for n_train in settings["n_train"]:
            for seed in seeds:
                split = {"n_train": n_train, "n_test": settings["n_test"], "seed": seed}
                for row in rows:
                    parts += _parts_of(row, split, settings)
    return parts


def _parts_of(row: str, split: dict[str, int], settings: Settings) -> list[Part]:
    """A method, and the kernels on its responses if it has any."""
    method, params = row.replace(",", " ").split()[0], settings["params"][row]
    if method.startswith("spm") or row.endswith(_AUTHORS):
        return [scores_part(method, split, params)]
    responses = responses_part(method, split, params)
    kernels = settings["kernels_with_sizes" if params["scale_weight"] else "kernels"]
    return [responses, *(kernel_part(f"{method}-kernel", how, responses) for how in kernels)]


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By number of training images and method: the accuracy of each split, their mean, and the classes'."""
    columns: dict[str, dict[str, Any]] = {}
    for part, arrays in outcomes:
        rows = columns.setdefault(str(part.settings["n_train"]), {})
        row = rows.setdefault(row_of(part), {"seeds": [], "accuracy": [], "per_class": [], "seconds": []})
        scores = arrays["scores"] if "scores" in arrays else -arrays["totals"][:, 0]
        row["seeds"].append(part.settings["seed"])
        row["accuracy"].append(accuracy(scores, arrays["truth"]))
        row["per_class"].append(per_class(scores, arrays["truth"]))
        row["seconds"].append(round(float(arrays["seconds"]), 1))
    for row in [row for rows in columns.values() for row in rows.values()]:
        row["mean"] = round(float(np.mean(row["accuracy"])), 2)
        row["sd"] = round(float(np.std(row["accuracy"], ddof=1)), 2) if len(row["accuracy"]) > 1 else None
        row["per_class"] = np.round(np.mean(row["per_class"], axis=0), 3).tolist()
    return {"columns": columns}


def row_of(part: Part) -> str:
    """The method, and what was added to the published one."""
    settings, params = part.settings, part.settings.get("params", {})
    added = ["sizes"] if params.get("scale_weight") else []
    if "machine" in settings:
        added += ["blend"] if settings["blend"] is None else []
        added += ["logistic regression"] if settings["machine"] == "logistic" else []
        added += ["quarters"] if settings["levels"] > 1 else []
    name = part.kind.removesuffix("-responses")
    if params.get("descriptor_params", {}).get("bin_sizes") == preset_params("paper")["descriptor_params"]["bin_sizes"]:
        name += f", {_AUTHORS}"
    return " + ".join([name, ", ".join(added)] if added else [name])


def tabulate(results: Results) -> str:
    """One row per method, the paper's first; ours, the number of splits, and the paper's, for each number of images."""
    columns = results["columns"]
    printed = PAPER[results.get("dataset", "caltech101").removesuffix("-quick")]
    header = ["method"]
    for n_train in columns:
        header += [f"ours, {n_train} images", "splits", "the paper's"]
    found = dict.fromkeys(row for rows in columns.values() for row in rows)
    ours = sorted(row for row in found if row not in printed)
    table = []
    for method in [*(row for row in printed if row in found), *ours]:
        line = [f"`{method}`"]
        for n_train, rows in columns.items():
            shares = rows[method]["accuracy"] if method in rows else []
            line += [mean_sd(shares), str(len(shares))] if shares else ["", ""]
            line.append(dict(zip(("15", "30"), printed.get(method, ("", "")), strict=True)).get(n_train, ""))
        table.append(line)
    return markdown_table(header, table)


TITLE = "Every method on the same features, mean per-class accuracy in %"
EXPERIMENT = Experiment("table2", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, PAPER)

"""Table 2: every method of the comparison on one feature set, 15 and 30 training images per class."""

from __future__ import annotations

from typing import Any

import numpy as np

from lnbnn.lab.base import Experiment, Outcomes, Part, Results, Settings, markdown_table, mean_sd
from lnbnn.lab.parts import accuracy, kernel_part, per_class, responses_part, scores_part

__all__ = ["EXPERIMENT"]

# the best cross-validated on Local NBNN responses; machines as published
_KERNELS: list[Settings] = [{"response": "unit", "levels": 2}, {"machine": "svm"}]
_NBNN_INDEX = {"form": "ivf-4bit", "n_lists": 128, "n_probes": 2}
_LOCAL_NBNN = {"query_budget": 500, "index_params": {"n_probes": 32}}
SETTINGS: Settings = {"n_train": [15, 30], "n_test": 15, "seeds": [0, 1, 2, 3, 4], "seeds_nbnn": [0, 1, 2]}
SETTINGS["params"] = {  # by the method, and what is different about it
    "local-nbnn": _LOCAL_NBNN,
    "local-nbnn, sizes ignored": {**_LOCAL_NBNN, "scale_weight": 0.0},
    "spm-hard": {},
    "spm-soft": {},
    "nbnn": {"query_budget": 500, "index_params": _NBNN_INDEX},
}
SETTINGS["kernels"] = _KERNELS
QUICK: Settings = {"n_train": [3, 5], "n_test": 3, "seeds": [0], "seeds_nbnn": [0]}
QUICK["params"] = {
    "local-nbnn": {"query_budget": 200},
    "local-nbnn, sizes ignored": {"query_budget": 200, "scale_weight": 0.0},
    "spm-hard": {"n_words": 64, "n_samples": 4000},
    "spm-soft": {"n_words": 64, "n_samples": 4000},
    "nbnn": {"query_budget": 100},
}
PAPER = {  # at 15 and 30 images, as printed; the paper's methods ignore the sizes of patches
    "nbnn": ("63.2 ± 0.9", "70.3 ± 0.6"),
    "local-nbnn": ("66.1 ± 1.1", "71.9 ± 0.6"),
    "local-nbnn, sizes ignored": ("66.1 ± 1.1", "71.9 ± 0.6"),
    "spm-hard": ("62.5 ± 0.9", "66.3 ± 2.6"),
    "spm-soft": ("68.6 ± 0.7", "76.0 ± 0.9"),
    "nbnn-kernel, svm": ("61.3 ± 0.2 (cited)", "69.6 ± 0.9 (cited)"),
    "nbnn-kernel": ("", ""),
    "local-nbnn-kernel, svm": ("suggested only", "suggested only"),
    "local-nbnn-kernel, svm, sizes ignored": ("suggested only", "suggested only"),
    "local-nbnn-kernel": ("", ""),
    "local-nbnn-kernel, sizes ignored": ("", ""),
}


def plan(settings: Settings) -> list[Part]:
    """Split by split, so that a run that is stopped has whole splits; the slow methods come last."""
    parts = []
    slow = [row for row in settings["params"] if row.startswith("nbnn")]
    others = [row for row in settings["params"] if row not in slow]
    for rows, seeds in ((others, settings["seeds"]), (slow, settings["seeds_nbnn"])):
        for seed in seeds:
            for n_train in settings["n_train"]:
                split = {"n_train": n_train, "n_test": settings["n_test"], "seed": seed}
                for row in rows:
                    method, params = row.split(",")[0], settings["params"][row]
                    if method.startswith("spm"):
                        parts.append(scores_part(method, split, params))
                    else:
                        responses = responses_part(method, split, params)
                        kernels = (kernel_part(f"{method}-kernel", how, responses) for how in settings["kernels"])
                        parts += [responses, *kernels]
    return parts


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By number of training images and method: the accuracy of each split, their mean, and the classes'."""
    columns: dict[str, dict[str, Any]] = {}
    for part, arrays in outcomes:
        rows = columns.setdefault(str(part.settings["n_train"]), {})
        row = rows.setdefault(_row_of(part), {"seeds": [], "accuracy": [], "per_class": [], "seconds": []})
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


def _row_of(part: Part) -> str:
    """The method, and what is different about it."""
    is_svm = part.settings.get("machine") == "svm"
    ignores_sizes = part.settings.get("params", {}).get("scale_weight") == 0.0
    return part.kind.removesuffix("-responses") + ", svm" * is_svm + ", sizes ignored" * ignores_sizes


def tabulate(results: Results) -> str:
    """One row per method; ours, the number of splits, and the paper's, for each number of training images."""
    columns = results["columns"]
    header = ["method"]
    for n_train in columns:
        header += [f"ours, {n_train} images", "splits", "the paper's"]
    table = []
    for method, printed in PAPER.items():
        if not any(method in rows for rows in columns.values()):
            continue
        line = [f"`{method}`"]
        for n_train, rows in columns.items():
            found = rows[method]["accuracy"] if method in rows else []
            line += [mean_sd(found), str(len(found))] if found else ["", ""]
            line.append(dict(zip(("15", "30"), printed, strict=True)).get(n_train, ""))
        table.append(line)
    return markdown_table(header, table)


TITLE = "Every method on the same features, mean per-class accuracy in %"
EXPERIMENT = Experiment("table2", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, PAPER)

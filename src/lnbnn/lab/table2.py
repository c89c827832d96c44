"""Table 2: every method of the comparison on one feature set, 15 and 30 training images per class.

The paper's methods come first: as published, with nothing of ours but the search. Ours come below, and say what was
added to them. The rows are those of four experiments: what takes hours can be run, and run again, by itself. Each
writes one record per number of training images; :func:`merged` puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lnbnn.lab.base import Experiment, Outcomes, Part, Results, Settings, markdown_table, mean_sd
from lnbnn.lab.parts import accuracy, kernel_part, per_class, responses_part, scores_part
from lnbnn.params import preset_params

__all__ = ["AUTHORS_GRID", "METHODS", "NBNN", "NBNN_KERNEL", "merged"]

_AUTHORS = "the authors' grid"  # bins of 4, 6 and 9 pixels every 3 pixels, every query descriptor: the preset paper
_NBNN = {"query_budget": 500, "index_params": {"form": "ivf-4bit", "n_lists": 128, "n_probes": 2}, "scale_weight": 0.0}
_LOCAL_NBNN = {"query_budget": 500, "index_params": {"n_probes": 32}, "scale_weight": 0.0}
_SIZES = {"scale_weight": 0.25}
_KERNELS: list[Settings] = [  # as published, then what was added
    {"machine": "svm", "blend": 0.0},
    {"machine": "svm"},
    {"response": "unit", "levels": 2, "blend": 0.0},
    {"response": "unit", "levels": 2},
]
_COLUMNS: Settings = {"n_train": [15, 30], "n_test": 15}
_QUICK: Settings = {"n_train": [3, 5], "n_test": 3, "seeds": [0]}
_QUICK_NBNN = {"params": {"nbnn": {"query_budget": 100, "scale_weight": 0.0}}}
_QUICK_SPM = {"n_words": 64, "n_samples": 4000}
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
    """Split by split, so that a run that is stopped has whole splits."""
    parts = []
    for n_train in settings["n_train"]:
        for seed in settings["seeds"]:
            split = {"n_train": n_train, "n_test": settings["n_test"], "seed": seed}
            for row, params in settings["params"].items():
                parts += _parts_of(row, params, split, settings["kernels"].get(row, []))
    return parts


def _parts_of(row: str, params: Settings, split: dict[str, int], kernels: list[Settings]) -> list[Part]:
    """A method, and the kernels on its responses."""
    method = row.replace(",", " ").split()[0]
    if not kernels:
        return [scores_part(method, split, params)]
    responses = responses_part(method, split, params)
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


def merged(several: Iterable[Results]) -> Results:
    """The rows of several records of one data set, each from the first that has it."""
    columns: dict[str, dict[str, Any]] = {}
    whole: Results = {"columns": columns}
    for results in several:
        whole = results | whole
        for n_train, rows in results["columns"].items():
            columns[n_train] = rows | columns.get(n_train, {})
    return whole


def _experiment(name: str, title: str, quick: Settings, **settings: Any) -> Experiment:
    def label(own: Settings) -> str:
        return "-".join([name, *map(str, own["n_train"])])

    own = _COLUMNS | {"kernels": {}} | settings
    shown = f"{title}, mean per-class accuracy in %"
    return Experiment(name, shown, own, plan, summarize, tabulate, _QUICK | quick, PAPER, label=label)


METHODS = _experiment(
    "table2-methods",
    "Local NBNN, its kernels and the pyramids on the same features",
    {
        "params": {
            "local-nbnn": {"query_budget": 200, "scale_weight": 0.0},
            "spm-hard": _QUICK_SPM,
            "spm-soft": _QUICK_SPM,
            "local-nbnn + sizes": {"query_budget": 200} | _SIZES,
        }
    },
    seeds=[0, 1, 2, 3, 4],
    params={
        "local-nbnn": _LOCAL_NBNN,
        "spm-hard": {},
        "spm-soft": {},
        "local-nbnn + sizes": _LOCAL_NBNN | _SIZES,
    },
    kernels={
        "local-nbnn": _KERNELS,
        "local-nbnn + sizes": _KERNELS[-1:],  # cross-validated best on Local NBNN responses
    },
)
AUTHORS_GRID = _experiment(
    "table2-authors-grid",
    "Local NBNN on the authors' grid, every query descriptor",
    {"params": {f"local-nbnn, {_AUTHORS}": preset_params("paper") | {"query_budget": 200}}},
    seeds=[0, 1, 2],
    params={f"local-nbnn, {_AUTHORS}": preset_params("paper")},
)
NBNN = _experiment("table2-nbnn", "NBNN: an index per class", _QUICK_NBNN, seeds=[0, 1, 2], params={"nbnn": _NBNN})
NBNN_KERNEL = _experiment(
    "table2-nbnn-kernel",
    "NBNN and the kernels on its responses",
    _QUICK_NBNN,
    seeds=[0, 1, 2],
    params={"nbnn": _NBNN},
    kernels={"nbnn": _KERNELS},
)

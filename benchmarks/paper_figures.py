"""The table of README: the paper's figures, ours with the paper's methods, and ours with what we added."""

from collections.abc import Callable
from typing import Any

from common import table

from lnbnn.lab.table2 import PAPER

Read = Callable[[str], Any]

KERNEL = "local-nbnn-kernel + sizes, blend, logistic regression, quarters"
NONE = "–"
ROWS: dict[str, tuple[list[str], list[str]]] = {  # as published, and with what was added: the first that is on record
    "Local NBNN": (["local-nbnn, the authors' grid", "local-nbnn"], ["local-nbnn + sizes"]),
    "NBNN": (["nbnn"], []),
    "kernel on Local NBNN": (["local-nbnn-kernel"], [KERNEL]),
    "spatial pyramid, hard": (["spm-hard"], []),
    "spatial pyramid, soft": (["spm-soft"], []),
}
COLUMNS = {
    "Caltech 101, 15 images": ("", "15"),
    "Caltech 101, 30 images": ("", "30"),
    "Caltech 256 (a part), 15 images": ("-caltech256", "15"),
}


def render(read: Read) -> str:
    """A row per method; in each cell the paper's figure, ours as published, ours with what was added."""
    rows = []
    for title, names in ROWS.items():
        rows.append([title, *(_cell(read, *names, *column) for column in COLUMNS.values())])
    found = [read(f"sift-{n_train}{dataset}") for dataset, n_train in COLUMNS.values()]
    rows.append(
        ["our best on SIFT: `--preset sift`", *(_three("", "", one and one.results["accuracy_mean"]) for one in found)]
    )
    return table(" | ".join(["the paper's · ours, as published · ours, with additions", *COLUMNS]), rows)


def _cell(read: Read, published: list[str], added: list[str], dataset: str, n_train: str) -> str:
    record = read(f"table2{dataset}")
    found = record.results["columns"].get(n_train, {}) if record is not None else {}
    printed = PAPER[dataset.lstrip("-") or "caltech101"][published[-1]][n_train == "30"]
    ours = (next((found[name]["mean"] for name in names if name in found), None) for names in (published, added))
    return _three(printed.partition(" ")[0].removeprefix("suggested"), *ours)


def _three(printed: str, *ours: float | str | None) -> str:
    cells = [printed, *(one if isinstance(one, str) or one is None else f"{one:.1f}" for one in ours)]
    return " · ".join(cell or NONE for cell in cells)

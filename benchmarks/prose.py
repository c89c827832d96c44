"""Figures in the text of README and docs, each from a record: what is between `<!-- name -->` and `<!-- / -->`.

`python benchmarks/write_tables.py` writes them. A figure whose record is not there yet is "(not on record yet)".
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any

from lnbnn.lab.table2 import PAPER

Read = Callable[[str], Any]  # the record of a name, or None

MARK = re.compile(r"<!-- ([\w-]+\.[\w-]+) -->(.*?)<!-- / -->", re.DOTALL)
NOT_YET = "(not on record yet)"
KERNEL = "local-nbnn-kernel + {}blend, logistic regression, quarters"


def fill(text: str, read: Read) -> str:
    """The text with its figures drawn from the records."""
    return MARK.sub(lambda found: f"<!-- {found[1]} -->{figure(found[1], read)}<!-- / -->", text)


def figure(name: str, read: Read) -> str:
    """One figure, as text."""
    try:
        return FIGURES[name](lambda record: read(record).results)
    except (AttributeError, KeyError):
        if name not in FIGURES:
            raise
        return NOT_YET


def _signed(value: float) -> str:
    return f"{value:+.1f}"


def _points(name: str) -> Callable[[Read], Callable[..., dict[str, Any]]]:
    """The only point of the frontier with these settings."""

    def found(results: Read) -> Callable[..., dict[str, Any]]:
        def point(**wanted: Any) -> dict[str, Any]:
            (one,) = [one for one in results(name)["points"] if wanted.items() <= one.items()]
            return dict(one)

        return point

    return found


def _more_lists(results: Read) -> tuple[dict[str, Any], dict[str, Any]]:
    point = _points("frontier")(results)
    same = {"grid": "balanced", "rerank_factor": 4, "query_budget": 500, "stop_confidence": None}
    return point(n_probes=32, **same), point(n_probes=8, **same)


def _paper_times(results: Read) -> str:
    found = results("frontier")
    paper, balanced = (found["points"][found["presets"][name]] for name in ("paper", "balanced"))
    return f"{paper['classify_ms'] / balanced['classify_ms']:.0f}"


def _of_table2(results: Read, n_train: int, ours: str, other: str, record: str = "table2") -> list[float]:
    """What one method is above another, for each split that both have."""
    column = results(record)["columns"][str(n_train)]
    scores = [dict(zip(column[name]["seeds"], column[name]["accuracy"], strict=True)) for name in (ours, other)]
    return [scores[0][seed] - scores[1][seed] for seed in scores[0] if seed in scores[1]]


def _table2(results: Read, n_train: int, ours: str, other: str, record: str = "table2") -> str:
    return _signed(statistics.mean(_of_table2(results, n_train, ours, other, record)))


def _to_paper(results: Read, n_train: int, ours: str, record: str = "table2") -> str:
    """What a method, with whatever was added, is above the paper's figure for it."""
    printed = PAPER[record.removeprefix("table2-").replace("table2", "caltech101")][ours.partition(" ")[0]]
    return _signed(results(record)["columns"][str(n_train)][ours]["mean"] - float(printed[n_train == 30].split()[0]))


def _wins(results: Read, n_train: int, ours: str, other: str) -> str:
    above = [difference > 0 for difference in _of_table2(results, n_train, ours, other)]
    return f"{sum(above)} of {len(above)}"


def _range(values: list[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


def _unequal(results: Read, what: str) -> str:
    found = results("unequal")
    return _signed(found["nbnn-affine"][what] - found["nbnn"][what])


def _one_of_each(results: Read) -> str:
    at = {
        (one["left_out"], one["balance"]): one["accuracy"]
        for one in results("unequal-choice")["settings"]
        if one["regularization"] == 0.01
    }
    chosen = results("unequal-choice")["chosen"]["left_out"]
    return _range([at[chosen, balance] - at["own", balance] for left, balance in at if left == "own"], "+.1f")


def _three_scales(results: Read) -> str:
    found = results("ablations")["accuracy"]
    return _signed(statistics.mean(found["bins 4 6 9"]) - statistics.mean(found["k=10, the paper's"]))


def _cpu(results: Read, ours: str, other: str) -> str:
    found = results("deep-choice")["cpu_ms"]
    return f"{found[ours]['288'] / found[other]['288']:.1f}"


def _install(results: Read, what: str) -> str:
    return f"{sum(results('install')[part][what] for part in ('without', 'added')):.0f}"


FIGURES: dict[str, Callable[[Read], str]] = {
    "ablations.three-scales": _three_scales,
    "auto.accuracy": lambda results: f"{results('auto-15')['accuracy_mean']:.1f}",
    "auto.accuracy-256": lambda results: f"{results('auto-15-caltech256')['accuracy_mean']:.1f}",
    "auto.regression": lambda results: f"{results('auto-15')['logistic_regression_mean']:.1f}",
    "auto.regression-256": lambda results: f"{results('auto-15-caltech256')['logistic_regression_mean']:.1f}",
    "changes.fit": lambda results: f"{results('changes')['fit']['wall_s']}",
    "changes.answer": lambda results: f"{results('changes')['process']['predict']['cpu_ms']['median']:.0f}",
    "deep-choice.small-times": lambda results: _cpu(results, "deep-small", "deep"),
    "deep-choice.large-times": lambda results: _cpu(results, "deep", "deep-small"),
    "frontier.paper-times": _paper_times,
    "frontier.more-lists": lambda results: _signed(
        _more_lists(results)[0]["accuracy"] - _more_lists(results)[1]["accuracy"]
    ),
    "frontier.more-lists-times": lambda results: (
        f"{_more_lists(results)[0]['classify_ms'] / _more_lists(results)[1]['classify_ms']:.1f}"
    ),
    "install.download": lambda results: _install(results, "download_mb"),
    "install.packages": lambda results: _install(results, "n_packages"),
    "large.over-raw": lambda results: f"{results('large')['fit']['bytes_over_raw']:.2f}",
    "presets.answer": lambda results: (
        f"{statistics.median(one['predict_ms_an_image'] for one in results('caltech101-balanced-15')['splits']):.0f}"
    ),
    "table1.same-answers": lambda results: (
        f"{100 * results('table1')['longest side 128']['all_increments_answer_as_nbnn']:.1f}"
    ),
    "table2.sizes-range": lambda results: _range(_of_table2(results, 15, "local-nbnn + sizes", "local-nbnn"), "+.1f"),
    "unequal.all": lambda results: _unequal(results, "accuracy"),
    "unequal.small": lambda results: _unequal(results, "accuracy_small"),
    "unequal.large": lambda results: _unequal(results, "accuracy_large"),
    "unequal.shares": lambda results: _range(
        [run["nbnn-affine"]["answers_large"] for run in results("unequal")["runs"]], ".0f"
    ),
    "unequal-choice.one-of-each": _one_of_each,
}
_256 = {"record": "table2-caltech256"}
FIGURES |= {
    "table2-256.local-paper": lambda results: _to_paper(results, 15, "local-nbnn", **_256),
    "table2-256.hard-paper": lambda results: _to_paper(results, 15, "spm-hard", **_256),
    "table2-256.soft-paper": lambda results: _to_paper(results, 15, "spm-soft", **_256),
    "table2-256.sizes": lambda results: _table2(results, 15, "local-nbnn + sizes", "local-nbnn", **_256),
    "table2-256.kernel": lambda results: _table2(results, 15, "local-nbnn-kernel", "local-nbnn", **_256),
    "table2-256.kernel-sizes": lambda results: _table2(results, 15, KERNEL.format("sizes, "), "spm-soft", **_256),
}
for n_train in (15, 30):
    FIGURES |= {
        f"table2.plain-paper-{n_train}": lambda results, n=n_train: _to_paper(results, n, "local-nbnn"),
        f"table2.sizes-paper-{n_train}": lambda results, n=n_train: _to_paper(results, n, "local-nbnn + sizes"),
        f"table2.sizes-{n_train}": lambda results, n=n_train: _table2(results, n, "local-nbnn + sizes", "local-nbnn"),
        f"table2.local-{n_train}": lambda results, n=n_train: _table2(results, n, "local-nbnn", "nbnn"),
        f"table2.kernel-{n_train}": lambda results, n=n_train: _table2(results, n, KERNEL.format(""), "spm-soft"),
        f"table2.kernel-sizes-{n_train}": lambda results, n=n_train: _table2(
            results, n, KERNEL.format("sizes, "), "spm-soft"
        ),
        f"table2.kernel-wins-{n_train}": lambda results, n=n_train: _wins(
            results, n, KERNEL.format("sizes, "), "spm-soft"
        ),
    }

"""What the tables are made from: records in results/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lnbnn.lab.records import read_record

HERE = Path(__file__).resolve().parent.parent


def results_of(name: str) -> dict[str, Any] | None:
    """The results of a record, or None where it is not there yet."""
    path = HERE / "results" / f"{name}.json"
    return read_record(path).results if path.exists() else None


def source_of(name: str) -> str:
    """The command of a record, its seeds, and where it is."""
    record = read_record(HERE / "results" / f"{name}.json")
    seeds = ", ".join(map(str, record.seeds))
    return f"`{record.command}`, splits {seeds}: [record](../results/{name}.json)"

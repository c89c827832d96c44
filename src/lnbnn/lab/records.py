"""Run records: small JSON files with the command, settings, environment and results of a run.

Tables, figures and the README's numbers are drawn from records only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from lnbnn.errors import InvalidInputError
from lnbnn.escaping import json_text
from lnbnn.files.atomic import atomic_path
from lnbnn.version import __version__

__all__ = ["RunRecord", "cpu_name", "make_record", "read_record", "results_digest", "versions", "write_record"]

_PACKAGES = ("numpy", "faiss-cpu", "numba", "opencv-python-headless", "scikit-learn", "pillow")


@dataclass(frozen=True)
class RunRecord:
    """One run: the command that repeats it, its settings and seeds, where it ran, and its results.

    ``commit`` is that of the code that put the results together. ``parts`` says what the parts of the work were made
    with: commit, digest of the code, versions of descriptors and libraries, date. It is empty in records older than it.
    """

    name: str
    command: str
    settings: dict[str, Any]
    seeds: list[int]
    results: dict[str, Any]
    seconds: float
    commit: str
    date: str
    versions: dict[str, str]
    machine: dict[str, Any]
    parts: list[dict[str, Any]] = field(default_factory=list)


def make_record(
    name: str,
    command: str,
    *,
    commit: str,
    settings: dict[str, Any],
    seeds: list[int],
    results: dict[str, Any],
    seconds: float,
    parts: list[dict[str, Any]],
) -> RunRecord:
    """A record of a run that just ended, with this machine and these versions filled in."""
    machine = {"cpu": cpu_name(), "cores": os.cpu_count(), "memory_gib": _memory_gib(), "system": platform.system()}
    date = datetime.now(UTC).date().isoformat()
    took = round(seconds, 1)
    return RunRecord(name, command, settings, seeds, results, took, commit, date, versions(), machine, parts)


def versions() -> dict[str, str]:
    """Of this package, of Python and of the libraries that results depend on."""
    own = {"lnbnn": __version__, "python": platform.python_version()}
    return own | {package: metadata.version(package) for package in _PACKAGES}


def write_record(path: str | os.PathLike[str], record: RunRecord) -> None:
    """Write a record as readable JSON, atomically."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as partial:
        partial.write_text(json_text(asdict(record), indent=1) + "\n", encoding="utf-8")


def read_record(path: str | os.PathLike[str]) -> RunRecord:
    """Read a record; one that lacks a field, or has one too many, is refused."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        record = RunRecord(**fields)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"{path}: not a run record ({error}).") from error
    for name, kind in (
        ("name", str),
        ("command", str),
        ("settings", dict),
        ("seeds", list),
        ("results", dict),
        ("parts", list),
    ):
        if not isinstance(getattr(record, name), kind):
            raise InvalidInputError(f"{path}: {name} must be a {kind.__name__}; got {getattr(record, name)!r}.")
    return record


def results_digest(record: RunRecord) -> str:
    """A short digest of a record's results: what a picture drawn from them carries."""
    text = json.dumps(record.results, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cpu_name() -> str:
    """The processor, as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None

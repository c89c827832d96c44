"""What an outcome was made with: commit, code, descriptors, libraries, images, date."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.data import DATASETS
from lnbnn.data.folder import LabeledImages
from lnbnn.descriptors import DESCRIPTORS
from lnbnn.indexes import INDEXES
from lnbnn.lab.base import Part
from lnbnn.lab.records import versions
from lnbnn.params import resolve

__all__ = ["code_of", "commit", "commit_of", "data_of", "descriptors_of", "digest_of", "is_dirty", "made_with"]
__all__ += ["part_digest", "whole_code"]

_PACKAGE = Path(__file__).parent.parent
_DIRTY = "-dirty"
_CODE = (":/", ":!/results", ":!/docs", ":!/*.md")  # records and pages, which a run writes itself, are no code


def made_with(part: Part) -> dict[str, Any]:
    """What an outcome computed now is made with."""
    return {
        "commit": commit(),
        "code": code_of(part),
        "descriptors": descriptors_of(part),
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "part": part_digest(part),
    }


def part_digest(part: Part) -> str:
    """Of the work itself: its kind, all its settings, and the versions of its descriptors."""
    return digest_of([part.kind, part.settings, descriptors_of(part)])


def digest_of(value: Any) -> str:
    """A short digest of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


# ---- the commit -----------------------------------------------------------------------------------------------------


@functools.cache
def commit() -> str:
    """The commit of this package's code, as it was when first asked."""
    return commit_of(_PACKAGE)


def commit_of(folder: Path) -> str:
    """The commit of a folder of code, with ``-dirty`` if any of it was changed since; ``unknown`` where it has none."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if not git("ls-files", "--", "."):  # a package installed below somebody's checkout
            return "unknown"
        changed = git("status", "--porcelain", "--", *_CODE)
        return git("rev-parse", "--short", "HEAD") + (_DIRTY if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def is_dirty(commit: str) -> bool:
    """Whether the code had uncommitted changes."""
    return commit.endswith(_DIRTY)


# ---- the code -------------------------------------------------------------------------------------------------------


def code_of(part: Part) -> str:
    """A digest of the code that computes a part: of its module, of what is registered under the names in its settings,
    and of all that these import from this package or their own folder. Comments and docstrings do not count."""
    function: Any = part.compute
    while isinstance(function, functools.partial):
        function = function.func
    if function is None:
        return ""
    start = Path(inspect.getsourcefile(function) or __file__)
    names = {part.kind, *part.kind.split(), *_texts(part.settings), *_constants(start)}
    registered = {
        _file_of(target) for registry in (CLASSIFIERS, DESCRIPTORS, INDEXES) for target in _of(registry, names)
    }
    return _digest_of_files(frozenset({start, *registered}))


@functools.cache
def whole_code() -> str:
    """A digest of all modules of this package: times depend on every one."""
    return _digest_of_files(frozenset(_PACKAGE.rglob("*.py")))


@functools.cache
def _digest_of_files(first: frozenset[Path]) -> str:
    """Of these modules and of all that they import."""
    seen: set[Path] = set()
    waiting = list(first)
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += _imports(path)
    return digest_of(sorted([path.stem, ast.dump(_tree(path))] for path in seen))


@functools.cache
def _tree(path: Path) -> ast.Module:
    """A module as it runs: without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return tree


def _is_text(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _imports(path: Path) -> Iterator[Path]:
    for node in ast.walk(_tree(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{name}" for name in names)]
        for name in names:
            place = _PACKAGE.parent if name.split(".")[0] == _PACKAGE.name else path.parent
            file = place.joinpath(*name.split("."))
            yield from (one for one in (file.with_suffix(".py"), file / "__init__.py") if one.is_file())


def _constants(path: Path) -> set[str]:
    nodes = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.Constant))
    return {node.value for node in nodes if isinstance(node.value, str)}


def _of(registry: dict[str, str], names: set[str]) -> Iterator[str]:
    """What the names stand for, of those that the registry has."""
    for name in names:
        family = next((key for key in registry if key[-1] in ":@" and name.startswith(key)), name)
        if family in registry:
            yield registry[family]


def _file_of(target: str) -> Path:
    return _PACKAGE.parent.joinpath(*target.partition(":")[0].split(".")).with_suffix(".py")


# ---- the descriptors and the images ---------------------------------------------------------------------------------


def descriptors_of(part: Part) -> dict[str, int]:
    """The versions of the descriptors named in a part's settings."""
    found = {}
    for name in sorted({value for key, value in _pairs(part.settings) if key == "descriptor"}):
        found[name] = resolve(DESCRIPTORS, name, "descriptor").version
    return found


def data_of(dataset: str, images: LabeledImages) -> dict[str, Any]:
    """What the images are: how many, of how many classes and of how many published, and a digest of names and sizes."""
    if not len(images):
        return {}
    counts = {label: images.labels.count(label) for label in sorted(set(images.labels))}
    files = sorted(("/".join(Path(path).parts[-2:]), Path(path).stat().st_size) for path in images.paths)
    found = {
        "n_classes": len(counts),
        "n_images": len(images),
        "images_per_class": [min(counts.values()), max(counts.values())],
        "digest": digest_of([files, counts]),
    }
    if dataset in DATASETS:
        found["n_images_published"] = resolve(DATASETS, dataset, "data set").n_without_background
    return found


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    """The names and texts in nested settings."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from ([(name, inner)] if isinstance(inner, str) else _pairs(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from ([("", inner)] if isinstance(inner, str) else _pairs(inner))


def _texts(settings: dict[str, Any]) -> set[str]:
    return {value for _, value in _pairs(settings)}

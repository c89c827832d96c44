"""The docs name what there is, and what they name is there."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import typer

import lnbnn
from lnbnn import scoring
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.cli import app
from lnbnn.data import DATASETS
from lnbnn.descriptors import DESCRIPTORS, make_descriptor
from lnbnn.errors import MissingExtraError
from lnbnn.indexes import INDEXES
from lnbnn.params import PRESETS

HERE = Path(__file__).resolve().parent.parent
PAGES = sorted([*(HERE / "docs").glob("*.md"), *HERE.glob("*.md")])
NOT_TEXT = re.compile(  # tables and figures from records, code
    r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->|<!-- [\w-]+\.[\w-]+ -->.*?<!-- / -->|```.*?```|`[^`\n]*`", re.DOTALL
)
MEASURED = re.compile(
    r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?: million)? ?"
    r"(?:%|points?\b|[mu]?s\b|seconds?\b|minutes?\b|[MG]i?B\b|times\b|million\b)"
)
LIMITS = {  # figures that are settings, limits, or of someone else
    "auto.md": {"0.1 %", "1 %", "95 %"},
    "command-line.md": {"3 seconds", "100 MiB"},
    "datasets.md": {"137 MB", "1,183 MB"},
    "how-it-works.md": {"95 %"},
    "indexes.md": {"0.7 times", "192 MiB"},
    "large-sets.md": {"100 MiB"},
    "methods.md": {"21 times", "72.7 %", "81.0 %"},
    "milvus.md": {"64 MB", "262 million"},
    "model-format.md": {"64 MiB", "1 MiB", "3 seconds"},
    "page.md": {"64 MiB", "256 MiB", "1 MiB", "20 s"},
    "python.md": {"67 million", "704 MiB", "48 MiB", "512 MiB", "70 MiB"},
    "reject-strangers.md": {"0.5 %"},
    "scale.md": {"512 MiB", "3.8 million"},
}
FOREIGN = (
    r"\b(anew|manners|dearest|doubles|for ever|at hand|passed over|sub-folders?|any more"
    r"|spoke|taken for|label back|goes on where it was|who does not|as it stands|the former|intake|upkeep)\b"
)
BRITISH = re.compile(
    r"\w*(?:labell|modelled|modelling|colour|neighbour|centre|centring|normalis|standardis|optimis|recognis|minimis|maximis|summaris"
    r"|initialis|regularis|quantis|organis|behaviour|favour|licence|analyse[ds]?\b|programme\b|learnt|travell|\bgrey)\w*",
    re.IGNORECASE,
)
OLD_NAMES = {"LabelledImages", "learnt_settings", "mislabelled"}  # which warn, or are in the change log
OLD_NAMES |= {"centre", "pooled_centre", "neighbour", "normalised"}  # of a file in models, and in older records
CODE = sorted(
    path
    for room in ("src", "tests", "benchmarks", "examples", "docs")
    for path in (HERE / room).rglob("*")
    if path.suffix in {".py", ".js", ".html", ".css", ".toml"} and path != Path(__file__).resolve()
)


def _text(name):
    return (HERE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", sorted(typer.main.get_command(app).commands))
def test_every_command_is_documented(command):
    assert f"`lnbnn {command}" in _text("docs/command-line.md")


def test_every_registered_name_is_documented():
    assert all(f"`{name}`" in _text("docs/indexes.md") for name in INDEXES)
    assert all(name in _text("docs/descriptors.md") for name in DESCRIPTORS)
    assert all(f"`{name}`" in _text("docs/methods.md") for name in CLASSIFIERS)
    assert all(name in _text("docs/command-line.md") for name in PRESETS)
    assert all(f"`{name}`" in _text("docs/datasets.md") for name in DATASETS)


def test_documented_defaults_are_the_constructors():
    table = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", _text("docs/descriptors.md"), flags=re.MULTILINE)
    documented = {name: default.strip() for name, default in table}
    params = make_descriptor("dense-sift").settings()
    assert documented == {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in params.items()
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_measured_figures_come_from_records(page):
    text = NOT_TEXT.sub("", page.read_text(encoding="utf-8"))
    found = {found[0] for found in MEASURED.finditer(text)}
    assert found - LIMITS.get(page.name, set()) == set(), "mark it (benchmarks/prose.py), or take it away"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_words_are_those_of_the_field(page):
    text = NOT_TEXT.sub("", page.read_text(encoding="utf-8"))
    assert re.findall(FOREIGN, text) == []
    assert re.findall(r"\d[\w ]* (?:ms|descriptors|images) an? (?:image|class|query)\b", text) == []


def test_spelling_is_american():
    found = {path.name: set(BRITISH.findall(path.read_text(encoding="utf-8"))) - OLD_NAMES for path in [*PAGES, *CODE]}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_begins_with_a_mark_in_the_text(page):
    """Markdown would take the line for HTML, and begin a paragraph there."""
    assert re.findall(r"^<!-- (?:[\w-]+\.[\w-]+|/) -->", page.read_text(encoding="utf-8"), flags=re.MULTILINE) == []


def test_the_readme_is_short():
    assert len(_text("README.md").splitlines()) <= 120


def test_paper_to_code_names_exist():
    """Each name is a module, what a module exports, a member of that, a command, a setting, or a word of scoring."""
    modules = [info.name for info in pkgutil.walk_packages(lnbnn.__path__, "lnbnn.")]
    others = {*inspect.signature(lnbnn.LocalNBNN).parameters, "dist_background", "lnbnn reproduce", "lnbnn split"}
    for shown in re.findall(r"`([^`]+)`", _text("docs/paper-to-code.md").partition("|---|")[2]):
        name = shown.partition("(")[0]
        if name in others or " ".join(name.split()[:2]) in others or f"lnbnn.{name}" in modules:
            continue
        first, *rest = name.split(".")
        if f"lnbnn.{first}" in modules:
            path, _, attribute = f"lnbnn.{name}".rpartition(".")
            assert hasattr(importlib.import_module(path), attribute), shown
            continue
        sources = (module for module in modules if "__main__" not in module)
        found = [vars(module)[first] for module in map(_imported, sources) if first in getattr(module, "__all__", ())]
        assert found, shown
        assert all(hasattr(found[0], part) for part in rest), shown
    assert "dist_background" in inspect.getsource(scoring)


def _imported(name):
    try:
        return importlib.import_module(name)
    except MissingExtraError:
        return None

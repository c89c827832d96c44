"""The documentation site: what the check of its links sees, and that every page has its place in it."""

import importlib.util
import re
from pathlib import Path

import pytest

import lnbnn

HERE = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def check_site():
    spec = importlib.util.spec_from_file_location("check_site", HERE / "docs" / "check_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "style.css").write_text("a { color: red }", encoding="utf-8")
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="style.css"><link rel="canonical" href="https://elsewhere.example/">'
        '<a href="sub/page.html#here">a page</a> <a href="https://elsewhere.example">may be followed</a>',
        encoding="utf-8",
    )
    (tmp_path / "sub" / "page.html").write_text('<h2 id="here"></h2><a href="../index.html">back</a>', encoding="utf-8")
    return tmp_path


def test_a_whole_site_has_no_problems(check_site, site):
    assert check_site.problems(site) == []


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="gone.html">x</a>', "sub/page.html: gone.html is not there"),
        ('<a href="../index.html#gone">x</a>', "sub/page.html: ../index.html#gone: no such place in the page"),
        ('<a href="#gone">x</a>', "sub/page.html: #gone: no such place in the page"),
        ('<img src="gone.png">', "sub/page.html: gone.png is not there"),
        (
            '<script src="https://elsewhere.example/x.js"></script>',
            "sub/page.html: loads https://elsewhere.example/x.js",
        ),
        ('<link rel="stylesheet" href="//elsewhere.example/x.css">', "sub/page.html: loads //elsewhere.example/x.css"),
    ],
)
def test_problems_are_named(html, problem, check_site, site):
    page = site / "sub" / "page.html"
    page.write_text(page.read_text(encoding="utf-8") + html, encoding="utf-8")
    assert check_site.problems(site) == [problem]


def test_a_style_sheet_loads_nothing_from_elsewhere(check_site, site):
    (site / "style.css").write_text("a { background: url('https://elsewhere.example/x.png') }", encoding="utf-8")
    assert check_site.problems(site) == ["style.css: loads https://elsewhere.example/x.png"]


def test_every_page_is_in_the_menu():
    listed = re.findall(r": ([\w-]+\.md)$", (HERE / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(set(listed)) == len(listed)
    pages = {path.name for path in (HERE / "docs").glob("*.md")}
    assert set(listed) == pages | {"changelog.md", "contributing.md"}, "add the page to nav in mkdocs.yml"


def test_the_version_is_the_same_everywhere():
    citation = (HERE / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (\S+)$", citation, flags=re.MULTILINE)[1] == lnbnn.__version__
    assert f"version = {{{lnbnn.__version__}}}" in (HERE / "docs" / "citing.md").read_text(encoding="utf-8")
    changes = (HERE / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\d\S*)", changes, flags=re.MULTILINE)[1] == lnbnn.__version__


def test_declared_versions_of_python_are_those_that_are_allowed():
    project = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r"Programming Language :: Python :: (3\.\d+)", project)
    assert declared[0] == re.search(r'requires-python = ">=(3\.\d+)"', project)[1]
    said = (HERE / "docs" / "install.md").read_text(encoding="utf-8")
    assert all(version in said for version in declared)

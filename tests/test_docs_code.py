"""The code in README and docs runs: Python and ``bash`` blocks page by page, other commands are parsed."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer

import lnbnn
from lnbnn.cli import app
from lnbnn.data.folder import read_images

HERE = Path(__file__).resolve().parent.parent
PAGES = {
    page.name: page.read_text(encoding="utf-8") for page in [*sorted((HERE / "docs").glob("*.md")), HERE / "README.md"]
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEED_CALTECH = ("datasets.md", "reproduce-the-paper.md")  # their imports are tried
SIZE = (110, 36)  # so few descriptors that searches are exact
CLASSES = {"cat": "checks", "dog": "columns", "otter": "rows"}


def blocks(page, kind):
    return [code for language, code in FENCE.findall(PAGES[page]) if language == kind]


def pages_with(kind):
    return [page for page in PAGES if blocks(page, kind)]


def commands(code):
    """The `lnbnn` commands of a block, without comments, lines that go on joined."""
    lines = code.replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines if line.startswith("lnbnn ")]
    return [words[1:] for words in found]


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory, save_texture):
    """What the pages speak of: photos, held-out-photos, otters, new-photo.jpg, and a model of the photos."""
    place = tmp_path_factory.mktemp("docs")
    for number, (name, kind) in enumerate(CLASSES.items()):
        for one in range(4):
            seed = 10 * number + one
            save_texture(place / "photos" / name / f"{one}.jpg", kind, seed, SIZE)
            save_texture(place / "held-out-photos" / name / f"{one}.jpg", kind, 200 + seed, SIZE)
    for one in range(3):
        save_texture(place / "otters" / f"{one}.jpg", "rows", 300 + one, SIZE)
    save_texture(place / "new-photo.jpg", "rows", 400, SIZE)
    data = read_images(place / "photos")
    classifier = lnbnn.LocalNBNN(descriptor_params={"step_px": 16})
    classifier.fit(data.paths, data.labels)
    classifier.save(place / "model")
    return place


@pytest.fixture
def place(shared_place, tmp_path, monkeypatch):
    """A copy of it, and the working folder."""
    shutil.copytree(shared_place, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in pages_with("python") if page not in NEED_CALTECH])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_python_of_a_page_runs_from_top_to_bottom(page, place):
    data = read_images("photos")
    names = {"images": list(data.paths), "paths": list(data.paths), "labels": list(data.labels)}
    names |= {"photos": ["new-photo.jpg"], "LocalNBNN": lnbnn.LocalNBNN}
    code = "\n".join(blocks(page, "python"))
    if 'save("model")' in code:
        shutil.rmtree("model")
    exec(compile(code, page, "exec"), names)


@pytest.mark.parametrize("page", NEED_CALTECH)
def test_python_that_needs_caltech_imports_what_is_there(page):
    (code,) = blocks(page, "python")
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    assert imports
    for node in imports:
        module = importlib.import_module(node.module)
        assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.parametrize("page", pages_with("bash"))
def test_commands_of_a_page_run_in_order(page, place, run_main):
    words = [one for code in blocks(page, "bash") for one in commands(code)]
    assert words
    if ["fit", "photos", "model"] in words:
        shutil.rmtree("model")
    for arguments in words:
        expanded = []
        for word in arguments:
            expanded += sorted(map(str, Path().glob(word))) if "*" in word else [word]
        outcome = run_main(*expanded)
        assert outcome.code == 0, (arguments, outcome.err)


def parsed():
    for page in PAGES:
        for code in blocks(page, ""):
            for words in commands(code):
                yield pytest.param(words, id=f"{page}: {' '.join(words)[:60]}")


@pytest.mark.parametrize("words", list(parsed()))
def test_other_commands_are_understood(words):
    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="lnbnn")
    if words[0].startswith("-"):
        group.make_parser(context).parse_args(list(words))
        return
    command = group.commands[words[0]]
    options, rest, _ = command.make_parser(typer.Context(command, parent=context)).parse_args(list(words[1:]))
    assert rest == []
    needed = [param.name for param in command.params if param.required]
    assert all(options.get(name) for name in needed)


def test_an_unknown_option_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        test_other_commands_are_understood(["fit", "photos", "model", "--pre-set", "fast"])


def test_blocks_are_found():
    assert len(pages_with("python")) > 8
    assert {"start.md", "add-and-correct.md", "reject-strangers.md"} <= set(pages_with("bash"))
    assert len(list(parsed())) > 20

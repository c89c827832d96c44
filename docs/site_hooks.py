"""What the site has beyond its Markdown files: pages made from the code, and the project's files that pages link to.

MkDocs calls these functions while it builds (`make docs`).
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from lnbnn.cli import app

sys.modules["lnbnn.__main__"] = ModuleType("lnbnn.__main__")  # mkdocstrings imports it, which would run the command

HERE = Path(__file__).resolve().parent.parent
WHOLE_PAGES = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}  # pages of the site: files of the project
LINKED = (
    "results/*.json",
    "results/*.png",
    "results/*.toml",
    "examples/*.py",
    "src/lnbnn/trust/mislabeled.py",
    "src/lnbnn/model/manifest.py",
    "CITATION.cff",
)
COMMANDS = "<!-- commands, from the code -->"
EXAMPLES = "<!-- examples, from their files -->"
FOR_DEVELOPERS = ("check_settings", "make_descriptor", "make_method", "plain_params", "with_estimators", "with_model")
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):<code>~?([^<]+)</code>")  # Sphinx's, in docstrings


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files that are not in docs/."""
    for page, source in WHOLE_PAGES.items():
        files.append(File.generated(config, page, content=(HERE / source).read_text(encoding="utf-8")))
    for pattern in LINKED:
        for path in sorted(HERE.glob(pattern)):
            name = path.relative_to(HERE).as_posix()
            # a script is shown, not downloaded
            files.append(File.generated(config, name + ".txt" * (path.suffix == ".py"), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Fill in what comes from the code, and lead links to the project's files to their copies in the site."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, commands())
    if page.file.src_uri == "api.md":
        markdown = re.sub(r"^::: (\S+)$", _members, markdown, flags=re.MULTILINE)
    if EXAMPLES in markdown:
        markdown = markdown.replace(EXAMPLES, examples())
    if page.file.src_uri in WHOLE_PAGES:
        markdown = markdown.replace("](docs/", "](").replace("](results/", "](../results/")
    for name, source in WHOLE_PAGES.items():
        markdown = markdown.replace(f"]({source})", f"]({name})").replace(f"](../{source}", f"]({name}")
    return re.sub(r"\]\(\.\./((?:results/|examples/|src/|CITATION)[^)#]*)\)", _to_copy, markdown)


def on_page_content(html: str, *, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Docstrings name things as Sphinx does; here they are plain code."""
    return ROLE.sub(lambda found: f"<code>{found[1].rpartition('.')[2]}</code>", html)


def _members(found: re.Match[str]) -> str:
    """Of a module, the classes and functions that it exports; of a class, its methods and properties.

    Settings and fitted attributes of a class are in its docstring. All classifiers have the same methods: those that
    they inherit are shown once, for Local NBNN.
    """
    owner, _, name = found[1].rpartition(".")
    if not hasattr(importlib.import_module(owner), name) or inspect.ismodule(getattr(sys.modules[owner], name)):
        module = importlib.import_module(found[1])
        own = [name for name in module.__all__ if getattr(getattr(module, name), "__module__", "") == found[1]]
        return "\n\n".join(_object(f"{found[1]}.{name}", getattr(module, name)) for name in own)
    return _object(found[1], getattr(sys.modules[owner], name))


def _object(path: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"::: {path}"
    is_classifier = any(base.__name__ == "Classifier" for base in thing.__mro__[1:])
    homes = [thing] if is_classifier and thing.__name__ != "LocalNBNN" else thing.__mro__[:-1]
    homes = [home for home in homes if home.__module__.startswith("lnbnn")]
    kinds = (property, classmethod, staticmethod)
    members = [
        name
        for name, value in {name: value for home in homes for name, value in vars(home).items()}.items()
        if not name.startswith("_")
        and name not in FOR_DEVELOPERS
        and (inspect.isfunction(value) or isinstance(value, kinds))
        and not name.endswith("_")
    ]
    inherited = "true" if members else "false"
    return (
        f"::: {path}\n    options:\n      members: {json.dumps(members or False)}\n      inherited_members: {inherited}"
    )


def _to_copy(found: re.Match[str]) -> str:
    name = found[1]
    return f"]({name}.txt)" if name.endswith(".py") else f"]({name})"


def commands() -> str:
    """Every command: what it does, its arguments and options with their defaults, as ``--help`` says them."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="lnbnn")
    text = [_table("Options of every command", group.params, context)]
    for name, command in group.commands.items():
        own = typer.Context(command, info_name=name, parent=context)
        usage = " ".join(["lnbnn", name, *command.collect_usage_pieces(own)])
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        options = [one for one in command.params if one.param_type_name == "option"]
        text += [f"## lnbnn {name} {{ #{name} }}", f"```\n{usage}\n```", _help(command.help)]
        text += [_table("Argument", arguments, own), _table("Option", options, own)]
    return "\n\n".join(part for part in text if part)


def _help(text: str | None) -> str:
    """Help is Markdown for a terminal; paragraphs that are commands are shown as such."""
    paragraphs = [part.strip("\n") for part in (text or "").replace("\b", "").replace("\f", "").split("\n\n")]
    return "\n\n".join(f"    {part}" if part.startswith("lnbnn ") and "\n" not in part else part for part in paragraphs)


def _table(title: str, params: list[Any], context: Any) -> str:
    rows = []
    for param in params:
        if getattr(param, "hidden", False):
            continue
        if param.param_type_name == "argument":
            names = f"`{param.make_metavar(context).strip('[]')}`"
        else:
            value = "" if param.is_flag else f" {param.make_metavar(context)}"
            names = (
                ", ".join(f"`{name}`{{.whole}}" for name in (*param.opts, *param.secondary_opts)) + f"{_cell(value)}"
            )
        default = param.get_default(context, call=False)
        is_said = default not in (None, False, (), []) and not callable(default)
        shown = (
            ", ".join(map(str, default)) if isinstance(default, list | tuple) else getattr(default, "value", default)
        )
        rows.append(f"| {names} | {_cell(param.help or '')} | {f'`{shown}`' if is_said else ''} |")
    return "\n".join([f"| {title} | Meaning | Default |", "|---|---|---|", *rows]) if rows else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")


def examples() -> str:
    """Every example: what it shows, and its code."""
    text = []
    for path in sorted((HERE / "examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        summary, _, code = source.partition('"""\n')[2:] and source.removeprefix('"""').partition('"""\n')
        text.append(f"## {path.stem.replace('_', ' ')}\n\n{summary.strip()}\n\n```python\n{code.strip()}\n```")
    return "\n\n".join(text)

"""Write the tables of results in README and docs from the records in results/: `python benchmarks/write_tables.py`."""

from __future__ import annotations

import re

import tables_quality
import tables_speed
from tables_common import HERE, source_of

from lnbnn.lab import get_experiment
from lnbnn.lab.records import read_record

BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
PAGES = (
    "README.md",
    "docs/command-line.md",
    "docs/descriptors.md",
    "docs/methods.md",
    "docs/model-format.md",
    "docs/performance.md",
    "docs/probabilities.md",
    "docs/reproduction.md",
    "docs/spatial-pyramid.md",
    "docs/unequal-classes.md",
)


def main() -> None:
    """Replace the blocks between the marks in every page that has them."""
    for page in PAGES:
        path = HERE / page
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")


def fill(page: str) -> str:
    """The text of a page with its blocks drawn from the records; a block whose record is not there yet is empty."""
    return BLOCK.sub(lambda found: found[1] + render(found[2]) + found[3], page)


def render(name: str) -> str:
    """The text of a block: one of BLOCKS, or the table and the picture of the experiment of that name."""
    if name in BLOCKS:
        return BLOCKS[name]()
    path = HERE / "results" / f"{name}.json"
    if not path.exists():
        return ""
    experiment = get_experiment(name)
    picture = f"\n![{experiment.title}](../results/{name}.png)\n" if experiment.draw else ""
    return f"{experiment.tabulate(read_record(path).results)}\n{source_of(name)}\n{picture}"


def render_methods() -> str:
    """The methods side by side, as in docs/reproduction.md."""
    path = HERE / "results" / "table2.json"
    return get_experiment("table2").tabulate(read_record(path).results) if path.exists() else ""


BLOCKS = {"methods": render_methods, **tables_speed.BLOCKS, **tables_quality.BLOCKS}


if __name__ == "__main__":
    main()

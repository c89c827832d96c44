"""Write the tables of results in README and docs from the records in results/: `python benchmarks/write_tables.py`."""

import importlib
import re
import tomllib
from dataclasses import replace

import prose
from common import HERE

from lnbnn.lab import EXPERIMENTS, Experiment, get_experiment, get_experiments, table2
from lnbnn.lab.records import RunRecord, read_record

BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (HERE / "docs").glob("*.md")))
OF_MANY = {
    "auto": "auto",
    "presets": "caltech101",
    "deep": "deep",
    "differences": "differences",
    "paper-figures": "paper_figures",
    "sift": "sift",
    "sift-choice": "sift_choice",
    "scale": "scale",
}  # blocks made from several records, by a function ``render``

TABLE2 = ("table2", "table2-caltech256")  # by data set; made from one record per group of rows and column

STALE = tomllib.loads((HERE / "results" / "stale.toml").read_text(encoding="utf-8"))


def main() -> None:
    """Replace the blocks between the marks in every page that has them."""
    for page in PAGES:
        path = HERE / page
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")


def fill(page: str) -> str:
    """The text of a page with its blocks and figures drawn from the records; without its record a block is empty."""
    return prose.fill(BLOCK.sub(lambda found: found[1] + render(found[2]) + found[3], page), read)


def render(name: str) -> str:
    """The text of a block: the table of the experiment or benchmark of that name, its record, its picture.

    A table that is drawn from stale records says so.
    """
    if name in OF_MANY:
        used: list[str] = []
        text: str = importlib.import_module(OF_MANY[name]).render(lambda name: (used.append(name), read(name))[1])
        return text + stale_note(used)
    if name == "methods":  # the same table elsewhere
        return _table2("table2")[0] + stale_note(["table2"])
    if name.startswith("table2"):
        return "\n".join(_table2(name)) + stale_note([name])
    record = read(name)
    if record is None:
        return ""
    experiment = experiment_of(name)
    text = experiment.tabulate(record.results)
    seeds = ", ".join(map(str, record.seeds))
    text += experiment.source.format(f"`{record.command}`, splits {seeds}: [record](../results/{name}.json)")
    text += part_note(record)
    if experiment.name in EXPERIMENTS and experiment.draw:
        text += f"\n![{experiment.title}](../results/{name}.png)\n"
    return text + stale_note([name])


def _table2(name: str) -> tuple[str, ...]:
    """The table of a data set, and where it is from; empty if none of its records is there."""
    record = read(name)
    if record is None:
        return ("",)
    found = ", ".join(f"[{one}](../results/{one}.json)" for one in records_of(name))
    return table2.tabulate(record.results), f"`{record.command}`: {found}\n{part_note(record)}"


def part_note(record: RunRecord) -> str:
    """A line on the images, if they are a part of the published set."""
    data = record.settings.get("data", {})
    if data.get("n_images", 0) >= data.get("n_images_published", 0):
        return ""
    least, most = data["images_per_class"]
    return (
        f"\nOn a part of the set: {data['n_images']:,} of {data['n_images_published']:,} images, {least} to {most} per "
        f"class.\n"
    )


def stale_note(names: list[str]) -> str:
    """A line on those of the records that are stale, or nothing."""
    said: dict[str, list[str]] = {}
    stale = STALE["stale"] | STALE["code"]
    for name in dict.fromkeys(one for several in names for one in records_of(several)):
        if name in stale:
            said.setdefault(stale[name], []).append(f"`{name}`")
    return "".join(f"\nStale: {', '.join(records)}, {what}.\n" for what, records in said.items())


def records_of(name: str) -> list[str]:
    """The records that a name stands for: those of all rows and columns of table 2, or the one."""
    if name not in TABLE2:
        return [name]
    dataset = name.removeprefix("table2")
    every = [f"{rows.name}-{n_train}{dataset}" for rows in get_experiments("table2") for n_train in (15, 30)] + [name]
    return [one for one in every if (HERE / "results" / f"{one}.json").exists()]


def read(name: str) -> RunRecord | None:
    """A record, or None where it is not there yet; those of table 2 as one."""
    if name in TABLE2:
        found = [read_record(HERE / "results" / f"{one}.json") for one in records_of(name)]
        if not found:
            return None
        dataset = name.replace("table2-", "table2 --dataset ")
        return replace(
            found[0],
            name=name,
            command=f"lnbnn reproduce {dataset}",
            results=table2.merged(one.results for one in found),
        )
    path = HERE / "results" / f"{name}.json"
    return read_record(path) if path.exists() else None


def experiment_of(name: str) -> Experiment:
    """The experiment of the paper, or the benchmark, whose record has this name: ``deep-fused-15`` is of ``deep``."""
    if name in TABLE2:  # a record of before its rows had records of their own
        return get_experiments("table2")[0]
    while name not in EXPERIMENTS and not (HERE / "benchmarks" / f"{name.replace('-', '_')}.py").exists():
        name = name.rpartition("-")[0]
    if name in EXPERIMENTS:
        return get_experiment(name)
    found: Experiment = importlib.import_module(name.replace("-", "_")).EXPERIMENT
    return found


if __name__ == "__main__":
    main()

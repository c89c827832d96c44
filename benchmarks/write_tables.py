"""Write the tables of results in README and docs from the records in results/: `python benchmarks/write_tables.py`."""

import importlib
import re
import tomllib

import prose
from common import HERE

from lnbnn.lab import EXPERIMENTS, Experiment, get_experiment
from lnbnn.lab.records import RunRecord, read_record

BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (HERE / "docs").glob("*.md")))
OF_MANY = {
    "auto": "auto",
    "presets": "caltech101",
    "deep": "deep",
    "differences": "differences",
    "sift": "sift",
    "sift-choice": "sift_choice",
    "scale": "scale",
}  # blocks made from several records, by a function ``render``

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
        return render("table2").partition("\n\n")[0] + "\n" + stale_note(["table2"])
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
    for name in dict.fromkeys(names):
        if name in stale:
            said.setdefault(stale[name], []).append(f"`{name}`")
    return "".join(f"\nStale: {', '.join(records)}, {what}.\n" for what, records in said.items())


def read(name: str) -> RunRecord | None:
    """A record, or None where it is not there yet."""
    path = HERE / "results" / f"{name}.json"
    return read_record(path) if path.exists() else None


def experiment_of(name: str) -> Experiment:
    """The experiment of the paper, or the benchmark, whose record has this name: ``deep-fused-15`` is of ``deep``."""
    while name not in EXPERIMENTS and not (HERE / "benchmarks" / f"{name.replace('-', '_')}.py").exists():
        name = name.rpartition("-")[0]
    if name in EXPERIMENTS:
        return get_experiment(name)
    found: Experiment = importlib.import_module(name.replace("-", "_")).EXPERIMENT
    return found


if __name__ == "__main__":
    main()

"""Write the tables of results in README and docs from the records in results/: `python benchmarks/write_tables.py`."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

from lnbnn.experiments import get_experiment
from lnbnn.records import RunRecord, read_record

HERE = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
PRESETS = ("balanced", "paper", "fast")
PAPER = "66.1 ± 1.1"
PAGES = ("README.md", "docs/reproduction.md")


def main() -> None:
    """Replace the blocks between the marks in every page that has them."""
    for page in PAGES:
        path = HERE / page
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")


def fill(page: str) -> str:
    """The text of a page with its blocks drawn from the records; a block whose record is not there yet is empty."""
    return BLOCK.sub(lambda found: found[1] + render(found[2]) + found[3], page)


def render(name: str) -> str:
    """The text of a block: one of BLOCKS, or the table of the experiment of that name."""
    if name in BLOCKS:
        return BLOCKS[name]()
    path = HERE / "results" / f"{name}.json"
    if not path.exists():
        return ""
    record = read_record(path)
    seeds = ", ".join(map(str, record.seeds))
    source = f"`{record.command}`, splits {seeds}: [record](../results/{name}.json)"
    return f"{get_experiment(name).tabulate(record.results)}\n{source}\n"


def render_methods() -> str:
    """The methods side by side, as in docs/reproduction.md."""
    path = HERE / "results" / "table2.json"
    return get_experiment("table2").tabulate(read_record(path).results) if path.exists() else ""


def render_presets() -> str:
    """One row a preset, then the sentence on dense SIFT."""
    lines = [
        "| preset | accuracy, % | reference descriptors | fit | evaluate, 1,515 images | peak memory "
        "| one image, whole command | each further image |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for preset in PRESETS:
        path = HERE / "results" / f"caltech101-{preset}-15.json"
        if path.exists():
            lines.append(preset_row(preset, read_record(path)))
    lines.append(f"| the paper's Local NBNN | {PAPER} | | | | | | |")
    machine = read_record(HERE / "results" / "caltech101-balanced-15.json").machine
    sift = read_record(HERE / "results" / "dense-sift.json").results
    lines += [
        "",
        f"Measured on {machine['cores']} cores ({machine['cpu']}) with lighter work beside it; "
        "± is one standard deviation over the splits.",
        f"Dense SIFT at the paper's settings takes {sift['ours_ms_median']:.1f} ms an image on one core, "
        f"{sift['ratio_median']:.0f} times as fast as OpenCV's SIFT on the same grid "
        f"({sift['opencv_ms_median']:.0f} ms).",
        "",
    ]
    return "\n".join(lines)


def preset_row(preset: str, record: RunRecord) -> str:
    """One row of the table; times and memory are medians over the splits."""
    splits = record.results["splits"]

    def median(field: str) -> Any:
        return statistics.median(split[field] for split in splits)

    spread = "" if record.results["accuracy_sd"] is None else f" ± {record.results['accuracy_sd']:.1f}"
    peak = max(max(split["fit_peak_mib"], split["evaluate_peak_mib"]) for split in splits)
    cells = [
        f"`{preset}`",
        f"{record.results['accuracy_mean']:.1f}{spread} ({len(splits)} split{'s' if len(splits) > 1 else ''})",
        f"{median('n_descriptors') / 1e6:.1f} million",
        f"{median('fit_s'):.0f} s",
        f"{median('evaluate_s'):.0f} s",
        f"{peak / 1024:.1f} GiB",
        f"{median('predict_first_answer_s'):.1f} s",
        f"{median('predict_ms_an_image'):.0f} ms",
    ]
    return f"| {' | '.join(cells)} |"


BLOCKS = {"presets": render_presets, "methods": render_methods}


if __name__ == "__main__":
    main()

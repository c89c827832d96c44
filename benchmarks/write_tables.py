"""Write the README's tables of results from the records in results/: `python benchmarks/write_tables.py`."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

from lnbnn.records import RunRecord, read_record

HERE = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
PRESETS = ("balanced", "paper", "fast")
PAPER = "66.1 ± 1.1"
METHODS = (  # method, record, the paper's figure with 15 images
    ("nbnn", "nbnn-family", "63.2 ± 0.9"),
    ("nbnn-log-odds positive", "nbnn-family", ""),
    ("nbnn-kernel", "nbnn-family", "61.3 ± 0.2 (Tuytelaars et al.)"),
    ("local-nbnn", "", "66.1 ± 1.1"),
    ("local-nbnn-kernel", "local-nbnn-kernel", "suggested, not tested"),
    ("spm-hard", "spm-hard", "62.5 ± 0.9"),
    ("spm-soft", "spm-soft", "68.6 ± 0.7"),
)


def main() -> None:
    """Replace the blocks between the marks in the README."""
    path = HERE / "README.md"
    path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")


def fill(readme: str) -> str:
    """The README's text with its blocks drawn from the records."""
    return BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[3], readme)


def render_methods() -> str:
    """One row a method: ours beside the paper's."""
    lines = ["| method | ours, % | the paper's, % | fit | evaluate |", "|---|---|---|---|---|"]
    for method, name, paper in METHODS:
        if method == "local-nbnn":
            results = read_record(HERE / "results" / "caltech101-balanced-15.json").results["splits"][0]
            accuracy = 100 * results["mean_per_class_accuracy"]
        elif (path := HERE / "results" / f"method-{name}-15.json").exists():
            results = read_record(path).results
            accuracy = results["accuracy"][method]
        else:
            continue
        times = f"{results['fit_s']:.0f} s | {results['evaluate_s']:.0f} s"
        lines.append(f"| `{method}` | {accuracy:.1f} | {paper} | {times} |")
    return "\n".join([*lines, ""])


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

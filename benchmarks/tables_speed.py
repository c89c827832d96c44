"""Tables of time and memory, each from its record."""

from __future__ import annotations

import statistics
from typing import Any

from tables_common import HERE, results_of, source_of

from lnbnn.lab.records import RunRecord, read_record

PRESETS = ("balanced", "paper", "fast")
PAPER = "66.1 ± 1.1"


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
        f"Measured on {machine['cores']} cores ({machine['cpu']}); ± is one standard deviation over the splits.",
        f"Dense SIFT at the paper's settings takes {sift['ours_ms_median']:.1f} ms an image on one core, "
        f"{sift['ratio_median']:.0f} times as fast as OpenCV's SIFT on the same grid "
        f"({sift['opencv_ms_median']:.0f} ms) and {sift['kornia_ratio_median']:.0f} times as fast as kornia's "
        f"({sift['kornia_ms_median']:.0f} ms).",
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


def render_frontier() -> str:
    """One row a point, the presets named, most accurate first."""
    results = results_of("frontier")
    if results is None:
        return ""
    names = {place: name for name, place in results["presets"].items()}
    rows = sorted(enumerate(results["points"]), key=lambda pair: -pair[1]["accuracy"])
    lines = [
        "| grid of preset | lists, candidates | query descriptors | confidence "
        "| held-out accuracy, % | CPU ms: extract | CPU ms: classify | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for place, point in rows:
        preset = f"preset `{names[place]}`" if place in names else ""
        queries = f"{point['query_budget']:,}" if point["query_budget"] else "all"
        lines.append(
            f"| {point['grid']} | {point['n_probes']}, {point['rerank_factor']} | {queries} "
            f"| {point['stop_confidence'] or 'all asked for'} | {point['accuracy']:.1f} | {point['extract_ms']:.1f} "
            f"| {point['classify_ms']:.1f} | {preset} |"
        )
    return "\n".join([*lines, ""])


def render_search() -> str:
    """One row a way to search."""
    results = results_of("search")
    if results is None:
        return ""
    lines = [
        "| search, one thread | CPU us a query descriptor | times ours | build, CPU s "
        "| accuracy, % (ours on the same images) |",
        "|---|---|---|---|---|",
    ]
    for row in results["ways"]:
        lines.append(
            f"| {row['way']} | {row['us_a_descriptor']:,.0f} | {row['times_ours']:,.1f} | {row['build_cpu_s']:,.1f} "
            f"| {row['accuracy']:.1f} ({row['accuracy_lnbnn_same_images']:.1f}; {row['n_images']} images) |"
        )
    stopping = results["stopping"]
    lines += [
        "",
        f"{results['n_classes']} classes of Caltech 101, {results['n_descriptors'] / 1e6:.2f} million descriptors, "
        f"{results['queries_an_image']} query descriptors an image. With the default budget, stopping when the lead is "
        f"sure, an image takes {stopping['ms_an_image']:.1f} ms CPU ({stopping['accuracy']:.1f} %).",
        "",
    ]
    return "\n".join(lines)


def render_growth() -> str:
    """One row a size, for both curves, and their fits."""
    results = results_of("growth")
    if results is None:
        return ""
    lines = []
    for name, words in (("by_descriptors", "descriptors"), ("by_classes", "classes")):
        curve = results[name]
        lines += [
            f"| {words} | " + " | ".join(f"{point['n_' + words]:,}" for point in curve["points"]) + " |",
            "|---" * (len(curve["points"]) + 1) + "|",
            "| CPU us a query descriptor | "
            + " | ".join(f"{p['us_a_descriptor']:.1f}" for p in curve["points"])
            + " |",
            "",
            f"{curve['times_for_16_fold']:.2f} times the time for 16 times the {words}: "
            f"{curve['us_for_each_doubling']:.1f} us for each doubling, within "
            f"{100 * curve['worst_departure_from_logarithm']:.0f} % of a logarithm, or the power {curve['power']:.2f}.",
            "",
        ]
    return "\n".join(lines)


def render_start_up() -> str:
    """Stages of an answer; opening, adding, memory."""
    results = results_of("start-up")
    if results is None:
        return ""
    stages = results["stages"]
    return "\n".join(
        [
            "| stage | CPU |",
            "|---|---|",
            f"| reading and decoding a file | {stages['read_and_decode_ms']:.1f} ms |",
            f"| extracting descriptors, default grid | {stages['extract_ms']:.1f} ms |",
            f"| searching, a query descriptor | {stages['whole_search_us']:.1f} us |",
            f"| ... of it the nearest lists | {stages['nearest_lists_us']:.1f} us |",
            f"| ... of it the codes | {stages['lists_and_codes_us'] - stages['nearest_lists_us']:.1f} us |",
            f"| ... of it comparing again | {stages['compare_again_us']:.1f} us |",
            f"| scoring, a query descriptor | {stages['score_us']:.1f} us |",
            f"| all query descriptors of an image, stopping when sure | {stages['answer_ms']:.1f} ms |",
            "",
            f"{results['n_descriptors'] / 1e6:.1f} million descriptors. Index and labels take "
            f"{results['index_bytes_over_raw']:.2f} times the raw 8-bit descriptors. Opening the model takes "
            f"{results['open_s_median']:.2f} s, the first answer of a new process "
            f"{results['first_answer_s_median']:.1f} s ({results['first_answer_cpu_s_median']:.1f} s CPU), "
            f"adding the descriptors of one image to the index {results['add_one_image_cpu_ms_median']:.0f} ms CPU.",
            "",
        ]
    )


def render_hot_spots() -> str:
    """The lines of the program that an answer spends its time in."""
    results = results_of("hot-spots")
    if results is None:
        return ""
    lines = ["| function | line | share of the time, % |", "|---|---|---|"]
    for row in results["lines"]:
        function = row["function"].removeprefix("lnbnn.").removesuffix(".<locals>.<listcomp>")
        lines.append(f"| `{function}` | `{row['line'].replace('|', chr(92) + '|')}` | {row['share']:.1f} |")
    rest = 100 - sum(row["share"] for row in results["lines"])
    return "\n".join([*lines, f"| the rest | | {rest:.1f} |", ""])


def render_large() -> str:
    """A model of the paper's size: its index against FLANN's, memory, opening, sharing."""
    results = results_of("large")
    if results is None:
        return ""
    fit, flann, opening, readers = (results[name] for name in ("fit", "flann", "opening", "readers"))
    return "\n".join(
        [
            "| index of | CPU s to build | wall s |",
            "|---|---|---|",
            f"| lnbnn, {fit['threads']} threads | {fit['index_cpu_s']:.0f} | {fit['index_s']:.0f} |",
            f"| FLANN, 4 trees, 1 thread | {flann['index_cpu_s']:.0f} | {flann['index_s']:.0f} |",
            "",
            f"Preset `paper`, {fit['n_descriptors'] / 1e6:.1f} million descriptors: index and labels take "
            f"{fit['bytes_over_raw']:.2f} times the raw 8-bit descriptors ({fit['final_gib']:.1f} GiB); the peak while "
            f"fitting is {fit['peak_gib']:.1f} GiB. The saved model ({fit['disk_gib']:.1f} GiB) opens in "
            f"{opening['wall_s']:.2f} s ({opening['cpu_s']:.2f} s CPU). {len(readers['private_mib'])} processes that "
            f"answer from it at once have {max(readers['private_mib']):,} MiB each of their own and share "
            f"{min(readers['shared_mib']):,} MiB.",
            source_of("large"),
            "",
        ]
    )


BLOCKS = {
    "presets": render_presets,
    "frontier": render_frontier,
    "search": render_search,
    "growth": render_growth,
    "large": render_large,
    "start-up": render_start_up,
    "hot-spots": render_hot_spots,
}

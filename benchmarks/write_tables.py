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
PAGES = (
    "README.md",
    "docs/command-line.md",
    "docs/descriptors.md",
    "docs/methods.md",
    "docs/model-format.md",
    "docs/performance.md",
    "docs/probabilities.md",
    "docs/reproduction.md",
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


def source_of(name: str) -> str:
    """The command of a record, its seeds, and where it is."""
    record = read_record(HERE / "results" / f"{name}.json")
    seeds = ", ".join(map(str, record.seeds))
    return f"`{record.command}`, splits {seeds}: [record](../results/{name}.json)"


def render_methods() -> str:
    """The methods side by side, as in docs/reproduction.md."""
    path = HERE / "results" / "table2.json"
    return get_experiment("table2").tabulate(read_record(path).results) if path.exists() else ""


def render_deep() -> str:
    """One row a method on the cells, or the pooled vector, of the same network."""
    columns: dict[int, dict[str, str]] = {}
    times, n_splits = [], set()
    for n_images in (15, 30):
        for part in ("", "fused-", "kernel-"):  # records of all methods, and of one
            results = results_of(f"deep-{part}{n_images}")
            if results is not None:
                means, spreads = results["accuracy_mean"], results["accuracy_sd"]
                cells = {method: f"{mean:.1f} ± {spreads[method]:.1f}" for method, mean in means.items()}
                columns[n_images] = columns.get(n_images, {}) | cells
                n_splits.add(len(results["splits"]))
                times += [deep_times(split) for split in results["splits"] if not part]
    if not times:
        return ""
    counts = " | ".join(f"{n} images" for n in columns)
    lines = [f"| on EfficientNet-Lite0 | {counts} |", "|---" * (1 + len(columns)) + "|"]
    for method in dict.fromkeys(name for column in columns.values() for name in column):
        lines.append(f"| {method} | {' | '.join(column.get(method, '') for column in columns.values())} |")
    whole, search = (statistics.median(time[part] for time in times) for part in ("all", "search"))
    sentence = (
        f"Caltech 101, mean per-class accuracy in %, {' or '.join(map(str, sorted(n_splits)))} splits, up to 15 test "
        f"images a class. With local-nbnn an image takes {whole:.0f} ms of CPU time, file and network included, "
        f"{search:.1f} ms of them to search."
    )
    return "\n".join([*lines, "", sentence, ""])


def deep_times(split: dict[str, Any]) -> dict[str, float]:
    """CPU ms an image of Local NBNN on the cells, in one split."""
    times: dict[str, float] = split.get("parts", {}).get("cells", split)["cpu_ms_an_image"]
    return times


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
        f"Measured on {machine['cores']} cores ({machine['cpu']}); "
        "± is one standard deviation over the splits.",
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


def results_of(name: str) -> dict[str, Any] | None:
    """The results of a record, or None where it is not there yet."""
    path = HERE / "results" / f"{name}.json"
    return read_record(path).results if path.exists() else None


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
        lines.append(
            f"| {point['grid']} | {point['n_probes']}, {point['rerank_factor']} | {point['query_budget']:,} "
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


def render_audit() -> str:
    """What the audit lists of labels that were swapped on purpose: a row a preset, share and threshold."""
    results = results_of("audit")
    if results is None:
        return ""
    lines = [
        "| preset | labels swapped | `--min-probability` | listed | of them swapped | swapped ones found | "
        "with the right label suggested |",
        "|---" * 7 + "|",
    ]
    for preset, found in results.items():
        for share, swapped in found["mean"]["swapped"].items():
            for level, at in swapped["at_probability"].items():
                cells = [f"{100 * at[name]:.0f} %" for name in ("precision", "recall", "right_label_suggested")]
                lines.append(
                    f"| `{preset}` | {100 * float(share):.0f} % | {level} | {at['listed']:.0f} | {' | '.join(cells)} |"
                )
    for preset, found in results.items():
        swapped = found["mean"]["swapped"]["0.05"]
        first = swapped["precision_of_first"]
        lines += [
            "",
            f"`{preset}`, 5 % swapped: {100 * swapped['label_found_again']:.0f} % of the images get their label back. "
            f"Of the first 25 listed {100 * first['25']:.0f} % were swapped, of 50 {100 * first['50']:.0f} %, "
            f"of 75 {100 * first['75']:.0f} %. The probabilities add up to {swapped['expected_wrong']:.0f} "
            f"wrong labels; there are {swapped['n_swapped']:.0f}.",
        ]
    return "\n".join([*lines, "", source_of("audit"), ""])


def render_unknown() -> str:
    """What --reject lets through: a row a preset and rate."""
    results = results_of("unknown")
    if results is None:
        return ""
    lines = [
        "| preset | `--reject` | unknown accepted | known accepted | known accepted and right |",
        "|---" * 5 + "|",
    ]
    for preset, found in results["presets"].items():
        for place, rate in enumerate(results["rates"]):
            if rate in (0.01, 0.05, 0.1, 0.2, 0.5):
                cells = [
                    f"{100 * found['mean'][name][place]:.1f} %"
                    for name in ("false_accepts", "known_accepted", "known_right")
                ]
                lines.append(f"| `{preset}` | {100 * rate:.0f} % | {' | '.join(cells)} |")
    return "\n".join(
        [*lines, "", "![The rate asked for and the share accepted](images/unknown.png)", "", source_of("unknown"), ""]
    )


def render_living() -> str:
    """What a change to a large model costs."""
    results = results_of("living")
    if results is None:
        return ""
    lines = ["| | command, CPU | command, wall | in Python, CPU | in Python, wall |", "|---" * 5 + "|"]
    for name in ("add", "relabel", "remove"):
        command, process = results["command"][name], results["process"][name]
        cells = [f"{command[unit]['median'] / 1000:.2f} s" for unit in ("cpu_ms", "wall_ms")]
        cells += [f"{process[unit]['median']:.0f} ms" for unit in ("cpu_ms", "wall_ms")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Medians; a model of {results['n_images']:,} images with {results['n_descriptors'] / 1e6:.1f} million "
        f"descriptors; the load of the machine was {results['load_average']:.1f}, on 2 cores.",
        source_of("living"),
        "",
    ]
    return "\n".join(lines)


def render_soak() -> str:
    """What the long form of the tests did, in a sentence."""
    results = results_of("soak")
    if results is None or "approximate" not in results:
        return ""
    kills, commands, models = results["kills"], results["commands"], results["models"]
    damaged, forged = (sum(models[kind].values()) for kind in ("model", "forged"))
    lost = ", ".join(f"{share:.3f} ({form})" for form, share in results["approximate"]["most_recall_lost"].items())
    return (
        f"{kills['kills']} writers killed with `kill -9` in the course of {kills['steps_done']} changes, and "
        f"{commands['commands_killed']} commands, each time with every checksum and the answers of the model compared "
        f"afterwards; {kills['full_disks']} writers run into a full disk; {damaged:,} files of models damaged "
        f"({models['model']['refused']:,} refused, the others read the same), and {forged:,} more with all checksums "
        f"made right again ({models['forged']['refused']:,} refused, the others answer without harm); "
        f"{sum(results['images']['images'].values()):,} damaged pictures; {results['steps']['steps']:,} random changes "
        f"in {results['steps']['sequences']:,} sequences with the answers of a fresh fit; "
        f"{results['approximate']['sequences']:,} sequences on approximate indexes, which lost at most this share of "
        f"the true neighbours against a fresh fit: {lost}. Nothing was lost, nothing crashed, nothing hung.\n\n"
        f"{source_of('soak')}\n"
    )


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


def render_ablations() -> str:
    """Held-out accuracy of each knob, and its difference to the paper's k with the default features."""
    results = results_of("ablations")
    if results is None:
        return ""
    means = {name: statistics.mean(values) for name, values in results["accuracy"].items()}
    usual = next(iter(means.values()))
    lines = ["| setting | accuracy, % | against the first row |", "|---|---|---|"]
    lines += [f"| {name} | {value:.1f} | {value - usual:+.1f} |" for name, value in means.items()]
    n_splits = len(next(iter(results["accuracy"].values())))
    return "\n".join(
        [
            *lines,
            "",
            f"{results['n_images']:,} training images, each left out of the index in turn, {n_splits} "
            f"split{'s' if n_splits > 1 else ''}, 500 query descriptors an image: a difference below one point is "
            "within the noise.",
            source_of("ablations"),
            "",
        ]
    )


def render_responses() -> str:
    """The best cross-validated responses of each machine, and the input itself."""
    results = results_of("responses")
    if results is None:
        return ""
    lines = [
        "| input | machine | own score blended in | response | pooled over | cross-validated, % | test, % |",
        "|---" * 7 + "|",
    ]
    for name, found in results.items():
        plain = found["input"]
        lines.append(f"| `{name}` | none | | | | {plain['training images left out']:.1f} | {plain['test']:.1f} |")
        for machine in sorted({row["machine"] for row in found["machines"]}):
            for blend in ("none", "chosen"):
                rows = [row for row in found["machines"] if (row["machine"], row["blend"]) == (machine, blend)]
                best = max(rows, key=lambda row: row["cross-validated"])
                cells = [machine, "yes" if blend == "chosen" else "no", best["response"], best["pooling"]]
                cells += [f"{best['cross-validated']:.1f}", f"{best['test']:.1f}"]
                lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", source_of("responses"), ""])


BLOCKS = {
    "soak": render_soak,
    "large": render_large,
    "ablations": render_ablations,
    "responses": render_responses,
    "audit": render_audit,
    "unknown": render_unknown,
    "living": render_living,
    "presets": render_presets,
    "deep": render_deep,
    "methods": render_methods,
    "frontier": render_frontier,
    "search": render_search,
    "growth": render_growth,
    "start-up": render_start_up,
    "hot-spots": render_hot_spots,
}


if __name__ == "__main__":
    main()

"""Tables of what answers are worth, and of what models withstand, each from its record."""

from __future__ import annotations

import statistics
from typing import Any

from tables_common import results_of, source_of


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


def render_spatial_pyramid() -> str:
    """Cross-validated accuracy of each coding and pooling, then of the defaults on other grids."""
    results = results_of("spatial-pyramid")
    if results is None:
        return ""
    lines = ["| cross-validated accuracy, 12 training images a class, C = 10 | % |", "|---|---|"]
    first, *others = results.items()
    for row in first[1]:
        lines.append(f"| {_pyramid(row)} | {row['accuracy_by_C']['10.0']:.1f} |")
    for grid, rows in others:
        cells = ", ".join(f"{row['accuracy_by_C']['10.0']:.1f}" for row in rows)
        lines.append(f"| the two defaults, {grid} | {cells} |")
    return "\n".join([*lines, "", source_of("spatial-pyramid"), ""])


def _pyramid(row: dict[str, Any]) -> str:
    """The settings of a spatial pyramid in words."""
    is_soft = row["n_nearest_words"] > 1
    words = ["soft" if is_soft else "hard", row["pooling"], f"`{row['norm']}`"]
    words += [f"beta {row['beta']:g}"] if is_soft else []
    words += ["levels 1/4, 1/4, 1/2"] if row["level_weights"] else []
    text = ", ".join(words)
    defaults = {
        "hard, average, `none`, levels 1/4, 1/4, 1/2": " (the default of `spm-hard`)",
        "soft, max, `l2`, beta 20": " (the default of `spm-soft`)",
    }
    return text + defaults.get(text, "")


def render_probabilities() -> str:
    """How honest the probabilities are, before and after calibration, and what a fusion gains."""
    results = results_of("probabilities")
    if results is None:
        return ""
    names = {
        "local-nbnn, no temperature": "`local-nbnn`, totals between unit vectors as they are",
        "local-nbnn": "`local-nbnn`, calibrated",
        "spm-soft": "`spm-soft`, calibrated",
        "fusion": "fusion of the two",
    }
    lines = [
        "| method | accuracy, % | negative log-likelihood | expected calibration error |",
        "|---" * 4 + "|",
    ]
    for name, shown in names.items():
        row = results[name]
        likelihood, error = row["negative_log_likelihood"], row["expected_calibration_error"]
        lines.append(f"| {shown} | {row['accuracy']:.1f} | {likelihood:.2f} | {error:.3f} |")
    return "\n".join([*lines, "", source_of("probabilities"), ""])


_BY_SIZE = ("accuracy", "accuracy_small", "accuracy_large", "answers_large")


def render_unequal() -> str:
    """Accuracy on small and large classes of each method."""
    results = results_of("unequal")
    if results is None:
        return ""
    lines = ["| method | all | small classes | large classes | answers to large |", "|---" * 5 + "|"]
    for name, row in results.items():
        if name != "runs":
            lines.append(f"| `{name}` | {' | '.join(f'{row[measure]:.1f}' for measure in _BY_SIZE)} |")
    return "\n".join([*lines, "", f"Mean of {len(results['runs'])} runs. {source_of('unequal')}", ""])


def render_unequal_choice() -> str:
    """What each way to learn the correction gave, at the regularization that was chosen."""
    results = results_of("unequal-choice")
    if results is None:
        return ""
    lines = [
        "| left out in learning | `balance` | all | small classes | large classes | answers to large |",
        "|---" * 6 + "|",
    ]
    names = {None: "no correction (`nbnn`)", "own": "the image", "one of each class": "one of each class"}
    for row in results["settings"]:
        if row["regularization"] in (None, results["chosen"]["regularization"]):
            balance = "" if row["balance"] is None else f"{row['balance']:g}"
            cells = " | ".join(f"{row[measure]:.1f}" for measure in _BY_SIZE)
            lines.append(f"| {names[row['left_out']]} | {balance} | {cells} |")
    return "\n".join([*lines, "", source_of("unequal-choice"), ""])


BLOCKS = {
    "deep": render_deep,
    "audit": render_audit,
    "unknown": render_unknown,
    "living": render_living,
    "soak": render_soak,
    "ablations": render_ablations,
    "responses": render_responses,
    "spatial-pyramid": render_spatial_pyramid,
    "probabilities": render_probabilities,
    "unequal": render_unequal,
    "unequal-choice": render_unequal_choice,
}

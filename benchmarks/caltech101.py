"""Caltech 101 through the command line, as a user would run it: split, fit, evaluate, predict.

Writes results/caltech101-<preset>-<images>.json.
"""

import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import benchmark, parts_over, python, table, values_of

from lnbnn.data.folder import write_list
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings

SETTINGS: Settings = {"preset": "balanced", "n_train": 15, "n_test": 15, "n_predict": 41, "seeds": [0, 1, 2]}
QUICK: Settings = {"n_train": 3, "n_test": 2, "n_predict": 3, "seeds": [0], "preset": "fast"}
HEADER = "preset | accuracy, % | reference descriptors | fit | evaluate, 1,515 images | peak memory | "
HEADER += "one image, whole command | each further image"
PAPER = "66.1 ± 1.1"


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Split, fit, evaluate and predict with one seed; accuracy, seconds and peak memory of each command."""
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model"
        train, test = lab.split_of(settings)
        write_list(Path(folder) / "train.csv", train)
        write_list(Path(folder) / "test.csv", test)
        fit = python("-m", "lnbnn", "fit", f"{folder}/train.csv", model, "--preset", settings["preset"])
        evaluated = python("-m", "lnbnn", "evaluate", model, f"{folder}/test.csv", "--format", "json")
        info = json.loads(python("-m", "lnbnn", "info", model, "--format", "json").text)
        queries = test.paths[:: len(test) // settings["n_predict"]][: settings["n_predict"]]
        predict = ("-m", "lnbnn", "predict", "--format", "json", model)
        one, many = python(*predict, queries[0]), python(*predict, *queries)
        alone = python(*predict, *queries, "--jobs", 1)
    outcome = json.loads(evaluated.text)
    return {
        "seed": settings["seed"],
        "preset": settings["preset"],
        **{name: outcome[name] for name in ("mean_per_class_accuracy", "per_class", "n_images")},
        **{name: info[name] for name in ("n_descriptors", "index", "settings", "bytes_on_disk")},
        "fit_s": round(fit.wall_s, 2),
        "fit_peak_mib": fit.peak_mib,
        "evaluate_s": round(evaluated.wall_s, 2),
        "evaluate_peak_mib": evaluated.peak_mib,
        "predict_first_answer_s": round(one.wall_s, 2),
        "predict_ms_an_image": round(1000 * (many.wall_s - one.wall_s) / (len(queries) - 1), 1),
        "predict_ms_an_image_one_thread": round(1000 * (alone.wall_s - one.wall_s) / (len(queries) - 1), 1),
        "same_bytes_with_1_thread": many.text == alone.text,
    }


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    splits = [values_of(found) for _, found in outcomes]
    accuracies = [100 * split["mean_per_class_accuracy"] for split in splits]
    return {
        "accuracy_mean": round(statistics.mean(accuracies), 2),
        "accuracy_sd": round(statistics.stdev(accuracies), 2) if len(accuracies) > 1 else None,
        "splits": splits,
    }


def tabulate(results: Results) -> str:
    return table(HEADER, [_row(results["splits"][0]["preset"], results)])


def render(read: Callable[[str], Any]) -> str:
    """The table of presets: one row per preset, then the sentence on dense SIFT."""
    records = {name: read(f"caltech101-{name}-15") for name in ("balanced", "paper", "fast")}
    rows = [_row(name, record.results) for name, record in records.items() if record is not None]
    machine, sift = records["balanced"].machine, read("dense-sift").results
    return table(HEADER, [*rows, ["the paper's Local NBNN", PAPER + " |" * 6]]) + (
        f"\nMeasured on {machine['cores']} cores ({machine['cpu']}); ± is one standard deviation over the splits.\n"
        f"Dense SIFT at the paper's settings takes {sift['ours_ms_median']:.1f} ms per image on one core, "
        f"{sift['opencv_ms_median'] / sift['ours_ms_median']:.0f} times as fast as OpenCV's SIFT on the same grid "
        f"({sift['opencv_ms_median']:.0f} ms) and {sift['kornia_ms_median'] / sift['ours_ms_median']:.0f} times as "
        f"fast as kornia's "
        f"({sift['kornia_ms_median']:.0f} ms).\n"
    )


def _row(name: str, results: Results) -> list[str]:
    splits = results["splits"]

    def median(field: str) -> Any:
        return statistics.median(split[field] for split in splits)

    spread = "" if results["accuracy_sd"] is None else f" ± {results['accuracy_sd']:.1f}"
    peak = max(max(split["fit_peak_mib"], split["evaluate_peak_mib"]) for split in splits)
    return [
        f"`{name}`",
        f"{results['accuracy_mean']:.1f}{spread} ({len(splits)} split{'s' if len(splits) > 1 else ''})",
        f"{median('n_descriptors') / 1e6:.1f} million",
        f"{median('fit_s'):.0f} s",
        f"{median('evaluate_s'):.0f} s",
        f"{peak / 1024:.1f} GiB",
        f"{median('predict_first_answer_s'):.1f} s",
        f"{median('predict_ms_an_image'):.0f} ms",
    ]


EXPERIMENT = benchmark(
    globals(),
    plan=parts_over("command-line", compute, timed=True, seeds="seed"),
    label="caltech101-{preset}-{n_train}".format_map,
)

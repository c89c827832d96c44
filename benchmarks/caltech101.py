"""Caltech 101 through the command line, as a user would run it: split, fit, evaluate, predict.

Writes results/caltech101-<preset>-<images>.json.

    python benchmarks/caltech101.py --preset balanced --seeds 0 1 2
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import preset, run, table, values_of

from lnbnn.data.folder import write_list
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings
from lnbnn.lab.records import RunRecord

SETTINGS: Settings = {"preset": "balanced", "n_train": 15, "n_test": 15, "n_predict": 41, "seeds": [0, 1, 2]}
QUICK: Settings = {"n_train": 3, "n_test": 2, "n_predict": 3, "seeds": [0], "preset": "fast"}
PRESETS = ("balanced", "paper", "fast")
PAPER = "66.1 ± 1.1"


def plan(settings: Settings) -> list[Part]:
    """One part per split."""
    own = {key: settings[key] for key in ("preset", "n_train", "n_test", "n_predict")}
    own["params"] = preset(settings["preset"])
    return [Part("command-line", own | {"seed": seed}, compute, timed=True) for seed in settings["seeds"]]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Split, fit, evaluate and predict with one seed; accuracy, seconds and peak memory of each command."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        train, test = lab.split_of(settings)
        write_list(place / "train.csv", train)
        write_list(place / "test.csv", test)
        fit = lnbnn("fit", place / "train.csv", place / "model", "--preset", settings["preset"])
        evaluate = lnbnn("evaluate", place / "model", place / "test.csv", "--format", "json")
        info = json.loads(lnbnn("info", place / "model", "--format", "json")["stdout"])
        queries = test.paths[:: len(test) // settings["n_predict"]][: settings["n_predict"]]
        one = lnbnn("predict", place / "model", queries[0], "--format", "json")
        many = lnbnn("predict", place / "model", *queries, "--format", "json")
        alone = lnbnn("predict", place / "model", *queries, "--format", "json", "--jobs", 1)
    outcome = json.loads(evaluate["stdout"])
    return {
        "seed": settings["seed"],
        "preset": settings["preset"],
        **{name: outcome[name] for name in ("mean_per_class_accuracy", "per_class", "n_images")},
        **{name: info[name] for name in ("n_descriptors", "index", "settings", "bytes_on_disk")},
        "fit_s": fit["seconds"],
        "fit_peak_mib": fit["peak_mib"],
        "evaluate_s": evaluate["seconds"],
        "evaluate_peak_mib": evaluate["peak_mib"],
        "predict_first_answer_s": one["seconds"],
        "predict_ms_an_image": round(1000 * (many["seconds"] - one["seconds"]) / (len(queries) - 1), 1),
        "predict_ms_an_image_one_thread": round(1000 * (alone["seconds"] - one["seconds"]) / (len(queries) - 1), 1),
        "same_bytes_with_1_thread": many["stdout"] == alone["stdout"],
    }


def lnbnn(*words: object) -> dict[str, Any]:
    """Run one command; its output, wall-clock seconds and peak resident memory."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([sys.executable, "-m", "lnbnn", *map(str, words)], stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"lnbnn {words[0]} ended with {process.returncode}")
        output.seek(0)
        text = output.read()
    seconds = round(time.perf_counter() - start, 2)
    return {"stdout": text, "seconds": seconds, "peak_mib": round(usage.ru_maxrss / 1024)}


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """Each split, and the mean of their accuracies."""
    splits = [values_of(found) for _, found in outcomes]
    accuracies = [100 * split["mean_per_class_accuracy"] for split in splits]
    return {
        "accuracy_mean": round(statistics.mean(accuracies), 2),
        "accuracy_sd": round(statistics.stdev(accuracies), 2) if len(accuracies) > 1 else None,
        "splits": splits,
    }


def tabulate(results: dict[str, Any]) -> str:
    """One row; times and memory are medians over the splits."""
    return _table([_row(results["splits"][0]["preset"], results)])


def render(read: Callable[[str], RunRecord | None]) -> str:
    """The table of the README: one row per preset, then the sentence on dense SIFT."""
    records = {name: record for name in PRESETS if (record := read(f"caltech101-{name}-15")) is not None}
    rows = [_row(name, record.results) for name, record in records.items()]
    balanced, dense_sift = read("caltech101-balanced-15"), read("dense-sift")
    assert balanced is not None and dense_sift is not None
    machine, sift = balanced.machine, dense_sift.results
    return _table([*rows, ["the paper's Local NBNN", PAPER + " |" * 6]]) + (
        f"\nMeasured on {machine['cores']} cores ({machine['cpu']}); ± is one standard deviation over the splits.\n"
        f"Dense SIFT at the paper's settings takes {sift['ours_ms_median']:.1f} ms an image on one core, "
        f"{sift['ratio_median']:.0f} times as fast as OpenCV's SIFT on the same grid "
        f"({sift['opencv_ms_median']:.0f} ms) and {sift['kornia_ratio_median']:.0f} times as fast as kornia's "
        f"({sift['kornia_ms_median']:.0f} ms).\n"
    )


def _table(rows: list[list[str]]) -> str:
    header = "preset | accuracy, % | reference descriptors | fit | evaluate, 1,515 images | peak memory | "
    return table(header + "one image, whole command | each further image", rows)


def _row(name: str, results: dict[str, Any]) -> list[str]:
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


EXPERIMENT = Experiment(
    "caltech101",
    "Caltech 101 through the command line",
    SETTINGS,
    plan,
    summarize,
    tabulate,
    QUICK,
    label=lambda settings: f"caltech101-{settings['preset']}-{settings['n_train']}",
)

if __name__ == "__main__":
    run(EXPERIMENT)

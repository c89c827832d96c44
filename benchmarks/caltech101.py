"""Caltech 101 through the command line, as a user would run it: split, fit, evaluate, predict.

Writes results/caltech101-<preset>-<images>.json. Each finished split is kept in runs/ at once, so that a run that was
stopped goes on where it was.

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
from pathlib import Path
from typing import Any

from common import HERE, options_parser

from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import LabelledImages, write_list
from lnbnn.data.splits import split_images
from lnbnn.lab.records import make_record, write_record
from lnbnn.params import PRESETS

N_PREDICT = 41


def main() -> None:
    """Run the splits asked for and write their record."""
    parser = options_parser(__doc__)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="balanced")
    parser.add_argument("--train", type=int, default=15)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    data = load_caltech101(options.data)
    start = time.perf_counter()
    splits = []
    for seed in options.seeds:
        kept = HERE / "runs" / "caltech101" / f"{options.preset}-{options.train}-seed{seed}.json"
        if not kept.exists():
            result = run_split(data, options.preset, options.train, seed)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(result), encoding="utf-8")
        splits.append(json.loads(kept.read_text(encoding="utf-8")))
        print(f"seed {seed}: {100 * splits[-1]['mean_per_class_accuracy']:.2f} %", file=sys.stderr, flush=True)
    accuracies = [100 * split["mean_per_class_accuracy"] for split in splits]
    results: dict[str, Any] = {
        "accuracy_mean": round(statistics.mean(accuracies), 2),
        "accuracy_sd": round(statistics.stdev(accuracies), 2) if len(accuracies) > 1 else None,
        "splits": splits,
    }
    command = (
        f"python benchmarks/caltech101.py --preset {options.preset} --train {options.train} "
        f"--seeds {' '.join(map(str, options.seeds))}"
    )
    settings = {"preset": options.preset, "n_train": options.train, "n_test": 15, "model": splits[0]["settings"]}
    record = make_record(
        f"caltech101-{options.preset}-{options.train}",
        command,
        settings=settings,
        seeds=options.seeds,
        results=results,
        seconds=time.perf_counter() - start,
    )
    path = HERE / "results" / f"{record.name}.json"
    write_record(path, record)
    print(f"{path.relative_to(HERE)}: {results['accuracy_mean']} % over {len(accuracies)} splits")


def run_split(data: LabelledImages, preset: str, n_train: int, seed: int) -> dict[str, Any]:
    """Split, fit, evaluate and predict with one seed; accuracy, seconds and peak memory of each command."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        train, test = split_images(data, n_train=n_train, n_test=15, seed=seed)
        write_list(place / "train.csv", train)
        write_list(place / "test.csv", test)
        fit = lnbnn("fit", place / "train.csv", place / "model", "--preset", preset)
        evaluate = lnbnn("evaluate", place / "model", place / "test.csv", "--format", "json")
        info = json.loads(lnbnn("info", place / "model", "--format", "json")["stdout"])
        queries = test.paths[:: len(test) // N_PREDICT][:N_PREDICT]
        one = lnbnn("predict", place / "model", queries[0], "--format", "json")
        many = lnbnn("predict", place / "model", *queries, "--format", "json")
        alone = lnbnn("predict", place / "model", *queries, "--format", "json", "--jobs", 1)
        outcome = json.loads(evaluate["stdout"])
        return {
            "seed": seed,
            "mean_per_class_accuracy": outcome["mean_per_class_accuracy"],
            "per_class": outcome["per_class"],
            "n_images": outcome["n_images"],
            "n_descriptors": info["n_descriptors"],
            "index": info["index"],
            "settings": info["settings"],
            "bytes_on_disk": info["bytes_on_disk"],
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


if __name__ == "__main__":
    main()

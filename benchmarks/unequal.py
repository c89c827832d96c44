"""Unequal classes on purpose: Caltech 101 with 5 training images in half of the classes and 25 in the rest.

Each seed chooses classes and images; each choice is run twice, so that every class is once small and once large.
Writes results/unequal.json. Each finished run is kept in runs/ at once, so that a run that was stopped goes on.

    python benchmarks/unequal.py --seeds 0 1
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.datasets.caltech101 import load_caltech101
from lnbnn.datasets.folder import LabelledImages
from lnbnn.datasets.splits import split_images
from lnbnn.evaluation import evaluate
from lnbnn.records import make_record, write_record
from lnbnn.registry import resolve
from lnbnn.store import FeatureStore

HERE = Path(__file__).resolve().parent.parent
N_CLASSES, N_SMALL, N_LARGE, N_TEST = 20, 5, 25, 15
MODEL = {
    "descriptor_params": {"bin_sizes": [8, 16], "step_px": 10},
    "index_params": {"n_probes": 4},
    "query_budget": 100,
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "nbnn": ("nbnn", {}),
    "nbnn-affine": ("nbnn-affine", {}),
    "local-nbnn": ("local-nbnn", {}),
    "local-nbnn, normalize_classes": ("local-nbnn", {"normalize_classes": True}),
}
MEASURES = ("accuracy", "accuracy_small", "accuracy_large", "answers_large")


def main() -> None:
    """Run the seeds asked for and write their record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="101_ObjectCategories; default: LNBNN_CALTECH101")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    data = load_caltech101(options.data)
    start = time.perf_counter()
    runs = []
    for seed in options.seeds:
        for swapped in (False, True):
            kept = HERE / "runs" / "unequal" / f"seed{seed}{'-swapped' if swapped else ''}.json"
            if not kept.exists():
                result = run(data, seed, swapped)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(result), encoding="utf-8")
            runs.append(json.loads(kept.read_text(encoding="utf-8")))
    results: dict[str, Any] = {
        method: {measure: round(mean(run[method][measure] for run in runs), 2) for measure in MEASURES}
        for method in METHODS
    }
    command = f"python benchmarks/unequal.py --seeds {' '.join(map(str, options.seeds))}"
    sizes = {"n_classes": N_CLASSES, "n_train_small": N_SMALL, "n_train_large": N_LARGE, "n_test": N_TEST}
    record = make_record(
        "unequal",
        command,
        settings={**sizes, "model": MODEL},
        seeds=options.seeds,
        results={**results, "runs": runs},
        seconds=sum(run["seconds"] for run in runs) or time.perf_counter() - start,
    )
    write_record(HERE / "results" / "unequal.json", record)
    for method in METHODS:
        print(method, results[method])


def run(data: LabelledImages, seed: int, swapped: bool) -> dict[str, Any]:
    """One choice of classes and images, one choice of which are small; percentages a method."""
    start = time.perf_counter()
    counts = Counter(data.labels)
    fit_for_both = sorted(label for label, n in counts.items() if n >= N_LARGE + N_TEST)
    chosen = np.random.default_rng(seed).permutation(fit_for_both)[:N_CLASSES].tolist()
    halves = [chosen[: N_CLASSES // 2], chosen[N_CLASSES // 2 :]]
    small, large = reversed(halves) if swapped else halves
    train_small, test_small = split_images(only(data, small), n_train=N_SMALL, n_test=N_TEST, seed=seed)
    train_large, test_large = split_images(only(data, large), n_train=N_LARGE, n_test=N_TEST, seed=seed)
    paths, labels = train_small.paths + train_large.paths, train_small.labels + train_large.labels
    test_paths, test_labels = test_small.paths + test_large.paths, test_small.labels + test_large.labels
    store = FeatureStore(HERE / "runs" / "unequal" / "features")
    result: dict[str, Any] = {"seed": seed, "small": sorted(small), "large": sorted(large)}
    for name, (method, changes) in METHODS.items():
        classifier = resolve(CLASSIFIERS, method, "method")(**MODEL, **changes).fit(paths, labels, store=store)
        outcome = evaluate(classifier, test_paths, test_labels, store=store)
        answers = dict(zip(outcome.answers, outcome.confusion.sum(axis=0).tolist(), strict=True))
        result[name] = {
            "accuracy": round(100 * outcome.mean_per_class_accuracy, 2),
            "accuracy_small": round(100 * mean(outcome.per_class[label] for label in small), 2),
            "accuracy_large": round(100 * mean(outcome.per_class[label] for label in large), 2),
            "answers_large": round(100 * sum(answers[label] for label in large) / outcome.n_images, 2),
        }
        print(f"seed {seed}, swapped {swapped}, {name}: {result[name]}", file=sys.stderr, flush=True)
    return {**result, "seconds": round(time.perf_counter() - start, 1)}


def only(data: LabelledImages, labels: list[str]) -> LabelledImages:
    """The images of these classes."""
    kept = [place for place, label in enumerate(data.labels) if label in labels]
    return LabelledImages(tuple(data.paths[i] for i in kept), tuple(data.labels[i] for i in kept))


if __name__ == "__main__":
    main()

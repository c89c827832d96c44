"""Every method on one split of Caltech 101 with the same features: accuracy, time, memory.

Writes results/method-<name>-<images>.json, each as soon as it is done; a record that is there is kept, so that a run
that was stopped goes on where it was.

    python benchmarks/methods.py local-nbnn-kernel spm-soft
    python benchmarks/methods.py                    # all
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, mean_per_class, show

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.nbnn_kernel import NBNNKernel
from lnbnn.datasets.caltech101 import load_caltech101
from lnbnn.datasets.folder import LabelledImages
from lnbnn.datasets.splits import split_images
from lnbnn.evaluation import evaluate
from lnbnn.extraction import map_in_order
from lnbnn.location import UNIT_LENGTH
from lnbnn.records import make_record, write_record
from lnbnn.registry import resolve
from lnbnn.responses import response_vectors
from lnbnn.scoring import log_odds_updates, nbnn_updates

NBNN_SETTINGS = {"query_budget": 500, "index_params": {"form": "ivf-4bit", "n_lists": 128, "n_probes": 2}}


def main() -> None:
    """Run the methods asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RUNS)}")
    parser.add_argument("--data", type=Path, default=None, help="101_ObjectCategories; default: LNBNN_CALTECH101")
    parser.add_argument("--train", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train, test = split_images(load_caltech101(options.data), n_train=options.train, n_test=15, seed=options.seed)
    unknown = set(options.names) - set(RUNS)
    if unknown:
        parser.error(f"no method {min(unknown)}; there are {', '.join(RUNS)}")
    for name in options.names or RUNS:
        path = HERE / "results" / f"method-{name}-{options.train}.json"
        if path.exists():
            print(f"{path.name} is there", file=sys.stderr)
            continue
        start = time.perf_counter()
        settings, results = RUNS[name](train, test)
        results["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        command = f"python benchmarks/methods.py {name} --train {options.train} --seed {options.seed}"
        record = make_record(
            path.stem,
            command,
            settings=settings | {"n_train": options.train, "n_test": 15},
            seeds=[options.seed],
            results=results,
            seconds=time.perf_counter() - start,
        )
        write_record(path, record)
        print(f"{name}: {results['accuracy']}  ({record.seconds:.0f} s)", flush=True)


def run_plain(method: str, **settings: Any) -> Callable[[LabelledImages, LabelledImages], tuple[dict, dict]]:
    """A run that fits one method and evaluates it."""

    def run(train: LabelledImages, test: LabelledImages) -> tuple[dict, dict]:
        classifier = resolve(CLASSIFIERS, method, "method")(**settings)
        start = time.perf_counter()
        classifier.fit(train.paths, train.labels, progress=show)
        fit_s = time.perf_counter() - start
        result = evaluate(classifier, test.paths, test.labels, progress=show)
        return classifier.plain_params(), {
            "accuracy": {method: round(100 * result.mean_per_class_accuracy, 2)},
            "per_class": {str(label): accuracy for label, accuracy in result.per_class.items()},
            "described": classifier.describe(),
            "fit_s": round(fit_s, 1),
            "evaluate_s": round(result.seconds, 1),
        }

    return run


def run_nbnn_family(train: LabelledImages, test: LabelledImages) -> tuple[dict, dict]:
    """NBNN, its log-odds forms and its kernel, from the same searches: they differ in what they make of them."""
    classifier = NBNNKernel(**NBNN_SETTINGS)
    start = time.perf_counter()
    classifier.fit(train.paths, train.labels, progress=show)
    fit_s = time.perf_counter() - start
    labels = classifier.classes_.tolist()
    truth = np.array([labels.index(label) for label in test.labels])

    def work(path: str) -> tuple[np.ndarray, float]:
        vectors = classifier._vectors(classifier.query_features(path))
        distances = classifier._class_distances(vectors, None)
        plain = nbnn_updates(distances).totals(len(labels))
        every = log_odds_updates(distances / UNIT_LENGTH**2)
        positive = log_odds_updates(distances / UNIT_LENGTH**2, positive_only=True)
        response = response_vectors(plain[None], np.array([len(vectors)]), classifier.response)[0]
        svm = classifier.coef_ @ ((response - classifier.mean_) / classifier.scale_) + classifier.intercept_
        scores = [-plain, -every.totals(len(labels)), -positive.totals(len(labels)), svm]
        return np.array([np.argmax(score) for score in scores]), positive.n_increments

    start = time.perf_counter()
    answers, increments = [], []
    for answer, n_increments in map_in_order(work, test.paths, None):
        answers.append(answer)
        increments.append(n_increments)
        show("classifying", len(answers), len(test))
    found = np.array(answers)
    names = ("nbnn", "nbnn-log-odds all", "nbnn-log-odds positive", "nbnn-kernel")
    accuracy = {name: mean_per_class(found[:, place], truth) for place, name in enumerate(names)}
    return classifier.plain_params(), {
        "accuracy": accuracy,
        "mean_increments": {"all": float(len(labels)), "positive": round(float(np.mean(increments)), 2)},
        "same_answer_as_nbnn": {
            name: round(float(np.mean(found[:, 0] == found[:, i])), 4) for i, name in enumerate(names)
        },
        "described": classifier.describe(),
        "fit_s": round(fit_s, 1),
        "evaluate_s": round(time.perf_counter() - start, 1),
    }


RUNS = {
    "local-nbnn-kernel": run_plain("local-nbnn-kernel"),
    "spm-hard": run_plain("spm-hard"),
    "spm-soft": run_plain("spm-soft"),
    "nbnn-family": run_nbnn_family,
}


if __name__ == "__main__":
    main()

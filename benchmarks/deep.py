"""Cells of a network through Local NBNN, beside the obvious ways to use the same network's pooled vector.

For each seeded split of Caltech 101: Local NBNN on the cells, SVMs on its responses, and the fusion of Local NBNN on
two layers with SVMs on pooled cells; and, on the mean of the same cells, nearest class mean, 5 nearest neighbours and
logistic regression. Writes results/deep-<images>.json; each finished split is kept in runs/ at once, so that a run that
was stopped goes on where it was. Features are cached in runs/deep-features. What is fused was chosen among some 25
combinations by leave-one-out scores of the training images of splits 0 and 1, in trials without a record; size,
components, location weight, k and the penalty of the regression on training images of split 0. Training images of one
split are among the test images of others. benchmarks/deep_choice.py repeats the main comparisons with a record.

    python benchmarks/deep.py --train 15
    python benchmarks/deep.py --train 30
    python benchmarks/deep.py --train 15 --methods fused     # a record of its own: results/deep-fused-15.json
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, mean_per_class, options_parser, show
from sklearn.linear_model import LogisticRegression

from lnbnn import FeatureStore, LateFusion, LocalNBNN
from lnbnn.classifiers.base import Classifier
from lnbnn.classifiers.kernels import LocalNBNNKernel
from lnbnn.classifiers.trained import PooledSVM
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.descriptors import make_descriptor
from lnbnn.lab.records import make_record, write_record
from lnbnn.params import preset_params
from lnbnn.reading.extraction import features_of

INVERSE_PENALTY = 100.0  # of logistic regression
N_TIMED = 40
CELLS, FUSED = "local-nbnn", "local-nbnn on two layers, pooled-svm, fused"


def main() -> None:
    """Run the splits asked for and write their record."""
    parser = options_parser(__doc__)
    parser.add_argument("--train", type=int, default=15)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="only these")
    parser.add_argument("--cache", type=Path, default=HERE / "runs" / "deep-features")
    options = parser.parse_args()
    data = load_caltech101(options.data)
    store = FeatureStore(options.cache)
    splits: list[dict[str, Any]] = [{"seed": seed, "accuracy": {}, "parts": {}} for seed in options.seeds]
    for name in options.methods:
        for split in splits:
            kept = HERE / "runs" / "deep" / f"{options.train}-seed{split['seed']}-{name}.json"
            if not kept.exists():
                train, test = split_images(data, n_train=options.train, n_test=15, seed=split["seed"])
                part = METHODS[name](train, test, store)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(part), encoding="utf-8")
            part = json.loads(kept.read_text(encoding="utf-8"))
            split["accuracy"] |= part.pop("accuracy")
            split["parts"][name] = part
            print(f"seed {split['seed']}: {split['accuracy']}", file=sys.stderr, flush=True)
    methods = splits[0]["accuracy"]
    found = {method: [split["accuracy"][method] for split in splits] for method in methods}
    results: dict[str, Any] = {
        "accuracy_mean": {method: round(statistics.mean(values), 2) for method, values in found.items()},
        "accuracy_sd": {
            method: round(statistics.stdev(values), 2) if len(values) > 1 else None for method, values in found.items()
        },
        "splits": splits,
    }
    record = make_record(
        "-".join(["deep", *(options.methods if len(options.methods) < len(METHODS) else []), str(options.train)]),
        f"python benchmarks/deep.py --train {options.train} --seeds {' '.join(map(str, options.seeds))}"
        f" --methods {' '.join(options.methods)}",
        settings={"n_train": options.train, "n_test": 15},
        seeds=options.seeds,
        results=results,
        seconds=round(sum(part["seconds"] for split in splits for part in split["parts"].values()), 1),
    )
    write_record(HERE / "results" / f"{record.name}.json", record)
    print(f"results/{record.name}.json: {results['accuracy_mean']}")


def cells(train: LabelledImages, test: LabelledImages, store: FeatureStore) -> dict[str, Any]:
    """Local NBNN on the cells of the last feature map."""
    classifier = LocalNBNN(**preset_params("deep"))
    result = run(CELLS, classifier, train, test, store)
    return result | {"n_descriptors": len(classifier.index_), "cpu_ms_an_image": cpu_times(classifier, test)}


def fused(train: LabelledImages, test: LabelledImages, store: FeatureStore) -> dict[str, Any]:
    """The fusion of :func:`fused_layers`."""
    classifier = fused_layers()
    result = run(FUSED, classifier, train, test, store)
    return result | {"cpu_ms_an_image": {"all": cpu_of_answers(classifier, test)}}


def kernel(train: LabelledImages, test: LabelledImages, store: FeatureStore) -> dict[str, Any]:
    """Machines on the responses of Local NBNN."""
    return run("local-nbnn-kernel", LocalNBNNKernel(**preset_params("deep")), train, test, store)


def pooled(train: LabelledImages, test: LabelledImages, store: FeatureStore) -> dict[str, Any]:
    """Plain methods on the mean of the cells."""
    start = time.perf_counter()
    labels = sorted(set(train.labels))
    known, truth = (np.array([labels.index(label) for label in part.labels]) for part in (train, test))
    scores = pooled_scores(pool(train, store), known, pool(test, store))
    accuracy = {name: mean_per_class(found.argmax(axis=1), truth) for name, found in scores.items()}
    return {"accuracy": accuracy, "seconds": round(time.perf_counter() - start, 1)}


def run(
    name: str, classifier: Classifier, train: LabelledImages, test: LabelledImages, store: FeatureStore
) -> dict[str, Any]:
    """Fit and evaluate: accuracy, and times with the features at hand."""
    start = times_now()
    classifier.fit(train.paths, train.labels, store=store, progress=show)
    middle = times_now()
    scores = classifier.decision_function(test.paths, store=store)
    end = times_now()
    classes = classifier.classes_.tolist()
    truth = np.array([classes.index(label) for label in test.labels])
    return {
        "accuracy": {name: mean_per_class(scores.argmax(axis=1), truth)},
        "seconds": round(end[0] - start[0], 1),
        "with_cached_features": {"fit": seconds_between(start, middle), "evaluate": seconds_between(middle, end)},
        "described": classifier.describe(),
        "settings": classifier.plain_params(),
    }


def fused_layers() -> LateFusion:
    """Local NBNN on two layers, of which one sees a larger picture, and SVMs on the pooled last one."""
    finer = {"descriptor": "deep@stage6", "descriptor_params": {"longest_side": 384}}
    members: list[tuple[str, Classifier]] = [
        ("cells", LocalNBNN(**preset_params("deep"))),
        ("finer", LocalNBNN(**preset_params("deep") | finer)),
        ("pooled", PooledSVM(descriptor="deep")),
    ]
    return LateFusion(members)


def times_now() -> tuple[float, float]:
    """Wall and CPU clock."""
    return time.perf_counter(), time.process_time()


def seconds_between(start: tuple[float, float], end: tuple[float, float]) -> dict[str, float]:
    """Wall and CPU seconds."""
    return {"wall": round(end[0] - start[0], 1), "cpu": round(end[1] - start[1], 1)}


def pool(part: LabelledImages, store: FeatureStore) -> np.ndarray:
    """The mean of the cells of each image: what the network's own classifier is given."""
    descriptor = make_descriptor("deep")
    return np.array(
        [features_of(path, descriptor, store).descriptors.mean(axis=0, dtype=np.float64) for path in part.paths]
    )


def pooled_scores(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """Scores by three plain methods on pooled vectors, centred on the training images and of unit length."""
    centre = train.mean(axis=0)
    train, test = (part - centre for part in (train, test))
    train, test = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (train, test))
    n_classes = labels.max() + 1
    means = np.array([train[labels == label].mean(axis=0) for label in range(n_classes)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    similar = test @ train.T
    nearest = np.argsort(-similar, axis=1)[:, :5]
    votes = np.zeros((len(test), n_classes))
    for row, places in enumerate(nearest):
        np.add.at(votes[row], labels[places], 1.0 + 1e-3 * similar[row, places])  # of equal votes the nearer
    regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=200)
    return {
        "pooled, nearest class mean": test @ means.T,
        "pooled, 5 nearest neighbours": votes,
        "pooled, logistic regression": regression.fit(train, labels).decision_function(test),
    }


def cpu_times(classifier: LocalNBNN, test: LabelledImages) -> dict[str, float]:
    """CPU time of one image, one at a time: network and all, and of the search alone."""
    paths = timed_paths(test)
    features_of(paths[0], classifier.descriptor_)
    start = time.process_time()
    features = [classifier.query_features(path) for path in paths]
    middle = time.process_time()
    for found in features:
        classifier.index_.search(classifier._vectors(found), classifier.n_neighbors + 1)
    searched = time.process_time()
    classifier.set_params(n_jobs=1).decision_function(features)
    end = time.process_time()
    n = len(paths) / 1000
    return {
        "read and extract": round((middle - start) / n, 2),
        "search": round((searched - middle) / n, 2),
        "all": round((middle - start + end - searched) / n, 2),
    }


def cpu_of_answers(classifier: Classifier, test: LabelledImages) -> float:
    """CPU time of one image in ms, from file to answer, network and all."""
    paths = timed_paths(test)
    classifier.decision_function(paths[:1])
    start = time.process_time()
    classifier.set_params(n_jobs=1).decision_function(paths)
    return round((time.process_time() - start) / len(paths) * 1000, 2)


def timed_paths(test: LabelledImages) -> list[str]:
    """Test images spread evenly over the classes."""
    return list(test.paths[:: max(1, len(test) // N_TIMED)][:N_TIMED])


METHODS = {"cells": cells, "fused": fused, "kernel": kernel, "pooled": pooled}
"""What is run on each split; each finished one is kept."""


if __name__ == "__main__":
    main()

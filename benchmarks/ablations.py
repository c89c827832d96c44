"""What each knob of Local NBNN is worth: Caltech 101, training images only.

Of the 15 training images a class of one split, 10 are indexed and 5 are asked about. The test images are not touched,
so that what is found here may choose defaults. Writes results/ablations.json.

    python benchmarks/ablations.py
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, mean_per_class

from lnbnn import LocalNBNN
from lnbnn.classifiers.neighbors import image_of_id
from lnbnn.datasets.caltech101 import load_caltech101
from lnbnn.datasets.folder import LabelledImages
from lnbnn.datasets.splits import split_images
from lnbnn.evaluation import evaluate
from lnbnn.extraction import map_in_order
from lnbnn.records import make_record, write_record
from lnbnn.scoring import local_nbnn_updates

N_SEARCHED = 61
SHARED = {
    "k=10, the paper's": {"n_neighbors": 10},
    "k=1": {"n_neighbors": 1},
    "k=3": {"n_neighbors": 3},
    "k=5": {"n_neighbors": 5},
    "k=20": {"n_neighbors": 20},
    "k=40": {"n_neighbors": 40},
    "background: neighbour 20": {"n_neighbors": 10, "background_rank": 20},
    "background: neighbour 40": {"n_neighbors": 10, "background_rank": 40},
    "background of another class": {"n_neighbors": 10, "background_other_class": True},
    "score: ratio": {"n_neighbors": 10, "score": "ratio"},
    "score: log-ratio": {"n_neighbors": 10, "score": "log-ratio"},
    "score: count": {"n_neighbors": 10, "score": "count"},
    "classes normalised": {"n_neighbors": 10, "class_weights": True},
}
REFITTED: dict[str, dict[str, Any]] = {
    "alpha=1.0": {"location_weight": 1.0},
    "alpha=2.0": {"location_weight": 2.0},
    "RootSIFT, alpha=0.8": {"descriptor": "root-sift", "location_weight": 0.8},
    "RootSIFT, alpha=1.2": {"descriptor": "root-sift", "location_weight": 1.2},
    "RootSIFT, alpha=1.6": {"descriptor": "root-sift", "location_weight": 1.6},
    "4 lists visited": {"index_params": {"n_probes": 4}},
    "500 query descriptors": {"query_budget": 500},
}


def main() -> None:
    """One search serves every way of scoring; what changes the index or the features is fitted anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="101_ObjectCategories; default: LNBNN_CALTECH101")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    train, _ = split_images(load_caltech101(options.data), n_train=15, n_test=15, seed=options.seed)
    known, asked = split_images(train, n_train=10, n_test=5, seed=options.seed)
    accuracy = shared_search(known, asked)
    for name, settings in REFITTED.items():
        classifier = LocalNBNN(**settings).fit(known.paths, known.labels)
        result = evaluate(classifier, asked.paths, asked.labels)
        accuracy[name] = round(100 * result.mean_per_class_accuracy, 2)
        print(f"{name}: {accuracy[name]}", file=sys.stderr, flush=True)
    record = make_record(
        "ablations",
        f"python benchmarks/ablations.py --seed {options.seed}",
        settings={"n_indexed": 10, "n_asked": 5, "shared": SHARED, "refitted": REFITTED},
        seeds=[options.seed],
        results={"accuracy": accuracy, "n_images": len(asked)},
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "ablations.json", record)


def shared_search(known: LabelledImages, asked: LabelledImages) -> dict[str, float]:
    """Accuracy of each way of scoring the same neighbours."""
    classifier = LocalNBNN().fit(known.paths, known.labels)
    classes = classifier.classes_.tolist()
    truth = np.array([classes.index(label) for label in asked.labels])

    def work(path: str) -> list[int]:
        vectors = classifier._vectors(classifier.query_features(path))
        distances, ids = classifier.index_.search(vectors, N_SEARCHED)
        labels = classifier._image_labels[image_of_id(ids)]
        answers = []
        for knobs in SHARED.values():
            weights = {"class_weights": classifier._class_weights} if knobs.get("class_weights") else {}
            updates = local_nbnn_updates(distances, labels, **{**knobs, **weights})
            answers.append(int(np.argmin(updates.totals(len(classes)))))
        return answers

    answers = np.array(list(map_in_order(work, asked.paths, None)))
    accuracy = {}
    for place, name in enumerate(SHARED):
        accuracy[name] = mean_per_class(answers[:, place], truth)
        print(f"{name}: {accuracy[name]}", file=sys.stderr, flush=True)
    return accuracy


if __name__ == "__main__":
    main()

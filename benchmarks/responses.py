"""What the response vectors of the two kernels should be: scales, pooling and blend, side by side, on Caltech 101.

Cross-validated accuracy on the training images (their responses leave the image itself out) is what chooses; the
accuracy on the test images stands beside it and chooses nothing. Writes results/responses.json. The searches are kept
in runs/, so that a run that was stopped goes on.

    python benchmarks/responses.py
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from common import HERE, mean_per_class, show
from sklearn.model_selection import StratifiedKFold

from lnbnn import NBNN, LocalNBNN
from lnbnn.classifiers.nbnn_kernel import choose_c_and_blend, one_vs_all_svms
from lnbnn.datasets.caltech101 import load_caltech101
from lnbnn.datasets.splits import split_images
from lnbnn.experiments.table2 import SETTINGS
from lnbnn.extraction import map_in_order
from lnbnn.location import UNIT_LENGTH
from lnbnn.records import make_record, write_record
from lnbnn.responses import RESPONSES, cell_totals, response_vectors

INPUTS = {
    "local-nbnn": (LocalNBNN, SETTINGS["params"]["local-nbnn-kernel"]),
    "nbnn": (NBNN, SETTINGS["params"]["nbnn-kernel"]),
}


def main() -> None:
    """Search once for the training and the test images, then try every response on the same totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="101_ObjectCategories; default: LNBNN_CALTECH101")
    parser.add_argument("--train", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    train, test = split_images(load_caltech101(options.data), n_train=options.train, n_test=15, seed=options.seed)
    results = {}
    for name, (kind, params) in INPUTS.items():
        kept = HERE / "runs" / f"responses-{name}-{options.train}-seed{options.seed}.npz"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez(kept, **all_totals(kind(**params), train, test))
        with np.load(kept) as arrays:
            results[name] = try_all(dict(arrays), options.seed)
    record = make_record(
        "responses",
        f"python benchmarks/responses.py --train {options.train} --seed {options.seed}",
        settings={
            "inputs": {name: params for name, (_, params) in INPUTS.items()},
            "n_train": options.train,
            "n_test": 15,
        },
        seeds=[options.seed],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / f"{record.name}.json", record)


def all_totals(classifier, train, test) -> dict[str, np.ndarray]:
    """Totals of the whole image and of its quarters, for training images left out and for test images."""
    classifier.fit(train.paths, train.labels, progress=show)
    classes = classifier.classes_.tolist()

    def totals_of(vectors: np.ndarray, own: range | None) -> np.ndarray:
        updates = classifier._updates_of(vectors, own)
        xy = vectors[:, -2:].astype(np.float64) / (UNIT_LENGTH * classifier.used_location_weight())
        return np.vstack([[updates.totals(len(classes))], cell_totals(updates, xy, len(classes), 2)]).ravel()

    def work(path: str) -> np.ndarray:
        return totals_of(classifier._vectors(classifier.query_features(path)), None)

    shape = (-1, 5, len(classes))
    return {
        "train": classifier._leave_each_out(totals_of, show).reshape(shape),
        "test": np.array(list(map_in_order(work, test.paths, None))).reshape(shape),
        "train_labels": np.array([image.label for image in classifier.images_]),
        "test_labels": np.array([classes.index(label) for label in test.labels]),
    }


def try_all(totals: dict[str, np.ndarray], seed: int) -> dict[str, object]:
    """Accuracy of the totals themselves, and of SVMs on each response: cross-validated and on the test images."""
    labels, truth = totals["train_labels"], totals["test_labels"]
    plain = {
        "training images left out": mean_per_class(np.argmin(totals["train"][:, 0], axis=1), labels),
        "test": mean_per_class(np.argmin(totals["test"][:, 0], axis=1), truth),
    }
    own, own_test = (-vectors(totals[part][:, :1], "standard") for part in ("train", "test"))
    rows = []
    for n_cells, pooling in ((1, "whole image"), (5, "whole image and quarters")):
        for kind in RESPONSES:
            known, asked = (vectors(totals[part][:, :n_cells], kind) for part in ("train", "test"))
            mean, spread = known.mean(axis=0), known.std(axis=0)
            spread[spread == 0] = 1.0
            known, asked = (known - mean) / spread, (asked - mean) / spread
            for blend in (0.0, None):
                c, weight = choose_c_and_blend(known, own, labels, seed, blend=blend)
                coef, intercept = one_vs_all_svms(known, labels, labels.max() + 1, c)
                scores = asked @ coef.T + intercept + weight * own_test
                row = {
                    "response": kind,
                    "pooling": pooling,
                    "blend": "none" if blend == 0 else "chosen",
                    "C": c,
                    "own_weight": round(weight, 4),
                    "cross-validated": cross_validated(known, own, labels, c, weight, seed),
                    "test": mean_per_class(np.argmax(scores, axis=1), truth),
                }
                print(row, file=sys.stderr, flush=True)
                rows.append(row)
    return {"input": plain, "svm": rows}


def vectors(totals: np.ndarray, kind: str) -> np.ndarray:
    """The response vectors of images from their totals, shape (n_images, n_cells * n_classes)."""
    n_images, n_cells, n_classes = totals.shape
    flat = totals.reshape(n_images * n_cells, n_classes)
    return response_vectors(flat, np.full(len(flat), 1000), kind).reshape(n_images, -1)


def cross_validated(
    known: np.ndarray, own: np.ndarray, labels: np.ndarray, c: float, weight: float, seed: int
) -> float:
    """Mean per-class accuracy over five folds of the training images."""
    answers = np.empty_like(labels)
    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(known, labels):
        coef, intercept = one_vs_all_svms(known[train], labels[train], labels.max() + 1, c)
        answers[test] = np.argmax(known[test] @ coef.T + intercept + weight * own[test], axis=1)
    return mean_per_class(answers, labels)


if __name__ == "__main__":
    main()

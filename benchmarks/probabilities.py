"""Probabilities on Caltech 101: how far they can be trusted, and what fusing two methods gains.

Local NBNN and the spatial pyramid with soft assignment on 20 classes, 15 training and 15 test images each. Temperatures
and weights come from the training images alone. Writes results/probabilities.json.

    python benchmarks/probabilities.py --seeds 0
"""

from __future__ import annotations

import time
from statistics import mean
from typing import Any

import numpy as np
from common import HERE, options_parser

from lnbnn.classifiers.fusion import LateFusion
from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.classifiers.trained import SoftSpatialPyramid
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.features import UNIT_LENGTH
from lnbnn.lab.records import make_record, write_record
from lnbnn.model.calibration import expected_calibration_error, fuse, log_probabilities, negative_log_likelihood
from lnbnn.reading.extraction import features_of
from lnbnn.reading.store import FeatureStore

N_CLASSES, N_TRAIN, N_TEST = 20, 15, 15
DESCRIPTOR = {"bin_sizes": [8, 16], "step_px": 10}
MEMBERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "local-nbnn": (LocalNBNN, {"query_budget": 300}),
    "spm-soft": (SoftSpatialPyramid, {"n_words": 256, "n_samples": 50_000}),
}


def main() -> None:
    """Run the seeds asked for and write their record."""
    parser = options_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    data = load_caltech101(options.data)
    start = time.perf_counter()
    runs = [run(data, seed) for seed in options.seeds]
    names = [name for name in runs[0] if name != "weights"]
    results: dict[str, Any] = {
        name: {measure: round(mean(run[name][measure] for run in runs), 3) for measure in runs[0][name]}
        for name in names
    }
    settings = {"n_classes": N_CLASSES, "n_train": N_TRAIN, "n_test": N_TEST, "descriptor_params": DESCRIPTOR}
    record = make_record(
        "probabilities",
        f"python benchmarks/probabilities.py --seeds {' '.join(map(str, options.seeds))}",
        settings={**settings, **{name: params for name, (_, params) in MEMBERS.items()}},
        seeds=options.seeds,
        results={**results, "runs": runs},
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "probabilities.json", record)
    for name in names:
        print(name, results[name])


def run(data: LabelledImages, seed: int) -> dict[str, Any]:
    """Accuracy (%), negative log-likelihood and expected calibration error of each method and of their fusion."""
    chosen = set(np.random.default_rng(seed).permutation(sorted(set(data.labels)))[:N_CLASSES].tolist())
    kept = [place for place, label in enumerate(data.labels) if label in chosen]
    data = LabelledImages(tuple(data.paths[i] for i in kept), tuple(data.labels[i] for i in kept))
    train, test = split_images(data, n_train=N_TRAIN, n_test=N_TEST, seed=seed)
    store = FeatureStore(HERE / "runs" / "unequal" / "features")
    members = [(name, kind(descriptor_params=DESCRIPTOR, **params)) for name, (kind, params) in MEMBERS.items()]
    fusion = LateFusion(members).fit(train.paths, train.labels, store=store)
    features = [features_of(path, fusion.estimators_[0].descriptor_, store) for path in test.paths]
    truth = np.searchsorted(fusion.classes_, np.asarray(test.labels))
    local = fusion.estimators_[0].decision_function(features)
    log_probas = {"local-nbnn, no temperature": log_probabilities(local, UNIT_LENGTH**2)}
    for (name, _), member in zip(members, fusion.estimators_, strict=True):
        log_probas[name] = np.log(np.maximum(member.predict_proba(features), 1e-300))
    log_probas["fusion"] = fuse([log_probas[name] for name in MEMBERS], fusion.weights_)
    result: dict[str, Any] = {name: measures(log_proba, truth) for name, log_proba in log_probas.items()}
    return {**result, "weights": [round(float(weight), 3) for weight in fusion.weights_]}


def measures(log_proba: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """The three figures of one method."""
    right = log_proba.argmax(axis=1) == truth
    per_class = [right[truth == label].mean() for label in np.unique(truth)]
    return {
        "accuracy": round(100 * float(np.mean(per_class)), 2),
        "negative_log_likelihood": round(negative_log_likelihood(log_proba, truth), 3),
        "expected_calibration_error": round(expected_calibration_error(np.exp(log_proba), truth), 3),
    }


if __name__ == "__main__":
    main()

"""How the settings of deep Local NBNN, and what is fused with it, were chosen: on training images alone.

Of the 15 training images a class of each split, 10 are the model and 5 are held out; the test images are not looked at.
Each finished trial is kept in runs/ at once. Writes results/deep-choice.json.

    python benchmarks/deep_choice.py
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, mean_per_class, options_parser
from deep import fused_layers

from lnbnn import FeatureStore, LateFusion, LocalNBNN
from lnbnn.classifiers.base import Classifier
from lnbnn.classifiers.kernels import LocalNBNNKernel
from lnbnn.classifiers.trained import PooledSVM
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.splits import split_images
from lnbnn.lab.records import make_record, write_record
from lnbnn.params import preset_params

N_KNOWN, N_HELD = 10, 5


def cells(descriptor: str = "deep", longest_side: int | None = None, **changes: Any) -> LocalNBNN:
    """Local NBNN of the preset ``deep`` with some settings changed."""
    params = {name: changes.pop(name) for name in ("n_components", "whitening") if name in changes}
    params |= {} if longest_side is None else {"longest_side": longest_side}
    return LocalNBNN(**preset_params("deep") | {"descriptor": descriptor, "descriptor_params": params} | changes)


def with_pooled() -> LateFusion:
    """Local NBNN and SVMs on the same layer."""
    return LateFusion([("cells", cells()), ("pooled", PooledSVM(descriptor="deep"))])


def two_layers() -> LateFusion:
    """Local NBNN on two layers."""
    return LateFusion([("cells", cells()), ("finer", cells("deep@stage6", 384))])


TRIALS: dict[str, Classifier] = {
    "the preset": cells(),
    "224 pixels": cells(longest_side=224),
    "384 pixels": cells(longest_side=384),
    "stage 7": cells("deep@stage7"),
    "stage 6, 384 pixels": cells("deep@stage6", 384),
    "64 components": cells(n_components=64),
    "256 components": cells(n_components=256),
    "half whitened": cells(whitening=0.5),
    "location weight 0.7": cells(location_weight=0.7),
    "location weight 1.8": cells(location_weight=1.8),
    "k = 10": cells(n_neighbors=10),
    "k = 40": cells(n_neighbors=40),
    "local-nbnn-kernel": LocalNBNNKernel(**preset_params("deep")),
    "pooled-svm": PooledSVM(descriptor="deep"),
    "fused with stage 6": two_layers(),
    "fused with pooled-svm": with_pooled(),
    "fused with both": fused_layers(),
}


def main() -> None:
    """Run the trials on each split and write their record."""
    parser = options_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--cache", type=Path, default=HERE / "runs" / "deep-features")
    options = parser.parse_args()
    data, store = load_caltech101(options.data), FeatureStore(options.cache)
    start = time.perf_counter()
    found: dict[str, list[float]] = {name: [] for name in TRIALS}
    for seed in options.seeds:
        train, _ = split_images(data, n_train=N_KNOWN + N_HELD, n_test=15, seed=seed)
        known, held = split_images(train, n_train=N_KNOWN, n_test=N_HELD, seed=seed)
        for number, (name, classifier) in enumerate(TRIALS.items()):
            kept = HERE / "runs" / "deep-choice" / f"seed{seed}-{number}.json"
            if not kept.exists():
                classifier.fit(known.paths, known.labels, store=store)
                classes = classifier.classes_.tolist()
                answers = classifier.decision_function(held.paths, store=store).argmax(axis=1)
                kept.parent.mkdir(parents=True, exist_ok=True)
                truth = [classes.index(label) for label in held.labels]
                kept.write_text(json.dumps([name, mean_per_class(answers, np.array(truth))]), encoding="utf-8")
            found[name].append(json.loads(kept.read_text(encoding="utf-8"))[1])
            print(f"seed {seed}, {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    record = make_record(
        "deep-choice",
        f"python benchmarks/deep_choice.py --seeds {' '.join(map(str, options.seeds))}",
        settings={"n_known": N_KNOWN, "n_held_out": N_HELD},
        seeds=options.seeds,
        results={
            "accuracy_mean": {name: round(statistics.mean(values), 2) for name, values in found.items()},
            "accuracy": found,
        },
        seconds=round(time.perf_counter() - start, 1),
    )
    write_record(HERE / "results" / f"{record.name}.json", record)


if __name__ == "__main__":
    main()

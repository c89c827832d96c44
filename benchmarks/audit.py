"""Does the audit find wrong labels? Labels of Caltech 101 are swapped on purpose.

15 training images of each of 101 classes; one image in twenty gets the label of another class. What the audit lists is
compared with what was swapped. Writes results/audit.json.

    python benchmarks/audit.py --seeds 0
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, show

from lnbnn import FeatureStore, LocalNBNN
from lnbnn.audit import audit
from lnbnn.datasets.caltech101 import load_caltech101
from lnbnn.datasets.folder import LabelledImages
from lnbnn.datasets.splits import split_images
from lnbnn.records import make_record, write_record

N_TRAIN, SHARE = 15, 0.05
SETTINGS: dict[str, Any] = {"descriptor_params": {"bin_sizes": [6, 9, 14, 21], "step_px": 8}, "query_budget": 300}
LEVELS = [0.3, 0.5, 0.7, 0.9]


def main() -> None:
    """Run the seeds and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="101_ObjectCategories; default: LNBNN_CALTECH101")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    data = load_caltech101(options.data)
    start = time.perf_counter()
    runs = [run(data, seed) for seed in options.seeds]
    record = make_record(
        "audit",
        f"python benchmarks/audit.py --seeds {' '.join(map(str, options.seeds))}",
        settings={"n_train": N_TRAIN, "share_swapped": SHARE, **SETTINGS},
        seeds=options.seeds,
        results={"runs": runs},
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "audit.json", record)
    for one in runs:
        print(one)


def run(data: LabelledImages, seed: int) -> dict[str, Any]:
    """Precision and recall of the listed suspects, and of their suggestions."""
    train, _ = split_images(data, n_train=N_TRAIN, n_test=1, seed=seed)
    rng = np.random.default_rng(seed)
    classes = sorted(set(train.labels))
    labels = list(train.labels)
    swapped = sorted(rng.choice(len(labels), round(SHARE * len(labels)), replace=False).tolist())
    for place in swapped:
        labels[place] = str(rng.choice([name for name in classes if name != train.labels[place]]))
    store = FeatureStore(HERE / "runs" / "unknown" / "features")
    model = LocalNBNN(**SETTINGS).fit(train.paths, labels, store=store)
    paths = {path: place for place, path in enumerate(train.paths)}
    found = audit(model, min_probability=0.0, progress=show)
    wrong = set(swapped)
    levels = {}
    for level in LEVELS:
        listed = [suspect for suspect in found.suspects if suspect.probability >= level]
        hits = [s for s in listed if paths[s.name] in wrong]
        restored = [s for s in hits if s.suggested == train.labels[paths[s.name]]]
        levels[str(level)] = {
            "listed": len(listed),
            "precision": round(len(hits) / max(1, len(listed)), 4),
            "recall": round(len(hits) / len(wrong), 4),
            "right_label_suggested": round(len(restored) / len(wrong), 4),
        }
    ranked = [paths[suspect.name] in wrong for suspect in found.suspects]
    return {
        "n_images": found.n_images,
        "n_swapped": len(wrong),
        "accuracy": round(found.accuracy, 4),
        "at_probability": levels,
        "precision_of_first": {str(n): round(float(np.mean(ranked[:n])), 4) for n in (25, 50, len(wrong), 150)},
        "near_duplicates": len(found.near_duplicates),
        "near_duplicates_across_classes": sum(pair.across_classes for pair in found.near_duplicates),
    }


if __name__ == "__main__":
    main()

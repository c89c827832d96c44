"""Does the audit find wrong labels? Labels of Caltech 101 are swapped on purpose.

15 training images of each of 101 classes; one image in twenty, then one in ten, gets the label of another class. What
the audit lists is compared with what was swapped. Each finished seed is kept in runs/audit, so that a run that was
stopped goes on where it was. Writes results/audit.json.

    python benchmarks/audit.py --seeds 0 1 2
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, mean_of, options_parser, runs_by_preset, show, store_for

from lnbnn import FeatureStore, LocalNBNN
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.lab.records import make_record, write_record
from lnbnn.params import preset_params
from lnbnn.trust.audit import audit

N_TRAIN = 15
SHARES = [0.05, 0.1]
LEVELS = [0.3, 0.5, 0.7, 0.9]


def main() -> None:
    """Run the seeds and write the record."""
    parser = options_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--presets", nargs="+", default=["balanced", "deep"])
    parser.add_argument("--cache", type=Path, default=HERE / "runs" / "features", help="of deep features")
    options = parser.parse_args()
    data = load_caltech101(options.data)
    runs = runs_by_preset("audit", lambda p, s: run(data, p, s, store_for(p, options.cache)), options)
    record = make_record(
        "audit",
        f"python benchmarks/audit.py --presets {' '.join(options.presets)} --seeds {' '.join(map(str, options.seeds))}",
        settings={"n_train": N_TRAIN, "shares_swapped": SHARES},
        seeds=options.seeds,
        results={preset: {"mean": mean_of(done), "runs": done} for preset, done in runs.items()},
        seconds=sum(one["seconds"] for done in runs.values() for one in done),
    )
    write_record(HERE / "results" / "audit.json", record)
    for preset, done in runs.items():
        print(preset, mean_of(done))


def run(data: LabelledImages, preset: str, seed: int, store: FeatureStore | None) -> dict[str, Any]:
    """What the audit finds of the labels swapped in one split, for each share of them."""
    start = time.perf_counter()
    train, _ = split_images(data, n_train=N_TRAIN, n_test=1, seed=seed)
    model = LocalNBNN(**preset_params(preset)).fit(train.paths, train.labels, store=store, progress=show)
    result: dict[str, Any] = {"n_images": len(train), "swapped": {}}
    for share in SHARES:
        rng = np.random.default_rng([seed, round(100 * share)])
        classes = sorted(set(train.labels))
        swapped = sorted(rng.choice(len(train), round(share * len(train)), replace=False).tolist())
        for place in swapped:
            others = [name for name in classes if name != train.labels[place]]
            model.relabel(model.images_[place].id, others[rng.integers(len(others))])
        result["swapped"][str(share)] = found_of(model, train, swapped)
        for place in swapped:
            model.relabel(model.images_[place].id, train.labels[place])
    return result | {"seconds": round(time.perf_counter() - start, 1)}


def found_of(model: LocalNBNN, train: LabelledImages, swapped: list[int]) -> dict[str, Any]:
    """Precision and recall of the listed suspects, and of their suggestions."""
    place_of = {image.id: place for place, image in enumerate(model.images_)}
    found = audit(model, min_probability=0.0, progress=show)
    wrong = set(swapped)
    levels = {}
    for level in LEVELS:
        listed = [suspect for suspect in found.suspects if suspect.probability >= level]
        hits = [suspect for suspect in listed if place_of[suspect.id] in wrong]
        restored = [suspect for suspect in hits if suspect.suggested == train.labels[place_of[suspect.id]]]
        levels[str(level)] = {
            "listed": len(listed),
            "precision": round(len(hits) / max(1, len(listed)), 4),
            "recall": round(len(hits) / len(wrong), 4),
            "right_label_suggested": round(len(restored) / len(wrong), 4),
        }
    ranked = [place_of[suspect.id] in wrong for suspect in found.suspects]
    return {
        "n_swapped": len(wrong),
        "label_found_again": round(found.accuracy, 4),
        "expected_wrong": round(sum(suspect.probability for suspect in found.suspects), 1),
        "at_probability": levels,
        "precision_of_first": {str(n): round(float(np.mean(ranked[:n])), 4) for n in (25, 50, 75, 150)},
        "near_duplicates": len(found.near_duplicates),
    }


if __name__ == "__main__":
    main()

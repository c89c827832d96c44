"""Does --reject keep its promise? Held-out classes of Caltech 101 against the rate that was asked for.

The model knows 50 classes of 15 training images and is calibrated on these alone. It is asked for test images of its
classes, and for images of the 51 classes that it has never seen; another seed is another choice of classes and images.
Each finished seed is kept in runs/unknown, so that a run that was stopped goes on where it was. Writes
results/unknown.json and its figure.

    python benchmarks/unknown.py --seeds 0 1 2
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
from lnbnn.model.calibration import expected_calibration_error
from lnbnn.params import preset_params
from lnbnn.trust.figures import save_figure, unknown_figure

N_KNOWN, N_TRAIN, N_TEST = 50, 15, 8
RATES = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


def main() -> None:
    """Run the seeds and write the record and its figure."""
    parser = options_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--presets", nargs="+", default=["balanced", "deep"])
    parser.add_argument("--cache", type=Path, default=HERE / "runs" / "features", help="of deep features")
    options = parser.parse_args()
    data = load_caltech101(options.data)
    runs = runs_by_preset("unknown", lambda p, s: run(data, p, s, store_for(p, options.cache)), options)
    results: dict[str, Any] = {
        "rates": RATES,
        "presets": {preset: {"mean": mean_of(done), "runs": done} for preset, done in runs.items()},
    }
    record = make_record(
        "unknown",
        f"python benchmarks/unknown.py --presets {' '.join(options.presets)} --seeds "
        f"{' '.join(map(str, options.seeds))}",
        settings={"n_known": N_KNOWN, "n_train": N_TRAIN, "n_test": N_TEST},
        seeds=options.seeds,
        results=results,
        seconds=sum(one["seconds"] for done in runs.values() for one in done),
    )
    write_record(HERE / "results" / "unknown.json", record)
    save_figure(unknown_figure(results), HERE / "docs" / "images" / "unknown.png")
    for preset, done in runs.items():
        print(preset, mean_of(done))


def run(data: LabelledImages, preset: str, seed: int, store: FeatureStore | None) -> dict[str, Any]:
    """Shares of unknown images accepted, of known ones accepted, and of known ones accepted with the right answer."""
    start = time.perf_counter()
    order = np.random.default_rng(seed).permutation(sorted(set(data.labels))).tolist()
    known = set(order[:N_KNOWN])
    train, test = split_images(data, n_train=N_TRAIN, n_test=N_TEST, seed=seed)
    kept = [place for place, label in enumerate(train.labels) if label in known]
    model = LocalNBNN(**preset_params(preset))
    model.fit([train.paths[i] for i in kept], [train.labels[i] for i in kept], store=store)
    model.calibrate(unknown=True, progress=show)
    found: dict[bool, list[tuple[float, bool, float]]] = {True: [], False: []}
    for label, answer in zip(test.labels, model.iter_answers(test.paths, store=store), strict=True):
        rate = 1.0 if answer.false_accept_rate is None else answer.false_accept_rate
        right = bool(answer.ranking) and answer.ranking[0][0] == label
        found[label in known].append((rate, right, answer.probabilities[0] if answer.probabilities else 0.0))
    rates_known, right, sure = map(np.array, zip(*found[True], strict=True))
    rates_unknown = np.array([rate for rate, _, _ in found[False]])
    # Two columns, the answer and all else, are enough for how far its probability is from how often it is right.
    error = expected_calibration_error(np.stack([sure, 1 - sure], axis=1)[sure > 0.5], (~right[sure > 0.5]).astype(int))
    return {
        "n_known_images": len(rates_known),
        "n_unknown_images": len(rates_unknown),
        "accuracy": round(float(right.mean()), 4),
        "false_accepts": [round(float((rates_unknown <= rate).mean()), 4) for rate in RATES],
        "known_accepted": [round(float((rates_known <= rate).mean()), 4) for rate in RATES],
        "known_right": [round(float(((rates_known <= rate) & right).mean()), 4) for rate in RATES],
        "expected_calibration_error": round(error, 4),
        "seconds": round(time.perf_counter() - start, 1),
    }


if __name__ == "__main__":
    main()

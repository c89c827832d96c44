"""What each knob of Local NBNN is worth: Caltech 101, training images only.

Each of the 15 training images a class of a split is asked about with its own descriptors left out of the index. The
test images are not touched, so that what is found here may choose defaults. Writes results/ablations.json; each
finished fit is kept in runs/ at once, so that a run that was stopped goes on where it was.

    python benchmarks/ablations.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, mean_per_class, options_parser, show

from lnbnn import LocalNBNN
from lnbnn.classifiers.matching import image_of_id
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.lab.base import Arrays, Part
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import full_params
from lnbnn.lab.records import make_record, write_record
from lnbnn.scoring import local_nbnn_updates

N_TRAIN = 15
QUERY_BUDGET = 500
SCORINGS: dict[str, dict[str, Any]] = {
    "k=10, the paper's": {"n_neighbors": 10},
    **{f"k={k}": {"n_neighbors": k} for k in (1, 3, 5, 7, 15, 20, 30, 40, 60)},
    "background: neighbour 20": {"n_neighbors": 10, "background_rank": 20},
    "background: neighbour 40": {"n_neighbors": 10, "background_rank": 40},
    "background of another class": {"n_neighbors": 10, "background_other_class": True},
    "score: ratio": {"n_neighbors": 10, "score": "ratio"},
    "score: log-ratio": {"n_neighbors": 10, "score": "log-ratio"},
    "score: count": {"n_neighbors": 10, "score": "count"},
    "classes normalised": {"n_neighbors": 10, "class_weights": True},
}
"""Ways to score the neighbours that one search finds, of the default fit."""

PAPER_K = {"k=10": {"n_neighbors": 10}}

FITS: dict[str, dict[str, Any]] = {
    "bins 4 6 9": {"descriptor_params": {"bin_sizes": [4, 6, 9]}},
    "bins 4 6 9 14": {"descriptor_params": {"bin_sizes": [4, 6, 9, 14]}},
    "bins 4 6 9 14 21": {"descriptor_params": {"bin_sizes": [4, 6, 9, 14, 21]}},
    "bins 6 9 14 21 31": {"descriptor_params": {"bin_sizes": [6, 9, 14, 21, 31]}},
    "bins 6 9 14 21": {"descriptor_params": {"bin_sizes": [6, 9, 14, 21]}},
    "bins 6 9 14 21 31 46": {"descriptor_params": {"bin_sizes": [6, 9, 14, 21, 31, 46]}},
    "grid every 6 px": {"descriptor_params": {"step_px": 6}},
    "grid every 6 px, 1,500 query descriptors": {"descriptor_params": {"step_px": 6}, "query_budget": 1500},
    "1,500 query descriptors": {"query_budget": 1500},
    "grid every 12 px": {"descriptor_params": {"step_px": 12}},
    "longest side 240": {"descriptor_params": {"longest_side": 240}},
    "longest side 360": {"descriptor_params": {"longest_side": 360}},
    "contrast 1": {"descriptor_params": {"min_contrast": 1.0}},
    "contrast 4": {"descriptor_params": {"min_contrast": 4.0}},
    "alpha=1.2": {"location_weight": 1.2},
    "alpha=2.0": {"location_weight": 2.0},
    "RootSIFT, alpha=1.2": {"descriptor": "root-sift", "location_weight": 1.2},
    "RootSIFT, alpha=1.6": {"descriptor": "root-sift", "location_weight": 1.6},
    **{f"an octave of size weighs {w}": {"scale_weight": w} for w in (0.0, 0.15, 0.2, 0.3, 0.4)},
    **{f"{n} lists visited": {"index_params": {"n_probes": n}} for n in (4, 16, 32)},
}
"""What changes the features or the index, each at the paper's k."""


def main() -> None:
    """One search serves every way of scoring; what changes the index or the features is fitted anew."""
    parser = options_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--runs", type=Path, default=HERE / "runs")
    parser.add_argument("--finished", action="store_true", help="do no work: record the fits that are done")
    options = parser.parse_args()
    lab = Lab("caltech101", load_caltech101(options.data), options.runs, progress=show)
    accuracy: dict[str, list[float]] = {}
    start = time.perf_counter()
    for seed in options.seeds:
        found = lab.get(part({}, SCORINGS, seed))
        for name, answers in zip(SCORINGS, found["answers"].T, strict=True):
            accuracy.setdefault(name, []).append(mean_per_class(answers, found["truth"]))
        for name, settings in FITS.items():
            wanted = part(settings, PAPER_K, seed)
            if options.finished and not lab.is_finished(wanted):
                continue
            found = lab.get(wanted)
            accuracy.setdefault(name, []).append(mean_per_class(found["answers"][:, 0], found["truth"]))
            print(f"split {seed}, {name}: {accuracy[name][-1]}", file=sys.stderr, flush=True)
    record = make_record(
        "ablations",
        " ".join(
            ["python benchmarks/ablations.py --seeds", *map(str, options.seeds), *["--finished"] * options.finished]
        ),
        settings={"n_train": N_TRAIN, "query_budget": QUERY_BUDGET, "scorings": SCORINGS, "fits": FITS},
        seeds=options.seeds,
        results={"accuracy": accuracy, "n_images": len(found["truth"])},
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "ablations.json", record)


def part(settings: dict[str, Any], scorings: dict[str, dict[str, Any]], seed: int) -> Part:
    """The answers of each way of scoring for the training images of a split, each left out in turn."""
    n_searched = 1 + max(max(knobs["n_neighbors"], knobs.get("background_rank", 0)) for knobs in scorings.values())

    def compute(lab: Lab) -> Arrays:
        train, _ = lab.split(N_TRAIN, N_TRAIN, seed)
        classifier = LocalNBNN(**{"query_budget": QUERY_BUDGET, **settings})
        classifier.fit(train.paths, train.labels, progress=lab.progress)
        n_classes = len(classifier.classes_)

        def answers(vectors: np.ndarray, own: range) -> np.ndarray:
            distances, ids = classifier.index_.search(vectors, n_searched, leave_out=own)
            labels = classifier._image_labels[image_of_id(ids)]
            found = []
            for knobs in scorings.values():
                weights = {"class_weights": classifier._class_weights} if knobs.get("class_weights") else {}
                updates = local_nbnn_updates(distances, labels, **{**knobs, **weights})
                found.append(np.argmin(updates.totals(n_classes)))
            return np.array(found)

        found = classifier._leave_each_out(answers, lab.progress)
        return {"answers": found, "truth": np.array([image.label for image in classifier.images_])}

    wanted = {"seed": seed, "n_train": N_TRAIN, "query_budget": QUERY_BUDGET, "scorings": scorings}
    wanted["fit"] = full_params("local-nbnn", settings)
    return Part("ablation", wanted, compute)


if __name__ == "__main__":
    main()

"""What the response vectors of the two kernels should be: scales, pooling, machines and blend, on Caltech 101.

Cross-validated accuracy on the training images (their responses leave the image itself out) is what chooses; the
accuracy on the test images stands beside it and chooses nothing. Writes results/responses.json. The searches are those
of `lnbnn reproduce table2`, found in runs/ when that was run.

    python benchmarks/responses.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from common import HERE, mean_per_class, options_parser, show

from lnbnn.classifiers.machines import MACHINES, best_c_and_blend, held_out_scores, linear_machines
from lnbnn.datasets.caltech101 import load_caltech101
from lnbnn.experiments.base import Arrays
from lnbnn.experiments.lab import Lab
from lnbnn.experiments.parts import responses_part
from lnbnn.experiments.table2 import SETTINGS
from lnbnn.records import make_record, write_record
from lnbnn.responses import RESPONSES, own_and_response

INPUTS = ("local-nbnn", "nbnn")


def main() -> None:
    """Search once for the training and the test images, then try every response on the same totals."""
    parser = options_parser(__doc__)
    parser.add_argument("--runs", type=Path, default=HERE / "runs")
    parser.add_argument("--train", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    lab = Lab("caltech101", load_caltech101(options.data), options.runs, progress=show)
    split = {"n_train": options.train, "n_test": SETTINGS["n_test"], "seed": options.seed}
    inputs = {name: SETTINGS["params"][name] for name in INPUTS}
    results = {
        name: try_all(lab.get(responses_part(name, split, params)), options.seed) for name, params in inputs.items()
    }
    record = make_record(
        "responses",
        f"python benchmarks/responses.py --train {options.train} --seed {options.seed}",
        settings={"inputs": inputs, **split},
        seeds=[options.seed],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / f"{record.name}.json", record)


def try_all(kept: Arrays, seed: int) -> dict[str, object]:
    """Accuracy of the totals themselves, and of machines on each response: cross-validated and on the test images."""
    labels, truth = kept["labels"], kept["truth"]
    plain = {
        "training images left out": mean_per_class(np.argmin(kept["reference_totals"][:, 0], axis=1), labels),
        "test": mean_per_class(np.argmin(kept["totals"][:, 0], axis=1), truth),
    }
    rows = []
    for n_cells, pooling in ((1, "whole image"), (5, "whole image and quarters")):
        for kind in RESPONSES:
            own, known = vectors(kept["reference_totals"][:, :n_cells], kept["n_reference_descriptors"], kind)
            own_test, asked = vectors(kept["totals"][:, :n_cells], kept["n_descriptors"], kind)
            mean, spread = known.mean(axis=0), known.std(axis=0)
            spread[spread == 0] = 1.0
            known, asked = (known - mean) / spread, (asked - mean) / spread
            for machine in MACHINES:
                held_out = held_out_scores(known, labels, own.shape[1], machine=machine, seed=seed)
                for blend in (0.0, None):
                    n_right, c, weight = best_c_and_blend(held_out, own, labels, blend=blend)
                    coef, intercept = linear_machines(known, labels, own.shape[1], c, machine=machine)
                    scores = asked @ coef.T + intercept + weight * own_test
                    row = {
                        "response": kind,
                        "pooling": pooling,
                        "machine": machine,
                        "blend": "none" if blend == 0 else "chosen",
                        "C": c,
                        "own_weight": round(weight, 4),
                        "cross-validated": round(100 * n_right / len(labels), 2),
                        "test": mean_per_class(np.argmax(scores, axis=1), truth),
                    }
                    print(row, file=sys.stderr, flush=True)
                    rows.append(row)
    return {"input": plain, "machines": rows}


def vectors(totals: np.ndarray, counts: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The own scores and the response vectors of images from their totals."""
    pairs = [own_and_response(of_image, int(n), kind) for of_image, n in zip(totals, counts, strict=True)]
    return np.stack([own for own, _ in pairs]), np.stack([response for _, response in pairs])


if __name__ == "__main__":
    main()

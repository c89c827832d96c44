"""What the response vectors of the two kernels should be: scales, pooling, machines and blend, on Caltech 101.

Cross-validated accuracy on the training images (their responses leave the image itself out) is what chooses; the
accuracy on the test images stands beside it and chooses nothing. Writes results/responses.json. The searches are those
of `lnbnn reproduce table2`, found in runs/ when that was run; what is done is kept there too.

    python benchmarks/responses.py
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
from common import HERE, kept_part, mean_per_class, options_parser, show

from lnbnn.data.caltech101 import load_caltech101
from lnbnn.lab.base import Arrays
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import responses_part
from lnbnn.lab.records import make_record, write_record
from lnbnn.lab.table2 import SETTINGS
from lnbnn.methods.machines import MACHINES, best_c_and_blend, held_out_scores, linear_machines
from lnbnn.methods.responses import RESPONSES, own_and_response

INPUTS = ("local-nbnn", "nbnn")
POOLINGS = {1: "whole image", 5: "whole image and quarters"}


def main() -> None:
    """Search once for the training and the test images, then try every response on the same totals."""
    parser = options_parser(__doc__)
    parser.add_argument("--runs", type=Path, default=HERE / "runs")
    parser.add_argument("--train", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--finished", action="store_true", help="do no work: record the responses that are done")
    options = parser.parse_args()
    start = time.perf_counter()
    lab = Lab("caltech101", load_caltech101(options.data), options.runs, progress=show)
    split = {"n_train": options.train, "n_test": SETTINGS["n_test"], "seed": options.seed}
    inputs = {name: SETTINGS["params"][name] for name in INPUTS}
    results = {}
    for name, params in inputs.items():
        kept = lab.get(responses_part(name, split, params))
        folder = f"responses/{name}-{options.train}-{options.seed}"
        results[name] = try_all(kept, options.seed, folder, finished=options.finished)
    record = make_record(
        "responses",
        f"python benchmarks/responses.py --train {options.train} --seed {options.seed}"
        + " --finished" * options.finished,
        settings={"inputs": inputs, **split},
        seeds=[options.seed],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / f"{record.name}.json", record)


def try_all(kept: Arrays, seed: int, folder: str, *, finished: bool) -> dict[str, object]:
    """Accuracy of the totals themselves, and of machines on each response: cross-validated and on the test images."""
    plain = {
        "training images left out": mean_per_class(np.argmin(kept["reference_totals"][:, 0], axis=1), kept["labels"]),
        "test": mean_per_class(np.argmin(kept["totals"][:, 0], axis=1), kept["truth"]),
    }
    rows: list[dict[str, object]] = []
    for n_cells, kind, machine in itertools.product(POOLINGS, RESPONSES, MACHINES):
        name = f"{folder}/{kind}-{n_cells}-{machine}"
        if finished and not (HERE / "runs" / f"{name}.json").exists():
            continue
        done = kept_part(
            name,
            lambda n=n_cells, k=kind, m=machine: {"rows": try_one(kept, seed, n, k, m)},
        )
        rows += done["rows"]
    return {"input": plain, "machines": rows}


def try_one(kept: Arrays, seed: int, n_cells: int, kind: str, machine: str) -> list[dict[str, object]]:
    """Machines on one response, without and with a share of the input's own scores."""
    labels, truth = kept["labels"], kept["truth"]
    own, known = vectors(kept["reference_totals"][:, :n_cells], kept["n_reference_descriptors"], kind)
    own_test, asked = vectors(kept["totals"][:, :n_cells], kept["n_descriptors"], kind)
    mean, spread = known.mean(axis=0), known.std(axis=0)
    spread[spread == 0] = 1.0
    known, asked = (known - mean) / spread, (asked - mean) / spread
    held_out = held_out_scores(known, labels, own.shape[1], machine=machine, seed=seed)
    rows: list[dict[str, object]] = []
    for blend in (0.0, None):
        n_right, c, weight = best_c_and_blend(held_out, own, labels, blend=blend)
        coef, intercept = linear_machines(known, labels, own.shape[1], c, machine=machine)
        scores = asked @ coef.T + intercept + weight * own_test
        rows.append(
            {
                "response": kind,
                "pooling": POOLINGS[n_cells],
                "machine": machine,
                "blend": "none" if blend == 0 else "chosen",
                "C": c,
                "own_weight": round(weight, 4),
                "cross-validated": round(100 * n_right / len(labels), 2),
                "test": mean_per_class(np.argmax(scores, axis=1), truth),
            }
        )
    return rows


def vectors(totals: np.ndarray, counts: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The own scores and the response vectors of images from their totals."""
    pairs = [own_and_response(of_image, int(n), kind) for of_image, n in zip(totals, counts, strict=True)]
    return np.stack([own for own, _ in pairs]), np.stack([response for _, response in pairs])


if __name__ == "__main__":
    main()

"""What the response vectors of the two kernels should be: scales, pooling, classifiers and blend, on Caltech 101.

Cross-validated accuracy on the training images (their responses leave the image itself out) is what chooses; the
accuracy on the test images stands beside it and chooses nothing. The searches are those of `lnbnn reproduce table2`,
found in runs/ when that was run.
"""

from functools import partial
from itertools import product
from typing import Any

from common import benchmark, table

from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings, table2
from lnbnn.lab.parts import accuracy, response_rows, responses_part
from lnbnn.methods.linear_classifiers import LINEAR_CLASSIFIERS, best_c_and_blend, fit_linear, held_out_scores
from lnbnn.methods.responses import RESPONSES

POOLINGS = {1: "whole image", 5: "whole image and quarters"}
SETTINGS: Settings = {"n_train": 15, "n_test": table2.METHODS.settings["n_test"], "seed": 0}
SEARCHES = table2.METHODS.settings["params"] | table2.NBNN.settings["params"]
SETTINGS |= {"inputs": {name: SEARCHES[name] for name in ("local-nbnn", "nbnn")}}
SETTINGS |= {"responses": list(RESPONSES), "machines": list(LINEAR_CLASSIFIERS)}
QUICK: Settings = {"n_train": 5, "n_test": 3, "inputs": {"local-nbnn": {"query_budget": 50}}}
QUICK |= {"responses": ["unit"], "machines": ["logistic"]}


def plan(settings: Settings) -> list[Part]:
    """Search once for the training and the test images, then try every response on the same totals."""
    split = {key: settings[key] for key in ("n_train", "n_test", "seed")}
    parts = []
    for name, params in settings["inputs"].items():
        searched = responses_part(name, split, params)
        parts.append(searched)
        for n_cells, response, machine in product(POOLINGS, settings["responses"], settings["machines"]):
            own = searched.settings | {"n_cells": n_cells, "response": response, "machine": machine}
            parts.append(Part(f"{name} response", own, partial(compute, searched)))
    return parts


def compute(searched: Part, lab: Lab, settings: Settings) -> Outcome:
    """LinearClassifier on one response, without and with a share of the input's own scores."""
    kept = lab.get(searched)
    n_cells, response, machine, labels = *(settings[key] for key in ("n_cells", "response", "machine")), kept["labels"]
    own, known = response_rows(kept["reference_totals"], kept["n_reference_descriptors"], response, n_cells)
    own_test, asked = response_rows(kept["totals"], kept["n_descriptors"], response, n_cells)
    mean, spread = known.mean(axis=0), known.std(axis=0)
    spread[spread == 0] = 1.0
    known, asked = (known - mean) / spread, (asked - mean) / spread
    held_out = held_out_scores(known, labels, own.shape[1], kind=machine, seed=settings["seed"])
    rows = []
    for blend in (0.0, None):
        n_right, c, weight = best_c_and_blend(held_out, own, labels, blend=blend)
        coef, intercept = fit_linear(known, labels, own.shape[1], c, kind=machine)
        row = {"response": response, "pooling": POOLINGS[n_cells], "machine": machine}
        row |= {"blend": "none" if blend == 0 else "chosen", "C": c, "own_weight": round(weight, 4)}
        row["cross-validated"] = round(100 * n_right / len(labels), 2)
        row["test"] = accuracy(asked @ coef.T + intercept + weight * own_test, kept["truth"])
        rows.append(row)
    return {"rows": rows}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """Of each input: the accuracy of its totals themselves, and of linear classifiers on each response."""
    results: dict[str, Any] = {}
    for part, found in outcomes:
        if "rows" in found:
            results[part.kind.removesuffix(" response")]["machines"] += found["rows"]
        else:
            plain = {"training images left out": accuracy(-found["reference_totals"][:, 0], found["labels"])}
            plain["test"] = accuracy(-found["totals"][:, 0], found["truth"])
            results[part.kind.removesuffix("-responses")] = {"input": plain, "machines": []}
    return results


def tabulate(results: Results) -> str:
    rows = []
    for name, found in results.items():
        plain = found["input"]
        shares = [f"{plain['training images left out']:.1f}", f"{plain['test']:.1f}"]
        rows.append([f"`{name}`", "none | | |", *shares])
        for machine in sorted({row["machine"] for row in found["machines"]}):
            for blend in ("none", "chosen"):
                tried = [row for row in found["machines"] if (row["machine"], row["blend"]) == (machine, blend)]
                best = max(tried, key=lambda row: row["cross-validated"])
                cells = [machine, "yes" if blend == "chosen" else "no", best["response"], best["pooling"]]
                rows.append([f"`{name}`", *cells, f"{best['cross-validated']:.1f}", f"{best['test']:.1f}"])
    header = "input | classifier | own score blended in | response | pooled over | cross-validated, % | test, %"
    return table(header, rows)


EXPERIMENT = benchmark(globals())

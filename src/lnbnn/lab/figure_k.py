"""The figure on k: accuracy against the number of neighbours, from one search at the largest."""

from __future__ import annotations

from typing import Any

import numpy as np

from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.lab.base import Arrays, Experiment, Part, markdown_table, mean_sd
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import accuracy, full_params, truth_of
from lnbnn.reading.extraction import features_of, map_in_order
from lnbnn.scoring import local_nbnn_updates

__all__ = ["EXPERIMENT"]

SETTINGS: dict[str, Any] = {
    "n_train": 15,
    "n_test": 15,
    "seeds": [0, 1, 2],
    "n_neighbors": [1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400],
    "params": {"scale_weight": 0.0, "query_budget": 300, "index_params": {"n_probes": 8}},
}
QUICK: dict[str, Any] = {
    "n_train": 4,
    "n_test": 4,
    "seeds": [0],
    "n_neighbors": [1, 3, 10, 30, 100],
    "params": {"scale_weight": 0.0, "query_budget": 100},
}
PAPER = {"best k": "about 10", "at several hundred": "back to NBNN"}


def plan(settings: dict[str, Any]) -> list[Part]:
    """One part a split."""
    own = {key: settings[key] for key in ("n_train", "n_test", "n_neighbors")}
    own["params"] = full_params("local-nbnn", settings["params"])
    return [Part("every-k", own | {"seed": seed}, _compute(seed, settings)) for seed in settings["seeds"]]


def _compute(seed: int, settings: dict[str, Any]):  # type: ignore[no-untyped-def]
    def compute(lab: Lab) -> Arrays:
        """Totals of the test images for every k."""
        train, test = lab.split(settings["n_train"], settings["n_test"], seed)
        largest = max(settings["n_neighbors"])
        classifier = LocalNBNN(largest, **settings["params"], n_jobs=lab.n_jobs)
        classifier.fit(train.paths, train.labels, store=lab.store, progress=lab.progress)
        n_classes = len(classifier.classes_)

        def work(path: str) -> list[np.ndarray]:
            distances, labels = classifier.neighbors(features_of(path, classifier.descriptor_, lab.store))
            return [local_nbnn_updates(distances, labels, k).totals(n_classes) for k in settings["n_neighbors"]]

        found = []
        for totals in map_in_order(work, test.paths, lab.n_jobs):
            found.append(totals)
            lab.progress("classifying", len(found), len(test))
        return {"truth": truth_of(classifier, test), "totals": np.array(found, dtype=np.float32)}

    return compute


def summarize(settings: dict[str, Any], outcomes: list[tuple[Part, Arrays]]) -> dict[str, Any]:
    """The accuracy of each split at every k, and the k with the best mean."""
    curves = {
        str(k): [accuracy(-arrays["totals"][:, place], arrays["truth"]) for _, arrays in outcomes]
        for place, k in enumerate(settings["n_neighbors"])
    }
    best = max(curves, key=lambda k: float(np.mean(curves[k])))
    return {"accuracy": curves, "best_k": int(best)}


def tabulate(results: dict[str, Any]) -> str:
    """One column a k."""
    curves = results["accuracy"]
    return markdown_table(["k", *curves], [["accuracy, %", *(mean_sd(values) for values in curves.values())]])


EXPERIMENT = Experiment(
    name="figure-k",
    title="Accuracy against k",
    settings=SETTINGS,
    quick=QUICK,
    paper=PAPER,
    plan=plan,
    summarize=summarize,
    tabulate=tabulate,
    draw="k_figure",
)

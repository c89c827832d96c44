"""The figure on k: accuracy against the number of neighbors, from one search at the largest."""

from __future__ import annotations

from typing import Any

import numpy as np

from lnbnn.lab.axes import RED, new_plot, plain_ticks
from lnbnn.lab.base import Experiment, Outcome, Outcomes, Part, Results, Settings, markdown_table, mean_sd
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import accuracy, full_params, truth_of
from lnbnn.reading.extraction import features_of
from lnbnn.scoring import local_nbnn_updates

__all__ = ["EXPERIMENT"]

SETTINGS: Settings = {
    "n_train": 15,
    "n_test": 15,
    "seeds": [0, 1, 2],
    "n_neighbors": [1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400],
    "params": {"scale_weight": 0.0, "query_budget": 300, "index_params": {"n_probes": 8}},
}
QUICK: Settings = {"n_train": 4, "n_test": 4, "seeds": [0], "n_neighbors": [1, 3, 10, 30, 100]}
QUICK["params"] = {"scale_weight": 0.0, "query_budget": 100}
PAPER = {"best k": "about 10", "at several hundred": "back to NBNN"}


def plan(settings: Settings) -> list[Part]:
    """One part per split."""
    own = {key: settings[key] for key in ("n_train", "n_test", "n_neighbors")}
    own["params"] = full_params("local-nbnn", settings["params"])
    return [Part("every-k", own | {"seed": seed}, compute) for seed in settings["seeds"]]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Totals of the test images for every k."""
    train, test = lab.split_of(settings)
    classifier = lab.fit("local-nbnn", settings["params"], train, n_neighbors=max(settings["n_neighbors"]))
    n_classes = len(classifier.classes_)

    def work(path: str) -> list[np.ndarray]:
        distances, labels = classifier.neighbors(features_of(path, classifier.descriptor_, lab.store))
        return [local_nbnn_updates(distances, labels, k).totals(n_classes) for k in settings["n_neighbors"]]

    totals = lab.ask(work, test.paths, classifier.descriptor_)
    return {"truth": truth_of(classifier, test), "totals": np.array(totals, dtype=np.float32)}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """The accuracy of each split at every k, and the k with the best mean."""
    curves = {
        str(k): [accuracy(-arrays["totals"][:, place], arrays["truth"]) for _, arrays in outcomes]
        for place, k in enumerate(settings["n_neighbors"])
    }
    best = max(curves, key=lambda k: float(np.mean(curves[k])))
    return {"accuracy": curves, "best_k": int(best)}


def tabulate(results: Results) -> str:
    """One column per k."""
    curves = results["accuracy"]
    return markdown_table(["k", *curves], [["accuracy, %", *(mean_sd(values) for values in curves.values())]])


def draw(results: Results) -> Any:
    """Accuracy against k: the mean over the splits and one standard deviation."""
    figure, axes = new_plot("k, neighbors retrieved from the merged index", "mean per-class accuracy, %")
    ks = np.array([int(k) for k in results["accuracy"]])
    values = [np.asarray(splits) for splits in results["accuracy"].values()]
    means = np.array([splits.mean() for splits in values])
    axes.plot(ks, means, "o-", color=RED, ms=4)
    if len(values[0]) > 1:
        spread = np.array([splits.std(ddof=1) for splits in values])
        axes.fill_between(ks, means - spread, means + spread, color=RED, alpha=0.15, lw=0)
    best = results["best_k"]
    axes.axvline(best, color="#999999", lw=0.8, ls=":")
    axes.annotate(f"best: k = {best}", (best, means.max()), (6, 6), textcoords="offset points", fontsize=9)
    axes.margins(y=0.15)
    axes.set_xscale("log")
    plain_ticks(axes, ks)
    return figure


EXPERIMENT = Experiment("figure-k", "Accuracy against k", SETTINGS, plan, summarize, tabulate, QUICK, PAPER, draw)

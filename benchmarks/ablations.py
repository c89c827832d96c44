"""What each knob of Local NBNN is worth, on training images only.

Each of the 15 training images per class of a split is asked about with its own descriptors left out of the index. The
test images are not touched, so that what is found here may choose defaults. One search serves every way of scoring;
what changes the index or the features is fitted again. ``--dataset caltech256 --classes 128`` is the other set.
"""

import statistics
from itertools import product

import numpy as np
from common import benchmark, respelled, table

from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.lab.parts import full_params, share_right
from lnbnn.params import preset_params
from lnbnn.scoring import local_nbnn_updates

SCORINGS: dict[str, Settings] = {  # ways to score the neighbors that one search finds, of the default fit
    "k=10, the paper's": {"n_neighbors": 10},
    **{f"k={k}": {"n_neighbors": k} for k in (1, 3, 5, 7, 15, 20, 30, 40, 60)},
}
BINS = ("4 6 9", "4 6 9 14", "4 6 9 14 21", "6 9 14 21 31", "6 9 14 21", "6 9 14 21 31 46")
PAPER_K = {"k=10": {"n_neighbors": 10}}

FITS: dict[str, Settings] = {  # what changes the features or the index, each at the paper's k
    **{f"bins {bins}": {"descriptor_params": {"bin_sizes": [int(size) for size in bins.split()]}} for bins in BINS},
    "grid every 6 px": {"descriptor_params": {"step_px": 6}},
    "grid every 6 px, 1,500 query descriptors": {"descriptor_params": {"step_px": 6}, "query_budget": 1500},
    "1,500 query descriptors": {"query_budget": 1500},
    "grid every 12 px": {"descriptor_params": {"step_px": 12}},
    **{f"longest side {side}": {"descriptor_params": {"longest_side": side}} for side in (240, 360)},
    **{f"contrast {least:g}": {"descriptor_params": {"min_contrast": least}} for least in (1.0, 4.0)},
    **{f"alpha={alpha}": {"location_weight": alpha} for alpha in (1.2, 2.0)},
    **{f"RootSIFT, alpha={a}": {"descriptor": "root-sift", "location_weight": a} for a in (1.2, 1.6)},
    **{f"an octave of size weighs {w}": {"scale_weight": w} for w in (0.0, 0.15, 0.2, 0.3, 0.4)},
    "the authors' grid, every query descriptor, sizes ignored": preset_params("paper"),
    **{f"{n} lists visited": {"index_params": {"n_probes": n}} for n in (4, 16, 32)},
}
SETTINGS: Settings = {"n_train": 15, "n_classes": 101, "query_budget": 500, "seeds": [0, 1]}
SETTINGS |= {"scorings": SCORINGS, "fits": FITS}
QUICK: Settings = {
    "n_train": 4,
    "n_classes": 3,
    "query_budget": 50,
    "seeds": [0],
    "fits": {"alpha=1.2": {"location_weight": 1.2}},
}


def plan(settings: Settings) -> list[Part]:
    """Of each split one part for all ways of scoring, then one per fit."""
    parts = []
    for seed, (name, fit) in product(settings["seeds"], fits_of(settings).items()):
        own = {key: settings[key] for key in ("n_train", "n_classes", "query_budget")} | {"seed": seed}
        own |= {"scorings": PAPER_K if name else settings["scorings"], "fit": fit}
        parts.append(Part("ablation", own, compute))
    return parts


def fits_of(settings: Settings) -> dict[str, Settings]:
    """All parameters of each fit; that of the defaults has no name."""
    every = {"": {}, **settings["fits"]}
    return {
        name: full_params("local-nbnn", {"query_budget": settings["query_budget"], **fit})
        for name, fit in every.items()
    }


def compute(lab: Lab, settings: Settings) -> Outcome:
    """The answers of each way of scoring for the training images of a split, each left out in turn."""
    scorings = settings["scorings"].values()
    n_searched = 1 + max(knobs["n_neighbors"] for knobs in scorings)
    classes = lab.shuffled_classes(settings["seed"])[: settings["n_classes"]]
    train, _ = lab.split_of(settings | {"n_test": 1}, classes)
    classifier = lab.fit("local-nbnn", settings["fit"], train, keep_features=False)

    def answers(vectors: np.ndarray, own: range) -> np.ndarray:
        distances, labels = classifier.matching_.neighbors(vectors, own, n_searched)
        totals = (local_nbnn_updates(distances, labels, **knobs).totals(len(classifier.classes_)) for knobs in scorings)
        return np.array([np.argmin(row) for row in totals])

    found = classifier.matching_.leave_each_out(answers, lab.progress)
    return {"answers": found, "truth": classifier.places_}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    names = {str(fit): name for name, fit in fits_of(settings).items()}
    accuracy: dict[str, list[float]] = {}
    for part, found in outcomes:
        fit = names[str(part.settings["fit"])]
        row = [fit] if fit else list(part.settings["scorings"])
        for name, answers in zip(row, found["answers"].T, strict=True):
            accuracy.setdefault(name, []).append(share_right(answers, found["truth"]))
    return {"accuracy": accuracy, "n_images": len(outcomes[0][1]["truth"])}


def tabulate(results: Results) -> str:
    means = {name: statistics.mean(values) for name, values in results["accuracy"].items()}
    usual = next(iter(means.values()))
    n_splits = len(next(iter(results["accuracy"].values())))
    rows = [[respelled(name), f"{value:.1f}", f"{value - usual:+.1f}"] for name, value in means.items()]
    return table("setting | accuracy, % | against the first row", rows) + (
        f"\n{results['n_images']:,} training images, each left out of the index in turn, {n_splits} "
        f"split{'s' if n_splits > 1 else ''}, 500 query descriptors per image: a difference below one point is "
        "within the noise."
    )


EXPERIMENT = benchmark(globals())

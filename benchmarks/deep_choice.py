"""How the settings of deep Local NBNN, and what is fused with it, were chosen: on training images alone.

Of the 15 training images per class of each split, 10 are the model and 5 are held out; the test images are not looked
at.
"""

import statistics
from typing import Any

from common import benchmark, grouped, make, parts_over, table
from deep import DEEP, FUSED

from lnbnn.data.splits import split_images
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.parts import accuracy, truth_of


def cells(descriptor: str = "deep", descriptor_params: Settings | None = None, **changes: Any) -> list[Any]:
    """Local NBNN of the preset ``deep`` with some settings changed."""
    return ["local-nbnn", DEEP | {"descriptor": descriptor, "descriptor_params": descriptor_params or {}} | changes]


TRIALS: Settings = {
    "the preset": cells(),
    "224 pixels": cells("deep", {"longest_side": 224}),
    "384 pixels": cells("deep", {"longest_side": 384}),
    "stage 7": cells("deep@stage7"),
    "stage 6, 384 pixels": cells("deep@stage6", {"longest_side": 384}),
    "64 components": cells("deep", {"n_components": 64}),
    "256 components": cells("deep", {"n_components": 256}),
    "half whitened": cells("deep", {"whitening": 0.5}),
    "location weight 0.7": cells(location_weight=0.7),
    "location weight 1.8": cells(location_weight=1.8),
    "k = 10": cells(n_neighbors=10),
    "k = 40": cells(n_neighbors=40),
    "local-nbnn-kernel": ["local-nbnn-kernel", DEEP],
    "pooled-svm": FUSED["pooled"],
    "fused with stage 6": {name: FUSED[name] for name in ("cells", "finer")},
    "fused with pooled-svm": {name: FUSED[name] for name in ("cells", "pooled")},
    "fused with both": FUSED,
}
SETTINGS: Settings = {"n_known": 10, "n_held_out": 5, "n_test": 15, "seeds": [0, 1]}
SETTINGS["trials"] = {name: {"recipe": recipe} for name, recipe in TRIALS.items()}
QUICK: Settings = {"n_known": 3, "n_held_out": 2, "n_test": 1, "seeds": [0]}
QUICK["trials"] = {name: SETTINGS["trials"][name] for name in ("the preset", "fused with pooled-svm")}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """The accuracy of one trial on the images held out."""
    n_known, n_held_out, seed = settings["n_known"], settings["n_held_out"], settings["seed"]
    train, _ = lab.split_of(settings | {"n_train": n_known + n_held_out})
    known, held = split_images(train, n_train=n_known, n_test=n_held_out, seed=seed)
    classifier = make(settings["recipe"]).fit(known.paths, known.labels, store=lab.store, progress=lab.progress)
    scores = classifier.decision_function(held.paths, store=lab.store)
    return {"accuracy": accuracy(scores, truth_of(classifier, held))}


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    found = {name: [one["accuracy"] for one in runs] for name, runs in grouped(outcomes, "trial").items()}
    return {"accuracy_mean": {name: round(statistics.mean(of), 2) for name, of in found.items()}, "accuracy": found}


def tabulate(results: Results) -> str:
    rows = [[name, f"{value:.1f}"] for name, value in results["accuracy_mean"].items()]
    return table("trial | held-out accuracy, %", rows)


EXPERIMENT = benchmark(globals(), plan=parts_over("deep-choice", compute, seeds="seed", trials="trial"))

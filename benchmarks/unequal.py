"""Unequal classes on purpose: Caltech 101 with 5 training images in half of the classes and 25 in the rest.

Each seed chooses classes and images; each choice is run twice, so that every class is once small and once large.
Writes results/unequal.json. Each finished run is kept in runs/ at once, so that a run that was stopped goes on.

    python benchmarks/unequal.py --seeds 0 1

The defaults of nbnn-affine are chosen on training images of classes that no seed above draws, and recorded in
results/unequal-choice.json. The distances of every image to every other are kept in runs/, so that a further setting
costs next to nothing.

    python benchmarks/unequal.py --choose
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from common import options_parser, show

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.data.caltech101 import load_caltech101
from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.descriptors import make_descriptor
from lnbnn.features import append_location
from lnbnn.files.atomic import atomic_path
from lnbnn.lab.records import make_record, write_record
from lnbnn.methods.affine_correction import apply_affine, fit_affine
from lnbnn.params import resolve
from lnbnn.reading.extraction import iter_features
from lnbnn.reading.store import FeatureStore
from lnbnn.trust.evaluation import evaluate

HERE = Path(__file__).resolve().parent.parent
N_CLASSES, N_SMALL, N_LARGE, N_TEST = 20, 5, 25, 15
SEEDS = [0, 1]
MODEL = {
    "descriptor_params": {"bin_sizes": [8, 16], "step_px": 10},
    "index_params": {"n_probes": 4},
    "query_budget": 100,
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "nbnn": ("nbnn", {}),
    "nbnn-affine": ("nbnn-affine", {}),
    "local-nbnn": ("local-nbnn", {}),
    "local-nbnn, normalize_classes": ("local-nbnn", {"normalize_classes": True}),
}
REGULARIZATIONS = (0.001, 0.003, 0.01, 0.03, 0.1)
BALANCES = (0.0, 0.25, 0.5, 0.75, 1.0)
TOLERANCE = 0.5  # points of accuracy within which settings count as equal: then the most even answers decide
CHOICE_SEED, N_DRAWS, N_HELD = 100, 2, 5
MEASURES = ("accuracy", "accuracy_small", "accuracy_large", "answers_large")


def main() -> None:
    """Run the seeds asked for and write their record."""
    parser = options_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--choose", action="store_true", help="choose the defaults of nbnn-affine instead")
    options = parser.parse_args()
    data = load_caltech101(options.data)
    if options.choose:
        choose(data)
        return
    start = time.perf_counter()
    runs = []
    for seed in options.seeds:
        for swapped in (False, True):
            kept = HERE / "runs" / "unequal" / f"seed{seed}{'-swapped' if swapped else ''}.json"
            if not kept.exists():
                result = run(data, seed, swapped)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(result), encoding="utf-8")
            runs.append(json.loads(kept.read_text(encoding="utf-8")))
    results: dict[str, Any] = {
        method: {measure: round(mean(run[method][measure] for run in runs), 2) for measure in MEASURES}
        for method in METHODS
    }
    command = f"python benchmarks/unequal.py --seeds {' '.join(map(str, options.seeds))}"
    sizes = {"n_classes": N_CLASSES, "n_train_small": N_SMALL, "n_train_large": N_LARGE, "n_test": N_TEST}
    record = make_record(
        "unequal",
        command,
        settings={**sizes, "model": MODEL},
        seeds=options.seeds,
        results={**results, "runs": runs},
        seconds=sum(run["seconds"] for run in runs) or time.perf_counter() - start,
    )
    write_record(HERE / "results" / "unequal.json", record)
    for method in METHODS:
        print(method, results[method])


def run(data: LabelledImages, seed: int, swapped: bool) -> dict[str, Any]:
    """One choice of classes and images, one choice of which are small; percentages a method."""
    start = time.perf_counter()
    chosen = classes_of(data, seed)
    halves = [chosen[: N_CLASSES // 2], chosen[N_CLASSES // 2 :]]
    small, large = reversed(halves) if swapped else halves
    train_small, test_small = split_images(only(data, small), n_train=N_SMALL, n_test=N_TEST, seed=seed)
    train_large, test_large = split_images(only(data, large), n_train=N_LARGE, n_test=N_TEST, seed=seed)
    paths, labels = train_small.paths + train_large.paths, train_small.labels + train_large.labels
    test_paths, test_labels = test_small.paths + test_large.paths, test_small.labels + test_large.labels
    store = FeatureStore(HERE / "runs" / "unequal" / "features")
    result: dict[str, Any] = {"seed": seed, "small": sorted(small), "large": sorted(large)}
    for name, (method, changes) in METHODS.items():
        classifier = resolve(CLASSIFIERS, method, "method")(**MODEL, **changes).fit(paths, labels, store=store)
        outcome = evaluate(classifier, test_paths, test_labels, store=store)
        answers = dict(zip(outcome.answers, outcome.confusion.sum(axis=0).tolist(), strict=True))
        result[name] = {
            "accuracy": round(100 * outcome.mean_per_class_accuracy, 2),
            "accuracy_small": round(100 * mean(outcome.per_class[label] for label in small), 2),
            "accuracy_large": round(100 * mean(outcome.per_class[label] for label in large), 2),
            "answers_large": round(100 * sum(answers[label] for label in large) / outcome.n_images, 2),
        }
        print(f"seed {seed}, swapped {swapped}, {name}: {result[name]}", file=sys.stderr, flush=True)
    return {**result, "seconds": round(time.perf_counter() - start, 1)}


def large_enough(data: LabelledImages) -> list[str]:
    """The classes with images enough to be large ones."""
    return sorted(label for label, n in Counter(data.labels).items() if n >= N_LARGE + N_TEST)


def classes_of(data: LabelledImages, seed: int) -> list[str]:
    """The classes that a seed draws."""
    return np.random.default_rng(seed).permutation(large_enough(data))[:N_CLASSES].tolist()


def only(data: LabelledImages, labels: list[str]) -> LabelledImages:
    """The images of these classes."""
    kept = [place for place, label in enumerate(data.labels) if label in labels]
    return LabelledImages(tuple(data.paths[i] for i in kept), tuple(data.labels[i] for i in kept))


# ---- the choice of the defaults --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draw:
    """Training images of classes that no test uses, and the distance of each query descriptor to each image."""

    labels: np.ndarray
    """The class of each image, from 0."""
    ends: np.ndarray
    """Where the query descriptors of each image end."""
    nearest: np.ndarray
    """Squared distance of each query descriptor to its nearest neighbour in each image."""

    def to_classes(self, image: int, members: Iterable[np.ndarray]) -> list[float]:
        """The mean distance of an image to classes, each given by its images; the image itself counts where it is."""
        rows = self.nearest[self.ends[image - 1] if image else 0 : self.ends[image]]
        return [float(rows[:, images].min(axis=1).mean()) for images in members]


@dataclass(frozen=True)
class Trial:
    """An unequal training set, its distances under each way of leaving out, and images held out of it."""

    is_small: np.ndarray
    labels: np.ndarray
    distances: dict[str, np.ndarray]
    held_out: np.ndarray
    truth: np.ndarray


def choose(data: LabelledImages) -> None:
    """Compare settings of nbnn-affine on held-out training images, and record the comparison."""
    start = time.perf_counter()
    trials = [trial for number in range(N_DRAWS) for trial in trials_of(read_draw(data, number))]
    settings = [
        {"left_out": left_out, "balance": balance, "regularization": value}
        for left_out in LEFT_OUT
        for balance in BALANCES
        for value in REGULARIZATIONS
    ]
    rows = [{**dict.fromkeys(settings[0]), **means([measure(t, t.held_out.argmin(axis=1)) for t in trials])}]
    for setting in settings:
        rows.append({**setting, **means([answer(trial, **setting) for trial in trials])})
        print(rows[-1], file=sys.stderr, flush=True)
    best = max(row["accuracy"] for row in rows)
    equal = [row for row in rows[1:] if row["accuracy"] >= best - TOLERANCE]
    chosen = min(equal, key=lambda row: (abs(row["answers_large"] - 50.0), -row["accuracy"]))
    sizes = {"n_classes": N_CLASSES, "n_train_small": N_SMALL, "n_train_large": N_LARGE - N_HELD, "n_held_out": N_HELD}
    record = make_record(
        "unequal-choice",
        "python benchmarks/unequal.py --choose",
        settings={**sizes, "n_draws": N_DRAWS, "tolerance": TOLERANCE, "model": MODEL},
        seeds=[CHOICE_SEED],
        results={"chosen": chosen, "settings": rows, "n_trials": len(trials)},
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "unequal-choice.json", record)
    print("chosen:", chosen)


def read_draw(data: LabelledImages, number: int) -> Draw:
    """The training images of the draw; distances from runs/, where they are, or by exact search."""
    tested = {label for seed in SEEDS for label in classes_of(data, seed)}
    others = sorted(set(large_enough(data)) - tested)
    order = np.random.default_rng(CHOICE_SEED).permutation(others)
    labels = sorted(order[N_CLASSES * number : N_CLASSES * (number + 1)].tolist())
    train, _ = split_images(only(data, labels), n_train=N_LARGE, n_test=N_TEST, seed=CHOICE_SEED)
    kept = HERE / "runs" / "unequal" / f"choice{number}.npz"
    if not kept.exists():
        descriptor = make_descriptor("dense-sift", MODEL["descriptor_params"])
        found = iter_features(train.paths, descriptor, store=FeatureStore(kept.parent / "features"))
        vectors = [append_location(features, 1.6).astype(np.float32) for features in found]
        sizes = [min(len(v), MODEL["query_budget"]) for v in vectors]
        rows = [np.random.default_rng(0).choice(len(v), n, replace=False) for v, n in zip(vectors, sizes, strict=True)]
        queries = np.vstack([v[row] for v, row in zip(vectors, rows, strict=True)])
        nearest = np.empty((len(queries), len(vectors)), dtype=np.float32)
        for image, reference in enumerate(vectors):
            nearest[:, image] = ((reference**2).sum(axis=1) - 2.0 * queries @ reference.T).min(axis=1)
            show(f"draw {number}", image + 1, len(vectors))
        nearest += (queries**2).sum(axis=1)[:, None]
        with atomic_path(kept) as partial, open(partial, "wb") as file:
            np.savez(file, nearest=nearest, ends=np.cumsum(sizes))
    with np.load(kept, allow_pickle=False) as arrays:
        places = np.unique(train.labels, return_inverse=True)[1]
        return Draw(places, arrays["ends"], arrays["nearest"])


def trials_of(draw: Draw) -> Iterator[Trial]:
    """Five folds, each class once small and once large: N_HELD images of a class held out, the others to train on."""
    rng = np.random.default_rng(CHOICE_SEED)
    images = [rng.permutation(np.flatnonzero(draw.labels == label)) for label in range(N_CLASSES)]
    half = np.isin(np.arange(N_CLASSES), rng.permutation(N_CLASSES)[: N_CLASSES // 2])
    for fold in range(N_LARGE // N_HELD):
        turned = [np.roll(members, -N_HELD * fold) for members in images]
        held_out = np.concatenate([members[:N_HELD] for members in turned])
        for is_small in (half, ~half):
            train = [
                members[N_HELD : N_HELD + N_SMALL] if small else members[N_HELD:]
                for members, small in zip(turned, is_small, strict=True)
            ]
            yield Trial(
                is_small,
                np.repeat(np.arange(N_CLASSES), [len(members) for members in train]),
                {name: np.array(list(left_out(draw, train))) for name, left_out in LEFT_OUT.items()},
                np.array([draw.to_classes(image, train) for image in held_out]),
                draw.labels[held_out],
            )


def leave_own_out(draw: Draw, train: list[np.ndarray]) -> Iterator[list[float]]:
    """Each training image left out of its own class, all others whole."""
    for image in np.concatenate(train):
        yield draw.to_classes(image, [members[members != image] for members in train])


def leave_one_of_each_out(draw: Draw, train: list[np.ndarray]) -> Iterator[list[float]]:
    """Every class one image short: its own lacks the image itself, each other class one of its images in turn."""
    for own in train:
        for place, image in enumerate(own):
            yield draw.to_classes(image, [np.delete(members, place % len(members)) for members in train])


def answer(trial: Trial, left_out: str, balance: float, regularization: float) -> dict[str, float]:
    """The measures of one setting on the held-out images of one trial."""
    distances = trial.distances[left_out]
    learnt = fit_affine(distances, trial.labels, regularization=regularization, balance=balance)
    return measure(trial, apply_affine(trial.held_out, *learnt).argmin(axis=1))


def measure(trial: Trial, answers: np.ndarray) -> dict[str, float]:
    """Percentages: right answers of all, small and large classes, and answers that went to the large."""
    right = [100.0 * np.mean(answers[trial.truth == label] == label) for label in range(N_CLASSES)]
    parts = np.mean(right), np.mean(np.array(right)[trial.is_small]), np.mean(np.array(right)[~trial.is_small])
    return dict(zip(MEASURES, [*map(float, parts), 100.0 * float(np.mean(~trial.is_small[answers]))], strict=True))


def means(found: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each measure, to two decimals."""
    return {name: round(mean(one[name] for one in found), 2) for name in MEASURES}


LEFT_OUT = {"own": leave_own_out, "one of each class": leave_one_of_each_out}


if __name__ == "__main__":
    main()

"""Does the audit find wrong labels? Labels of Caltech 101 are swapped on purpose.

15 training images of each of 101 classes; one image in twenty, then one in ten, gets the label of another class: any,
or the one most like its own, which ridge regression on the network's cells takes it for if its own is left out. Models
are fitted on the swapped labels. What the audit lists is compared with what was swapped.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from common import benchmark, grouped, mean_of, parts_over, table

from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.data.folder import LabeledImages
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.trust.audit import audit

SETTINGS: Settings = {"presets": ["auto", "balanced", "deep"], "seeds": [0, 1, 2], "n_train": 15}
SETTINGS |= {"swaps": {"any 0.05": 0.05, "any 0.1": 0.1, "like 0.05": 0.05}, "levels": [0.3, 0.5, 0.7, 0.9]}
QUICK: Settings = {"presets": ["balanced"], "seeds": [0], "n_train": 5, "swaps": {"any 0.05": 0.05}}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """What the audit finds of the labels swapped in one split, for each way of swapping."""
    train, _ = lab.split_of(settings | {"n_test": 1})
    found: Outcome = {"n_images": len(train), "swapped": {}}
    for way, share in settings["swaps"].items():
        rng = np.random.default_rng([settings["seed"], round(100 * share)])
        swapped = sorted(rng.choice(len(train), round(share * len(train)), replace=False).tolist())
        likest = likest_classes(lab, train) if way.startswith("like") else None
        labels = list(train.labels)
        for place in swapped:
            others = sorted(set(train.labels) - {train.labels[place]})
            labels[place] = others[rng.integers(len(others))] if likest is None else likest[place]
        model = lab.fit_preset(settings, replace(train, labels=tuple(labels)))
        found["swapped"][way] = found_of(model, train, swapped, settings["levels"], lab)
    return found


def likest_classes(lab: Lab, train: LabeledImages) -> list[str]:
    """For each image the class that it is taken for if its own is left out."""
    params = {"descriptor": "deep"}
    model = PooledRidge(**params, n_jobs=lab.n_jobs).fit(train.paths, train.labels, store=lab.store_for(params))
    scores = model.fitted().unknown_scores()
    assert scores is not None
    labels: list[str] = model.classes_[scores.argmax(axis=1)].tolist()
    return labels


def found_of(model: Any, train: LabeledImages, swapped: list[int], levels: list[float], lab: Lab) -> dict[str, Any]:
    """Precision and recall of the listed suspects, and of their suggestions."""
    place_of = {image.id: place for place, image in enumerate(model.images_)}
    found = audit(model, min_probability=0.0, progress=lab.progress)
    wrong = set(swapped)
    at_probability = {}
    for level in levels:
        listed = [suspect for suspect in found.suspects if suspect.probability >= level]
        hits = [suspect for suspect in listed if place_of[suspect.id] in wrong]
        restored = [suspect for suspect in hits if suspect.suggested == train.labels[place_of[suspect.id]]]
        at_probability[str(level)] = {
            "listed": len(listed),
            "precision": round(len(hits) / max(1, len(listed)), 4),
            "recall": round(len(hits) / len(wrong), 4),
            "right_label_suggested": round(len(restored) / len(wrong), 4),
        }
    ranked = [place_of[suspect.id] in wrong for suspect in found.suspects]
    return {
        "n_swapped": len(wrong),
        "label_found_again": round(found.accuracy, 4),
        "expected_wrong": round(sum(suspect.probability for suspect in found.suspects), 1),
        "at_probability": at_probability,
        "precision_of_first": {str(n): round(float(np.mean(ranked[:n])), 4) for n in (25, 50, 75, 150)},
        "near_duplicates": len(found.near_duplicates),
    }


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    return {name: {"mean": mean_of(runs), "runs": runs} for name, runs in grouped(outcomes, "preset").items()}


def tabulate(results: Results) -> str:
    rows, sentences = [], []
    for name, found in results.items():
        for way, swapped in found["mean"]["swapped"].items():
            with_whom, share = way.split()
            text = f"{100 * float(share):.0f} %, with {'any class' if with_whom == 'any' else 'the class most like it'}"
            for level, at in swapped["at_probability"].items():
                cells = [f"{100 * at[measure]:.0f} %" for measure in ("precision", "recall", "right_label_suggested")]
                rows.append([f"`{name}`", text, level, f"{at['listed']:.0f}", *cells])
        swapped = found["mean"]["swapped"]["any 0.05"]
        first = swapped["precision_of_first"]
        sentences.append(
            f"\n`{name}`, 5 % swapped: {100 * swapped['label_found_again']:.0f} % of the images get their own label. "
            f"Of the first 25 listed {100 * first['25']:.0f} % were swapped, of 50 {100 * first['50']:.0f} %, "
            f"of 75 {100 * first['75']:.0f} %. The probabilities add up to {swapped['expected_wrong']:.0f} "
            f"wrong labels; there are {swapped['n_swapped']:.0f}.\n"
        )
    header = "preset | labels swapped | `--min-probability` | listed | of them swapped | swapped ones found | "
    return "".join([table(header + "with the right label suggested", rows), *sentences])


EXPERIMENT = benchmark(globals(), plan=parts_over("audit", compute, presets="preset", seeds="seed"))

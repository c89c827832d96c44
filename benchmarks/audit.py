"""Does the audit find wrong labels? Labels of Caltech 101 are swapped on purpose.

15 training images of each of 101 classes; one image in twenty, then one in ten, gets the label of another class. What
the audit lists is compared with what was swapped.
"""

from typing import Any

import numpy as np
from common import benchmark, grouped, mean_of, parts_over, table

from lnbnn.data.folder import LabelledImages
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.trust.audit import audit

SETTINGS: Settings = {"presets": ["auto", "balanced", "deep"], "seeds": [0, 1, 2], "n_train": 15}
SETTINGS |= {"shares_swapped": [0.05, 0.1], "levels": [0.3, 0.5, 0.7, 0.9]}
QUICK: Settings = {"presets": ["balanced"], "seeds": [0], "n_train": 5}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """What the audit finds of the labels swapped in one split, for each share of them."""
    train, _ = lab.split_of(settings | {"n_test": 1})
    model = lab.fit_preset(settings, train)
    found: Outcome = {"n_images": len(train), "swapped": {}}
    for share in settings["shares_swapped"]:
        rng = np.random.default_rng([settings["seed"], round(100 * share)])
        swapped = sorted(rng.choice(len(train), round(share * len(train)), replace=False).tolist())
        for place in swapped:
            others = sorted(set(train.labels) - {train.labels[place]})
            model.relabel(model.images_[place].id, others[rng.integers(len(others))])
        found["swapped"][str(share)] = found_of(model, train, swapped, settings["levels"], lab)
        for place in swapped:
            model.relabel(model.images_[place].id, train.labels[place])
    return found


def found_of(model: Any, train: LabelledImages, swapped: list[int], levels: list[float], lab: Lab) -> dict[str, Any]:
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
        for share, swapped in found["mean"]["swapped"].items():
            for level, at in swapped["at_probability"].items():
                cells = [f"{100 * at[measure]:.0f} %" for measure in ("precision", "recall", "right_label_suggested")]
                rows.append([f"`{name}`", f"{100 * float(share):.0f} %", level, f"{at['listed']:.0f}", *cells])
        swapped = found["mean"]["swapped"]["0.05"]
        first = swapped["precision_of_first"]
        sentences.append(
            f"\n`{name}`, 5 % swapped: {100 * swapped['label_found_again']:.0f} % of the images get their label back. "
            f"Of the first 25 listed {100 * first['25']:.0f} % were swapped, of 50 {100 * first['50']:.0f} %, "
            f"of 75 {100 * first['75']:.0f} %. The probabilities add up to {swapped['expected_wrong']:.0f} "
            f"wrong labels; there are {swapped['n_swapped']:.0f}.\n"
        )
    header = "preset | labels swapped | `--min-probability` | listed | of them swapped | swapped ones found | "
    return "".join([table(header + "with the right label suggested", rows), *sentences])


EXPERIMENT = benchmark(globals(), plan=parts_over("audit", compute, presets="preset", seeds="seed"))

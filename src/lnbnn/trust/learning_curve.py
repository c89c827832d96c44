"""What more photos would gain, estimated from fewer: accuracy with part of each class's images, and with all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import Classifier
from lnbnn.methods.matching import MatchingMethod, ids_of_image
from lnbnn.model.fusion import FusionModel
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.references import References, can_be_held_out
from lnbnn.trust.evaluation import mean_per_class

__all__ = ["CurvePoint", "learning_curve", "used_places"]

_SHARES = (0.25, 0.5, 1.0)
_MAX_ASKED = 200


@dataclass(frozen=True)
class CurvePoint:
    """Mean per-class accuracy with a number of images per class, the mean over the classes."""

    n_per_class: float
    accuracy: float


def learning_curve(
    classifier: Classifier, *, seed: int = 0, progress: Progress = no_progress
) -> tuple[CurvePoint, ...]:
    """The leave-one-out accuracy of a model with a quarter, half and all of its images.

    Images are left out of the search, so that nothing is refitted; for a fusion, it is the curve of its first method
    that searches for neighbors. Empty for models without one, and if a quarter of a class is no image.
    """
    fitted = classifier.fitted()
    members = fitted.members if isinstance(fitted, FusionModel) else [fitted]
    method = next((member.method for member in members if isinstance(member.method, MatchingMethod)), None)
    if method is None or len(method.references.classes) < 2:
        return ()
    references, rng = method.references, np.random.default_rng(seed)
    order = rng.permutation(len(references))
    asked = order[can_be_held_out(references.places)[order]][:_MAX_ASKED].tolist()
    points = []
    for number, share in enumerate(_SHARES):
        used = used_places(references.places, order, share)
        n_per_class = np.bincount(references.places[used], minlength=len(references.classes))
        least = sum(sorted(references[place].n_descriptors for place in used)[:-1], 0)
        if not asked or int(n_per_class.min()) < 1 or len(used) < 4 or least < method.min_descriptors():
            continue
        answers = []
        for place in asked:
            answers.append(_answer(method, references, used, place))
            progress("with fewer photos", number * len(asked) + len(answers), len(_SHARES) * len(asked))
        points.append(
            CurvePoint(float(n_per_class.mean()), mean_per_class(np.array(answers), references.places[asked]))
        )
    return tuple(points)


def used_places(places: NDArray[np.int64], order: NDArray[np.int64], share: float) -> list[int]:
    """The first images of each class in an order, as many as the share, rounded down."""
    counts, seen = np.bincount(places), np.zeros(places.max() + 1, np.int64)
    used = []
    for image in order.tolist():
        if seen[places[image]] < int(share * counts[places[image]]):
            seen[places[image]] += 1
            used.append(image)
    return sorted(used)


def _answer(method: MatchingMethod, references: References, used: list[int], place: int) -> int:
    """The class that an image gets from those in use, itself left out."""
    there = set(used) - {place}
    left_out = [ids_of_image(i.id, i.n_descriptors) for at, i in enumerate(references) if at not in there]
    vectors = method.reference_vectors(place)
    rows = method.query_rows(len(vectors))
    updates = method.updates_of(vectors if rows is None else vectors[rows], left_out)
    return int(np.argmin(updates.totals(len(references.classes))))

"""Where in the picture the evidence lies: updates to per-pixel support, arrays only (drawing is in figures)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import ImageClassifier
from lnbnn.classifiers.neighbors import NeighborClassifier
from lnbnn.errors import InvalidInputError
from lnbnn.extraction import ImageLike
from lnbnn.features import ImageFeatures

__all__ = ["Evidence", "explain", "support_map"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Why an image got its answer.

    Parameters
    ----------
    label, against : label
        The class in question, and the class it is compared with (None: with the background alone).
    support : ndarray of shape (n_descriptors,)
        What each descriptor says for ``label`` (minus what it says for ``against``); positive speaks for it.
    map : ndarray of shape (height, width)
        The support spread evenly over each patch; its sum is the sum of the support.
    features : ImageFeatures
        The descriptors the support belongs to.
    ranking : tuple of (label, score)
        All classes, best first.
    """

    label: Any
    against: Any
    support: NDArray[np.float64]
    map: NDArray[np.float64]
    features: ImageFeatures
    ranking: tuple[tuple[Any, float], ...]


def explain(classifier: ImageClassifier, image: ImageLike, *, label: Any = None, against: Any = None) -> Evidence:
    """The evidence in an image for a class (by default the answer), alone or against another class."""
    if not (isinstance(classifier, NeighborClassifier) and classifier.has_patch_evidence):
        raise InvalidInputError(f"method {classifier.method!r} has no patch matches to show; use local-nbnn or nbnn.")
    classes = classifier.fitted_classes().tolist()
    features = classifier.query_features(image)
    if len(features) == 0:
        raise InvalidInputError("the picture has no descriptors (flat or too small): there is no evidence to show.")
    updates = classifier.updates(image)
    ranking = classifier.ranking(0.0 - updates.totals(len(classes)))
    label = ranking[0][0] if label is None else label
    support = -updates.of_class(_place(classes, label))
    if against is not None:
        if against == label:
            raise InvalidInputError(f"label and against are the same class, {label!r}; name two.")
        support = support + updates.of_class(_place(classes, against))
    return Evidence(label, against, support, support_map(features, support), features, ranking)


def support_map(features: ImageFeatures, support: NDArray[np.floating]) -> NDArray[np.float64]:
    """Spread each descriptor's support evenly over the pixels of its patch; the sum stays the same.

    Returns
    -------
    ndarray of shape (height, width)
    """
    width, height = features.size
    half = features.scale / 2.0
    x, y = features.xy[:, 0] * width, features.xy[:, 1] * height
    left = np.clip(np.floor(x - half), 0, width - 1).astype(np.intp)
    right = np.clip(np.ceil(x + half), left + 1, width).astype(np.intp)
    top = np.clip(np.floor(y - half), 0, height - 1).astype(np.intp)
    bottom = np.clip(np.ceil(y + half), top + 1, height).astype(np.intp)
    a_pixel = support / ((right - left) * (bottom - top))
    corners = np.zeros((height + 1, width + 1))  # +v at two corners, -v at the others: running sums fill the patch
    for rows, columns, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
        np.add.at(corners, (rows, columns), sign * a_pixel)
    return corners.cumsum(axis=0).cumsum(axis=1)[:height, :width]


def _place(classes: list[Any], label: Any) -> int:
    if label not in classes:
        shown = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
        raise InvalidInputError(f"the model has no class {label!r}; it knows {len(classes)}: {shown}")
    return classes.index(label)

"""What experiments ask of a fitted classifier of the NBNN family beyond its answers: the one place that knows how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.nbnn_kernel import totals_by_cell
from lnbnn.classifiers.neighbors import image_of_id
from lnbnn.features import ImageFeatures
from lnbnn.indexes import Index
from lnbnn.reading.extraction import ImageLike, Progress

__all__ = ["class_weights", "estimated_totals", "image_of_id", "indexes", "leave_each_out"]
__all__ += ["places", "places_of_ids", "query_vectors", "scores", "totals_by_cell", "vectors_of"]


def scores(classifier: Any, features: ImageFeatures) -> NDArray[np.float64]:
    """The score of each class for features, on this thread."""
    return classifier._scores(features)


def query_vectors(classifier: Any, image: ImageLike) -> NDArray[np.generic]:
    """The vectors that are searched for to answer about an image."""
    return classifier._vectors(classifier.query_features(image))


def vectors_of(classifier: Any, image: ImageLike) -> NDArray[np.generic]:
    """The vectors of all descriptors of an image, as they would be indexed."""
    return classifier._vectors(classifier.image_features(image))


def leave_each_out(
    classifier: Any, work: Callable[[NDArray[np.generic], range], NDArray[Any]], progress: Progress
) -> NDArray[Any]:
    """``work(query vectors, ids of its own)`` for each labelled image, one row per image."""
    return classifier._leave_each_out(work, progress)


def estimated_totals(classifier: Any, vectors: NDArray[np.generic], own: range) -> NDArray[np.float64]:
    """Totals of query vectors with a range of ids left out, asked for until the lead is sure."""
    return classifier._estimated_totals(vectors, own)


def indexes(classifier: Any) -> list[Index]:
    """The indexes of a classifier: one, or one per class."""
    return [index for index, _ in classifier._indexes()]


def places(classifier: Any) -> NDArray[np.int64]:
    """The place of each labelled image's class in ``classes_``."""
    return np.array([image.label for image in classifier.images_], np.int64)


def places_of_ids(classifier: Any, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of the class of each descriptor id; -1 where there is none."""
    table = np.full(max(image.id for image in classifier.images_) + 2, -1)  # by image; the last is that of no image
    table[[image.id for image in classifier.images_]] = places(classifier)
    return table[image_of_id(ids)]


def class_weights(classifier: Any) -> NDArray[np.float64]:
    """What ``normalize_classes`` multiplies the updates of each class by."""
    n_descriptors = np.bincount(places(classifier), weights=[image.n_descriptors for image in classifier.images_])
    return n_descriptors.mean() / n_descriptors

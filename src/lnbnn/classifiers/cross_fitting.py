"""Cross-fitted scores: each image is scored by a copy of the classifier that has not seen it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import Classifier
from lnbnn.errors import InvalidInputError
from lnbnn.params import check_whole
from lnbnn.reading.extraction import ImageLike, Progress, name_of, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.references import can_be_held_out

__all__ = ["cross_fitted_scores"]


def cross_fitted_scores(
    classifier: Classifier,
    X: Sequence[ImageLike],
    y: Sequence[Any],
    *,
    n_folds: int = 5,
    store: FeatureStore | None = None,
    progress: Progress = no_progress,
) -> NDArray[np.float64]:
    """Scores of the training images of a classifier, by copies fitted without them.

    For methods that cannot leave one image out of a fitted model. Every class is split into ``n_folds`` folds by
    ``random_state``; each is scored by a copy fitted on the others. An image that is alone in its class is in every
    copy, and its row is NaN.

    Parameters
    ----------
    classifier : Classifier
        Fitted on X and y.
    X, y
        Its training data, including images that it skipped.

    Returns
    -------
    ndarray of shape (n_images, n_classes), in the order of ``classifier.images_``
    """
    from sklearn.base import clone

    check_whole("n_folds", n_folds, 2, 1 << 30)
    references = classifier.fitted().references
    skipped = {name for name, _ in classifier.skipped_}
    kept = [place for place, image in enumerate(X) if name_of(image, place) not in skipped]
    labels = references.places
    if len(kept) != len(labels) or [y[place] for place in kept] != [image.label for image in references]:
        raise InvalidInputError("X and y must be those the classifier was fitted on.")
    order = np.random.default_rng(classifier.random_state).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.intp)
    folds[order] = np.arange(len(labels)) % n_folds
    folds[~can_be_held_out(labels)] = -1
    result = np.full((len(labels), len(references.classes)), np.nan)
    for fold in range(n_folds):
        held = np.flatnonzero(folds == fold)
        rest = np.flatnonzero(folds != fold)
        if len(held):
            copy = clone(classifier).fit([X[kept[i]] for i in rest], [y[kept[i]] for i in rest], store=store)
            found = copy.fitted().iter_scores([X[kept[i]] for i in held], store)
            for row, scores in zip(held, found, strict=True):
                result[row] = scores
        progress("fitting without each fold", fold + 1, n_folds)
    return result

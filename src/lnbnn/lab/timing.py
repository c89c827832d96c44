"""Time an image: what the two figures on computation measure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.matching import MatchingClassifier
from lnbnn.features import ImageFeatures
from lnbnn.lab.lab import Lab
from lnbnn.params import resolve
from lnbnn.reading.extraction import features_of

__all__ = ["make_timed", "read_features", "timed_totals"]


def make_timed(method: str, params: dict[str, Any]) -> MatchingClassifier:
    """A method of the NBNN family for timing: unfitted, on one thread."""
    classifier: MatchingClassifier = resolve(CLASSIFIERS, method, "method")(**params, n_jobs=1)
    return classifier


def read_features(classifier: MatchingClassifier, paths: Sequence[str], lab: Lab) -> list[ImageFeatures]:
    """The features of query images, read before the clock starts."""
    return [features_of(path, classifier.descriptor_, lab.store) for path in paths]


def timed_totals(
    classifier: MatchingClassifier, features: Sequence[ImageFeatures], lab: Lab, stage: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The totals of each image, and the CPU seconds of its search and scoring, all threads together."""
    n_classes = len(classifier.fitted_classes())
    totals, seconds = [], []
    classifier.updates(features[0])  # what is made on first use is not timed
    for image in features:
        start = time.process_time()
        totals.append(classifier.updates(image).totals(n_classes))
        seconds.append(time.process_time() - start)
        lab.progress(stage, len(totals), len(features))
    return np.array(totals), np.array(seconds)

"""Small, quick classifiers of every method, and one of a method of its own, that several test files share."""

from __future__ import annotations

import inspect

import numpy as np
from synthetic import grating_set, small_sift

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.classifiers.matching import MatchingClassifier
from lnbnn.methods.base import Method
from lnbnn.params import resolve

SIFT_PARAMS = {"bin_sizes": [4], "step_px": 7, "min_contrast": 0.5, "longest_side": 48}
KERNEL_METHODS = ("local-nbnn-kernel", "nbnn-kernel")  # they leave each image out of its class
NEIGHBOR_METHODS = [
    name for name in sorted(CLASSIFIERS) if issubclass(resolve(CLASSIFIERS, name, "method"), MatchingClassifier)
]


def make(method, **changes):
    """A quick classifier of the method: one scale, exact search, every query descriptor, few words."""
    settings = {"descriptor_params": SIFT_PARAMS, "index": "exact", "query_budget": None, "n_words": 16, "n_jobs": 1}
    settings |= {"n_gaussians": 2, "n_components": 8}
    return resolve(CLASSIFIERS, method, "method")(**{**known(method, settings), **changes})


def known(method, settings):
    """Those of the settings that the method has."""
    names = inspect.signature(resolve(CLASSIFIERS, method, "method")).parameters
    return {name: value for name, value in settings.items() if name in names}


def fitted(method, **changes):
    return make(method, **changes).fit(*grating_set())


def quick(kind, **changes):
    """A quick classifier of a class of the NBNN family."""
    return kind(**{"descriptor": small_sift(), "index": "exact", "query_budget": None, "n_jobs": 1, **changes})


def queries():
    """Images and classes like those of :func:`grating_set`, other noise."""
    return grating_set(seed=9)


class NearestMean(Method):
    """The class whose mean first descriptor is nearest; it can leave no image out."""

    def __init__(self, settings):
        super().__init__(settings)
        self.seen, self.means = [], np.empty(0)

    def add(self, image, features):
        self.seen.append((image.label, features.descriptors[:, 0].mean()))

    def finish(self, references, progress):
        self.references = references
        self.means = np.array(
            [np.mean([mean for y, mean in self.seen if y == label]) for label in references.classes.tolist()]
        )

    def scores(self, features):
        return -np.abs(self.means - features.descriptors[:, 0].mean())

    def save(self, folder):
        raise NotImplementedError

    def load(self, folder, references):
        raise NotImplementedError

    def describe(self):
        return "the nearest mean"

    @property
    def nbytes(self):
        return self.means.nbytes


@settings_class
class MeanBrightness(Classifier):
    """A method that cannot leave an image out."""

    method = "mean"

    def make_method(self, descriptor):
        return NearestMean(self)

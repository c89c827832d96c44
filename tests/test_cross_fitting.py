"""Scores of images by copies of a classifier that were fitted without them."""

from __future__ import annotations

import numpy as np
import pytest
from quick import MeanBrightness, quick
from synthetic import flat_image, grating_set, make_features

from lnbnn import LocalNBNN
from lnbnn.classifiers.cross_fitting import cross_fitted_scores
from lnbnn.errors import InvalidInputError


def test_method_that_cannot_leave_an_image_out():
    values = np.array([10, 12, 14, 50, 52, 90])
    images = [make_features(np.array([[value, 0]], np.uint8)) for value in values]
    labels = ["a", "a", "a", "b", "b", "c"]
    classifier = MeanBrightness(n_jobs=1).fit(images, labels)
    with pytest.raises(InvalidInputError, match=r"'mean' cannot leave .*cross_fitted_scores makes"):
        classifier.calibrate()
    found = cross_fitted_scores(classifier, images, labels, n_folds=5)
    # Five parts for six images: 10 is scored by the means of (12, 14), (50, 52), (90), or with one more left out.
    assert np.isnan(found[5]).all(), "c has one image"
    assert np.isfinite(found[:5]).all()
    assert (found[:5].argmax(axis=1) == [0, 0, 0, 1, 1]).all()
    assert found[3, 1] == -2.0, "52 alone speaks for b when 50 is asked"
    probabilities = classifier.calibrate(found).predict_proba(images)
    assert np.allclose(probabilities.sum(axis=1), 1.0)


def test_cross_fitted_scores_are_those_of_models_without_the_part():
    images, labels = grating_set(n_images=3)
    classifier = quick(LocalNBNN).fit([flat_image(), *images], ["direction 0", *labels])
    found = cross_fitted_scores(classifier, [flat_image(), *images], ["direction 0", *labels], n_folds=9)
    assert np.array_equal(found, -classifier.reference_totals())


def test_cross_fitting_needs_the_same_images():
    images, labels = grating_set(n_images=3)
    classifier = quick(LocalNBNN).fit(images, labels)
    with pytest.raises(InvalidInputError, match="must be those the classifier was fitted on"):
        cross_fitted_scores(classifier, images[1:], labels[1:])
    with pytest.raises(InvalidInputError, match="n_folds must be a whole number from 2"):
        cross_fitted_scores(classifier, images, labels, n_folds=1)

"""The learning curve: which images are used by hand; the answers against models that were fitted on fewer."""

from __future__ import annotations

import numpy as np
import pytest
from quick import quick
from synthetic import grating_set

from lnbnn import LateFusion, LocalNBNN
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.trust.evaluation import mean_per_class
from lnbnn.trust.learning_curve import learning_curve, used_places


def test_which_images_are_used_by_hand():
    places, order = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([6, 3, 0, 5, 1, 2, 4])
    assert used_places(places, order, 1.0) == [0, 1, 2, 3, 4, 5, 6]
    assert used_places(places, order, 0.5) == [0, 3, 6], "two of four, one of three"
    assert used_places(places, order, 0.25) == [3], "one of four, none of three"


def noisy(n_images, seed=0):
    """Gratings so noisy, and of directions so alike, that few of them do not tell the classes apart."""
    images, labels = grating_set(4, n_images, seed=seed)
    rng = np.random.default_rng(seed)
    return [np.clip(image + rng.normal(0, 260, image.shape), 0, 255).astype(np.uint8) for image in images], labels


def fitted_on_fewer(images, labels, share):
    """The accuracy of models that are fitted on the used images alone, without the one that is asked about."""
    whole = quick(LocalNBNN).fit(images, labels)
    order = np.random.default_rng(0).permutation(len(images))
    used = used_places(whole.places_, order, share)
    answers = []
    for place in order:
        kept = [other for other in used if other != place]
        small = quick(LocalNBNN).fit([images[other] for other in kept], [labels[other] for other in kept])
        answers.append(small.predict([images[place]])[0])
    return mean_per_class(np.array(answers), np.array(labels)[order])


def test_it_is_the_accuracy_of_models_fitted_on_fewer():
    images, labels = noisy(8)
    curve = learning_curve(quick(LocalNBNN).fit(images, labels))
    assert [point.n_per_class for point in curve] == [2.0, 4.0, 8.0]
    expected = [fitted_on_fewer(images, labels, share) for share in (0.25, 0.5, 1.0)]
    assert [point.accuracy for point in curve] == pytest.approx(expected)
    assert expected[0] < expected[-1], "the test can tell the points apart"


def test_of_a_fusion_and_of_models_that_cannot_tell():
    images, labels = noisy(8)
    parts = [("ridge", PooledRidge(descriptor=quick(LocalNBNN).descriptor, n_jobs=1)), ("search", quick(LocalNBNN))]
    fusion = LateFusion(parts, n_jobs=1).fit(images, labels)
    assert learning_curve(fusion) == learning_curve(quick(LocalNBNN).fit(images, labels))
    assert learning_curve(fusion.estimators[0][1].fit(images, labels)) == ()
    assert learning_curve(quick(LocalNBNN).fit(images[:8], labels[:8])) == (), "one class"


def test_too_few_photos_give_no_point_and_the_rest_is_said():
    images, labels = noisy(2)
    curve = learning_curve(quick(LocalNBNN).fit(images, labels))
    assert [point.n_per_class for point in curve] == [1.0, 2.0]
    told = []
    learning_curve(quick(LocalNBNN).fit(images, labels), progress=lambda *call: told.append(call))
    assert told[-1] == ("with fewer photos", 24, 24)

"""Fisher vectors beside Spatially Local Coding: what each does alone, in one regression."""

import numpy as np
from synthetic import make_features

from lnbnn.classifiers.fisher import FisherVectors
from lnbnn.classifiers.fisher_slc import FisherSLC
from lnbnn.classifiers.local_coding import SpatiallyLocalCoding

FEW = {"n_jobs": 1, "alpha": 0.1}
GAUSSIANS = {"n_gaussians": 3, "n_components": 4}
WORDS = {"n_words": 6, "n_nearest_words": 3}


def images(n=12):
    labels = [place % 3 for place in range(n)]
    rows = [
        np.random.default_rng(seed).uniform(0, 60, (12, 8)) + 60.0 * np.eye(8)[label]
        for seed, label in enumerate(labels)
    ]
    return [make_features(one.astype(np.uint8), seed=seed) for seed, one in enumerate(rows)], labels


def test_the_parts_code_as_they_do_alone():
    """The Gaussians and words are those of the methods alone; so are the values, to the steps of float16."""
    X, y = images()
    joint = FisherSLC(**FEW, **GAUSSIANS, **WORDS).fit(X, y).method_
    fisher = FisherVectors(**FEW, **GAUSSIANS).fit(X, y).method_
    slc = SpatiallyLocalCoding(**FEW, **WORDS).fit(X, y).method_
    (_, first), (_, second) = joint.slices()
    assert np.array_equal(joint.vectors[:, first], fisher.vectors)
    assert np.allclose(joint.vectors[:, second], slc.vectors, atol=1e-3)
    assert joint.vectors.shape[1] == fisher.vectors.shape[1] + slc.vectors.shape[1]


def test_it_is_described_by_both():
    X, y = images()
    model = FisherSLC(**FEW, **GAUSSIANS, **WORDS).fit(X, y)
    words = "Fisher vectors of 3 Gaussians of 7 values beside the largest code of each of 6 + 6 + 6 + 6 words"
    assert model.describe() == f"ridge regression (alpha=0.1) on {words}"


def test_the_settings_are_those_of_both():
    own = set(FisherSLC().get_params())
    assert own == set(FisherVectors().get_params()) | set(SpatiallyLocalCoding().get_params())

"""Ridge regression on pooled descriptors: the vector of an image, and what each of its patches adds."""

import numpy as np
import pytest
from synthetic import make_features

from lnbnn import ImageFeatures
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.methods.pooled_ridge import PooledRegression


def test_the_spatial_vector_by_hand():
    # two descriptors (3, 0) and (0, 4), top left and bottom right: mean (1.5, 2), maximum (3, 4), quarters (1, 0) and
    # (0, 1); the two without descriptors have the mean, (0.6, 0.8)
    image = ImageFeatures(np.array([[3, 0], [0, 4]], np.float32), [[0.1, 0.2], [0.9, 0.8]], [8, 8], (50, 50))
    found = PooledRegression(PooledRidge()).vector_of(image) * np.sqrt(3)
    expected = [[0.6, 0.8], [0.6, 0.8], [0.5, 0.0], [0.3, 0.4], [0.3, 0.4], [0.0, 0.5]]
    assert np.allclose(found.reshape(6, 2), expected, atol=1e-5)
    assert np.allclose(PooledRegression(PooledRidge(spatial=False)).vector_of(image), [0.6, 0.8], atol=1e-5)


@pytest.mark.parametrize("spatial", [True, False])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8])
def test_scores_are_the_sum_of_what_each_patch_says(dtype, spatial):
    images = [make_features(np.random.default_rng(seed).integers(0, 99, (7, 5)).astype(dtype)) for seed in range(4)]
    model = PooledRidge(alpha=0.1, spatial=spatial).fit(images, [0, 1, 0, 1])
    patches = model.method_.patch_scores(images[2])
    assert patches.shape == (7, 2)
    assert np.allclose(patches.sum(axis=0), model.decision_function(images[2:3])[0], atol=1e-6)


def test_zero_descriptors_are_no_crash():
    zeros = make_features(np.zeros((3, 4), np.float32))
    model = PooledRidge().fit([zeros, make_features(np.ones((3, 4), np.float32))], ["a", "b"])
    assert np.isfinite(model.decision_function([zeros])).all()

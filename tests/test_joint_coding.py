"""Codes side by side, worked by hand on parts that are easy to follow."""

import numpy as np
from synthetic import make_features

from lnbnn.methods.joint_coding import JointCoding


class Mean:
    """A part whose vector is the mean of the first descriptors' values."""

    learns = "means"

    def __init__(self, n_values):
        self.n_values = n_values

    def vector_of(self, features):
        return features.descriptors[:, : self.n_values].mean(axis=0).astype(np.float16)

    def contributions(self, features, coef):
        return features.descriptors[:, : self.n_values] @ coef.T / len(features)


def test_vectors_and_contributions_by_hand():
    """Descriptors (1, 3) and (3, 5): the means are (2) and (2, 4), side by side (2, 2, 4)."""
    joint = JointCoding(None, [Mean(1), Mean(2)])
    features = make_features(np.array([[1, 3], [3, 5]], np.float32), seed=0)
    assert joint.n_values == 3
    assert joint.learns == "means and means"
    assert joint.vector_of(features).tolist() == [2, 2, 4]
    assert joint.vector_of(features).dtype == np.float16
    assert [(values.start, values.stop) for _, values in joint.slices()] == [(0, 1), (1, 3)]
    coef = np.array([[1.0, 0.0, 0.0], [0.0, 10.0, 1.0]])
    assert joint.contributions(features, coef).tolist() == [[0.5, 6.5], [1.5, 17.5]]  # sums 2 and 24 = 10 * 2 + 4

"""NBNN by hand, and its log-odds form."""

from __future__ import annotations

import numpy as np
from quick import SIFT_PARAMS
from synthetic import grating_set, make_features

from lnbnn.classifiers.nbnn import NBNN, LogOddsNBNN


def one_descriptor_each(*values):
    return [make_features(np.array([value], np.uint8)) for value in values]


def test_nbnn_by_hand():
    # The same points:  totals  a: 1 + 144 = 145,  b: 81 + 244 = 325,  c: 401 + 64 = 465,  d: 1521 + 1744 = 3265.
    reference = one_descriptor_each((0, 0), (10, 0), (0, 20), (40, 0))
    query = make_features(np.array([[1, 0], [0, 12]], np.uint8))
    classifier = NBNN(location_weight=0, index="exact").fit(reference, list("abcd"))
    assert classifier.totals([query]).tolist() == [[145.0, 325.0, 465.0, 3265.0]]
    assert classifier.predict([query]).tolist() == ["a"]


SETTINGS = {"index": "exact", "query_budget": None, "descriptor_params": SIFT_PARAMS}


def test_classifier_with_all_increments_answers_as_nbnn():
    images, labels = grating_set(n_classes=3, n_images=3)
    queries, _ = grating_set(n_classes=3, n_images=3, seed=5)
    plain = NBNN(**SETTINGS).fit(images, labels)
    every = LogOddsNBNN(positive_only=False, **SETTINGS).fit(images, labels)
    assert np.array_equal(plain.predict(queries), every.predict(queries))
    assert every.mean_increments(queries) == 3.0
    positive = LogOddsNBNN(**SETTINGS).fit(images, labels)
    assert np.array_equal(plain.predict(queries), positive.predict(queries))
    assert 0.9 < positive.mean_increments(queries) < 3.0

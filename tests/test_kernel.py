"""Linear classifiers on the responses of NBNN and Local NBNN."""

import json

import numpy as np
import pytest
from forged import forge_manifest
from quick import SIFT_PARAMS
from synthetic import grating_set

from lnbnn import load
from lnbnn.classifiers.kernels import LocalNBNNKernel, NBNNKernel
from lnbnn.errors import ModelFormatError

SETTINGS = {"index": "exact", "query_budget": None, "descriptor_params": SIFT_PARAMS}


@pytest.mark.parametrize("kind", [NBNNKernel, LocalNBNNKernel])
@pytest.mark.parametrize(
    "changes", [{}, {"levels": 2, "response": "mean"}, {"response": "rank", "C": 0.1, "classifier": "svm"}]
)
def test_kernels_answer_and_survive_saving(kind, changes, tmp_path):
    images, labels = grating_set(n_classes=3, n_images=4)
    queries, expected = grating_set(n_classes=3, n_images=3, seed=5)
    classifier = kind(**SETTINGS, **changes).fit(images, labels)
    assert classifier.predict(queries).tolist() == expected
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.decision_function(queries), classifier.decision_function(queries))
    assert again.describe() == classifier.describe()


def test_training_responses_leave_the_image_out():
    images, labels = grating_set(n_classes=2, n_images=3)
    classifier = LocalNBNNKernel(response="raw", C=1.0, **SETTINGS).fit(images, labels)
    assert np.array_equal(classifier.reference_responses(), classifier.reference_totals())
    assert not np.array_equal(classifier.reference_totals(), classifier.totals(images))


def test_arrays_that_do_not_fit_are_refused(tmp_path):
    images, labels = grating_set(n_classes=2, n_images=3)
    LocalNBNNKernel(C=1.0, **SETTINGS).fit(images, labels).save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text(encoding="utf-8"))
    forge_manifest(tmp_path / "model", params=manifest["params"] | {"levels": 2})
    with pytest.raises(ModelFormatError, match="linear classifier's arrays do not fit"):
        load(tmp_path / "model")

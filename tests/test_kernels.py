"""The settings of the two kernels."""

import numpy as np
import pytest
from quick import SIFT_PARAMS
from synthetic import grating_set

from lnbnn.classifiers.kernels import LocalNBNNKernel
from lnbnn.errors import InvalidInputError

SETTINGS = {"index": "exact", "query_budget": None, "descriptor_params": SIFT_PARAMS}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"response": "best"}, "response must be one of"),
        ({"classifier": "forest"}, "classifier must be one of logistic, svm; got 'forest'"),
        ({"levels": 0}, "levels must be a whole number from 1 to 4"),
        ({"levels": 2, "location_weight": 0.0}, "levels above 1 need a location_weight above 0"),
        ({"C": 0.0}, "C must be above 0"),
        ({"blend": -1.0}, "blend must be at least 0"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        LocalNBNNKernel(**{**SETTINGS, **changes}).fit(*grating_set())


def test_numbers_of_numpy():
    LocalNBNNKernel(**SETTINGS, C=np.float32(0.5), blend=np.float32(0.0), levels=np.int64(2)).check_settings()

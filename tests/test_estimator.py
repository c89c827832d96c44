"""scikit-learn's manners without its import."""

from __future__ import annotations

import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

from lnbnn.classifiers.estimator import Estimator, check_is_fitted
from lnbnn.errors import InvalidInputError


class Answers(Estimator):
    def __init__(self, answer="cat", *, inner=None):
        self.answer = answer
        self.inner = inner

    def fit(self, X, y):
        return self

    def predict(self, X):
        return [self.answer] * len(X)


def test_settings_by_name():
    model = Answers("dog", inner=Answers())
    assert model.get_params(deep=False).keys() == {"answer", "inner"}
    assert model.get_params()["inner__answer"] == "cat"
    model.set_params(answer="cow", inner__answer="hen")
    assert (model.answer, model.inner.answer) == ("cow", "hen")
    with pytest.raises(InvalidInputError, match="Invalid parameter 'speed' for Answers; its parameters: answer, inner"):
        model.set_params(speed=1)


def test_what_scikit_learn_asks_of_a_classifier():
    model = Answers("dog", inner=Answers("hen"))
    copy = clone(model)
    assert copy is not model
    assert copy.get_params()["inner__answer"] == "hen"
    assert copy.inner is not model.inner
    assert is_classifier(model)


def test_score_and_text():
    assert Answers("dog").score([0, 1, 2, 3], ["dog", "cat", "dog", "dog"]) == 0.75
    assert repr(Answers()) == "Answers()"
    assert repr(Answers("dog")) == "Answers(answer='dog')"


def test_not_fitted():
    model = Answers()
    with pytest.raises(NotFittedError, match="This Answers instance is not fitted yet"):
        check_is_fitted(model, "classes_")
    with pytest.raises(NotFittedError, match="fit Answers first"):
        check_is_fitted(model, "classes_", msg="fit %(name)s first")
    model.classes_ = [1]
    check_is_fitted(model, "classes_")

"""scikit-learn's manners without its import: settings by name, ``clone``, grid search, and a score.

Importing ``sklearn.base`` loads SciPy's statistics and takes longer than opening a model and answering. What an
estimator needs of it is little; scikit-learn itself is imported when one of its functions asks for the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from lnbnn.errors import InvalidInputError

__all__ = ["Estimator", "check_is_fitted"]


class Estimator:
    """A classifier in scikit-learn's manners: every parameter of the constructor is stored under its own name."""

    _estimator_type = "classifier"

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; with ``deep``, those of estimators among them too, as ``name__setting``."""
        params: dict[str, Any] = {}
        for name in self._get_param_names():
            value = getattr(self, name)
            params[name] = value
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                params |= {f"{name}__{inner}": setting for inner, setting in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change settings by name; ``name__setting`` changes one of an estimator among them."""
        known = self.get_params()
        nested: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, inner, setting = key.partition("__")
            if name not in known:
                raise InvalidInputError(
                    f"Invalid parameter {name!r} for {type(self).__name__}; its parameters: "
                    f"{', '.join(self._get_param_names())}."
                )
            if inner:
                nested.setdefault(name, {})[setting] = value
            else:
                setattr(self, name, value)
        for name, settings in nested.items():
            known[name].set_params(**settings)
        return self

    def score(self, X: Sequence[Any], y: ArrayLike) -> float:
        """The share of the images that get their own label."""
        return float(np.mean(np.asarray(self.predict(X)) == np.asarray(y)))  # type: ignore[attr-defined]

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator, ClassifierMixin

        return type("Tags", (ClassifierMixin, BaseEstimator), {})().__sklearn_tags__()

    def __repr__(self) -> str:
        defaults = {name: field.default for name, field in inspect.signature(type(self)).parameters.items()}
        changed = [
            f"{name}={value!r}" for name, value in self.get_params(deep=False).items() if value is not defaults[name]
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def check_is_fitted(estimator: Estimator, attribute: str, msg: str | None = None) -> None:
    """Raise scikit-learn's ``NotFittedError`` unless the fitted attribute is there."""
    if attribute not in vars(estimator):
        from sklearn.utils import validation

        validation.check_is_fitted(estimator, attribute, **({} if msg is None else {"msg": msg}))

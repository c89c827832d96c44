"""Names and settings: registries of public names, constructor keywords as settings, presets.

A registry is a plain dict from a public name to an import string, ``"package.module:Class"``. Listing the names imports
nothing; a missing optional dependency is reported only when its name is asked for. A key that ends in ``:`` or ``@``
stands for all names that go on after it, such as ``onnx:`` for ``onnx:network.onnx``.

Descriptors, indexes and classifiers store the keywords of their constructors under their own names. What is written
there once, a name and its default, is all that Python, the command line, the manifest and the docs need to know.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from lnbnn.errors import InvalidInputError, LnbnnError, UnknownNameError

__all__ = [
    "AUTO",
    "LARGEST",
    "PRESETS",
    "Configurable",
    "check_choice",
    "check_positive",
    "check_whole",
    "plain",
    "preset_params",
    "resolve",
]

LARGEST = sys.float_info.max
"""Of all floats. A whole number above it is not infinite, but has no float."""


# ---- names ----------------------------------------------------------------------------------------------------------


def resolve(registry: Mapping[str, str], name: str, kind: str) -> Any:
    """Import and return what ``name`` stands for.

    Parameters
    ----------
    registry : mapping of str to str
        Public names and their import strings.
    name : str
        The name to look up.
    kind : str
        What the registry holds ("index", "descriptor" ...), for the error message.

    Examples
    --------
    >>> resolve({"fraction": "fractions:Fraction"}, "fraction", "number")(1, 2)
    Fraction(1, 2)
    """
    families = [key for key in registry if key[-1] in ":@" and name.startswith(key) and name != key]
    if name[-1:] in ("", ":", "@") or not (name in registry or families):
        choices = ", ".join(sorted(key + {":": "...", "@": "..."}.get(key[-1], "") for key in registry))
        raise UnknownNameError(f"Unknown {kind} {name!r}; choose one of: {choices}.")
    module_name, _, attribute = registry[name if name in registry else families[0]].partition(":")
    return getattr(importlib.import_module(module_name), attribute)


# ---- settings -------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A setting as JSON has it: NumPy numbers become Python's, tuples and arrays become lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """Raise unless a setting is a whole number within bounds."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInputError(f"{name} must be a whole number from {low} to {high}; got {value!r}.")


def check_positive(name: str, value: object) -> None:
    """Raise unless a setting is a finite number above 0."""
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= LARGEST:
        raise InvalidInputError(f"{name} must be a number above 0; got {value!r}.")


def check_choice(name: str, value: object, choices: Mapping[str, Any] | tuple[str, ...]) -> None:
    """Raise unless a setting is one of some names."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


class Configurable:
    """A thing whose constructor stores its keywords under their own names: descriptors, indexes, classifiers."""

    name: str
    """The registry name."""

    @classmethod
    def param_names(cls) -> list[str]:
        """Names of the settings, in the constructor's order."""
        if cls.__init__ is object.__init__:
            return []
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [item.name for item in parameters if item.name != "self" and item.kind is not item.POSITIONAL_ONLY]

    @classmethod
    def from_params(cls, params: dict[str, Any], *arguments: Any) -> Self:
        """A new one with these settings; an unknown name or a value that makes no sense is refused.

        ``arguments`` are those of the constructor's positional-only parameters: they are part of the name.
        """
        unknown = sorted(set(params) - set(cls.param_names()))
        if unknown:
            choices = ", ".join(cls.param_names()) or "none"
            raise InvalidInputError(f"{cls.name!r} has no setting {unknown[0]!r}; its settings: {choices}.")
        made = cls(*arguments, **params)
        try:
            made.check_params()
        except LnbnnError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"{cls.name!r}: a setting is of the wrong kind ({error}); got {params}.") from error
        return made

    def check_params(self) -> None:
        """Raise :class:`~lnbnn.errors.InvalidInputError` when a setting makes no sense."""

    def settings(self) -> dict[str, Any]:
        """The settings, as plain values that survive JSON."""
        return {name: plain(getattr(self, name)) for name in self.param_names()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.settings().items())})"


# ---- presets --------------------------------------------------------------------------------------------------------

AUTO = "auto"
"""The preset that chooses by itself; it is no settings of Local NBNN, but those of what it chooses."""

PRESETS: dict[str, dict[str, Any]] = {
    # What the constructors say: six scales every 8 pixels, 500 query descriptors, half once the lead is sure.
    "balanced": {},
    # The features and distances of the authors' program, and every query descriptor.
    "paper": {
        "descriptor_params": {"bin_sizes": [4, 6, 9], "step_px": 3},
        "scale_weight": 0.0,
        "query_budget": None,
        "stop_confidence": None,
    },
    # A coarser grid and a narrower search, which stops sooner.
    "fast": {
        "descriptor_params": {"bin_sizes": [6, 9, 14, 21, 31], "step_px": 12},
        "index_params": {"n_probes": 2, "rerank_factor": 3},
        "query_budget": 1000,
        "stop_confidence": 0.9,
    },
    # The cells of a small network: for everyday photos.
    "deep": {"descriptor": "deep", "n_neighbors": 20},
    # The most accurate without a network: a fusion of three methods that see dense SIFT in different ways.
    "sift": {
        "members": [
            {"method": "local-nbnn"},
            {"method": "slc", "max_descriptors": None},
            {"method": "fisher", "n_gaussians": 256},
        ]
    },
}
"""Named settings of Local NBNN, points between accuracy and speed; or of the ``members`` of a fusion."""


def preset_params(name: str) -> dict[str, Any]:
    """Constructor keywords of a preset: what it changes from the defaults."""
    if name not in PRESETS:
        raise UnknownNameError(f"Unknown preset {name!r}; choose one of: {', '.join([AUTO, *sorted(PRESETS)])}.")
    return copy.deepcopy(PRESETS[name])

"""Names and settings: registries of public names, old names, constructor keywords as settings, presets.

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
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from lnbnn.errors import InvalidInputError, LnbnnError, UnknownNameError

__all__ = [
    "AUTO",
    "LARGEST",
    "PRESETS",
    "Configurable",
    "OldName",
    "RenamedWarning",
    "check_choice",
    "check_positive",
    "check_whole",
    "old_names",
    "plain",
    "preset_params",
    "renamed_params",
    "resolve",
    "warn_renamed",
]

LARGEST = sys.float_info.max
"""The largest float. A whole number above it is finite, but cannot be a float."""


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


# ---- old names ------------------------------------------------------------------------------------------------------


class RenamedWarning(DeprecationWarning):
    """An old name was used."""


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn the caller of the caller that a name has changed."""
    warnings.warn(f"{old} is now {new}; the old name will be removed in 0.4.", RenamedWarning, stacklevel)


def old_names(module: str, **renamed: str) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that knows the old names of what is in it.

    Parameters
    ----------
    module : str
        The module's ``__name__``.
    **renamed : str
        New name by old name.
    """

    def find(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", renamed[name])
        return getattr(sys.modules[module], renamed[name])

    return find


class OldName:
    """The old name of an attribute: ``doubles = OldName("duplicates")`` in the body of a class."""

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        warn_renamed(f"{owner.__name__}.{self._name}", self._new)
        return getattr(owner if instance is None else instance, self._new)


def renamed_params(renamed: Mapping[str, str], params: Mapping[str, Any], *, stacklevel: int = 4) -> dict[str, Any]:
    """Settings under their new names; an old name warns, unless the new one is given too: then it is left as it is."""
    found = dict(params)
    for old, new in renamed.items():
        if old in found and new not in found:
            warn_renamed(f"the setting {old}", new, stacklevel=stacklevel)
            found[new] = found.pop(old)
    return found


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
    """Base of descriptors and indexes: the constructor stores its keywords under their own names."""

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
        """A new object with these settings; an unknown name or an invalid value raises.

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
            raise InvalidInputError(f"{cls.name!r}: a setting has the wrong type ({error}); got {params}.") from error
        return made

    def check_params(self) -> None:
        """Raise :class:`~lnbnn.errors.InvalidInputError` if a setting is invalid."""

    def settings(self) -> dict[str, Any]:
        """The settings, as plain values that survive JSON."""
        return {name: plain(getattr(self, name)) for name in self.param_names()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.settings().items())})"


# ---- presets --------------------------------------------------------------------------------------------------------

AUTO = "auto"
"""The preset that chooses method and settings by itself."""

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
    # The most accurate without a network: a fusion of methods that see dense SIFT in different ways.
    "sift": {
        "members": [{"method": "local-nbnn"}, {"method": "fisher-slc", "n_gaussians": 512, "max_descriptors": None}]
    },
}
"""Named settings of Local NBNN, points between accuracy and speed; or of the ``members`` of a fusion."""


def preset_params(name: str) -> dict[str, Any]:
    """Constructor keywords of a preset: what it changes from the defaults."""
    if name not in PRESETS:
        raise UnknownNameError(f"Unknown preset {name!r}; choose one of: {', '.join([AUTO, *sorted(PRESETS)])}.")
    return copy.deepcopy(PRESETS[name])

"""Settings as constructor keywords: read back as plain values, and made again from them."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Self

import numpy as np

from lnbnn.errors import InvalidInputError, LnbnnError

__all__ = ["LARGEST", "Configurable", "check_whole", "plain"]

LARGEST = sys.float_info.max
"""Of all floats. A whole number above it is not infinite, but has no float."""


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


class Configurable:
    """A thing whose constructor stores its keywords under their own names.

    Descriptors and indexes are such things: their settings travel through JSON and the command line.
    """

    name: str
    """The registry name."""

    def check_params(self) -> None:
        """Raise :class:`~lnbnn.errors.InvalidInputError` when a setting makes no sense."""

    def settings(self) -> dict[str, Any]:
        """The settings, as plain values that survive JSON."""
        return {name: plain(getattr(self, name)) for name in self.param_names()}

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

    @classmethod
    def param_names(cls) -> list[str]:
        """Names of the settings, in the constructor's order."""
        if cls.__init__ is object.__init__:
            return []
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [item.name for item in parameters if item.name != "self" and item.kind is not item.POSITIONAL_ONLY]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.settings().items())})"

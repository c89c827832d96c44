"""Names to classes: the one place where a public name is looked up.

A registry is a plain dict from a public name to an import string, ``"package.module:Class"``. Listing the
names imports nothing; a missing optional dependency is reported only when its name is asked for. A key that ends in
``:`` or ``@`` stands for all names that go on after it, such as ``onnx:`` for ``onnx:network.onnx``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from lnbnn.errors import UnknownNameError

__all__ = ["resolve"]


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

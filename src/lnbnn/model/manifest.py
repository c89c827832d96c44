"""The fields of a model's manifest that describe the model: what each may hold, in one table.

A manifest may come from anyone. What is checked here can be relied on everywhere else; the settings in ``params`` are
checked by the method and the descriptor they belong to, the list of images by :mod:`lnbnn.model.image_table`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lnbnn.errors import ModelFormatError

__all__ = ["DATA_NAME", "MAX_UNKNOWN", "check_fields", "short"]

DATA_NAME = re.compile(r"data-\d{6,15}(-[0-9a-f]{16})?")
"""Names of data folders; those of format 2 have no random part."""

MAX_UNKNOWN = 4096
"""Values of ``unknown_prominence`` at most."""

_MAX_COUNT = (1 << 53) - 1
_MAX_DEPTH = 6  # of lists and dicts in the settings
_LARGEST = 1e30


def check_fields(path: Path, manifest: dict[str, Any]) -> None:
    """Raise :class:`~lnbnn.errors.ModelFormatError` when a field that is there holds what it must not."""
    for name, (fits, what) in _FIELDS.items():
        if name in manifest and not fits(manifest[name]):
            raise ModelFormatError(
                f"{path}: {name} must be {what}; got {short(manifest[name])}; the manifest is damaged, fit the model "
                "again."
            )


def short(value: Any) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of very many digits
        return "a value too long to be shown"
    return text if len(text) <= 100 else text[:100] + "..."


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_COUNT


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGEST


def _is_kind(value: Any) -> bool:
    if type(value) is not list or len(value) != 2:
        return False
    return _is_count(value[0]) and value[0] > 0 and value[1] in ("uint8", "float16", "float32")


def _is_params(value: Any) -> bool:
    if type(value) is not dict or not _is_plain(value, _MAX_DEPTH):
        return False
    names = (value[key] for key in ("descriptor", "index") if key in value)
    settings = (value.get(key) for key in ("descriptor_params", "index_params"))
    return all(map(_is_text, names)) and all(part is None or type(part) is dict for part in settings)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether a setting is made of texts, flags and numbers of a common size, in lists and dicts that end soon."""
    if type(value) in (list, dict):
        parts = value.values() if type(value) is dict else value
        return depth > 0 and all(_is_plain(part, depth - 1) for part in parts)
    return value is None or type(value) in (str, bool) or _is_number(value)


def _is_temperature(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1e300


def _is_prominence(value: Any) -> bool:
    return type(value) is list and 0 < len(value) <= MAX_UNKNOWN and all(map(_is_number, value)) and _ascends(value)


def _ascends(values: list[Any]) -> bool:
    return bool(values == sorted(values))


def _is_names(value: Any) -> bool:
    return type(value) is list and 2 <= len(value) <= 1000 and all(map(_is_text, value))


def _is_weights(value: Any) -> bool:
    return type(value) is list and all(_is_number(weight) and weight >= 0 for weight in value)


def _is_folders(value: Any) -> bool:
    return type(value) is list and all(_is_text(name) and DATA_NAME.fullmatch(name) for name in value)


def _is_network(value: Any) -> bool:
    if type(value) is not dict or set(value) != {"file", "output"} or value["file"] != "network.onnx":
        return False
    return value["output"] is None or _is_text(value["output"])


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "lnbnn_version": (_is_text, "text"),
    "method": (_is_text, "the name of a method"),
    "params": (_is_params, "the settings, plain values by name"),
    "is_incremental": (_is_flag, "true or false"),
    "min_descriptors": (_is_count, "a whole number"),
    "features": (_is_kind, "the length and the type of a descriptor"),
    "next_id": (_is_count, "a whole number"),
    "n_indexed": (_is_count, "a whole number"),
    "n_changes": (_is_count, "a whole number"),
    "temperature": (_is_temperature, "a number above 0"),
    "unknown_prominence": (_is_prominence, f"at most {MAX_UNKNOWN} numbers that ascend"),
    "members": (_is_names, "a list of names"),
    "weights": (_is_weights, "a list of numbers, none below 0"),
    "superseded": (_is_folders, "a list of names of data folders"),
    "network": (_is_network, "the network's file and the name of its output"),
}

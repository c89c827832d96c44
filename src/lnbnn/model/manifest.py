"""The manifest of a model: its fields, what each may hold, how they are written and how they are read.

A manifest may come from anyone. What is checked here can be relied on everywhere else; the settings in ``params`` are
checked by the method and the descriptor they belong to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lnbnn.errors import ModelFormatError
from lnbnn.references import MAX_DESCRIPTORS, MAX_IMAGES, Reference

if TYPE_CHECKING:
    from lnbnn.model.calibration import Calibration

__all__ = [
    "CALIBRATION_FIELDS",
    "DATA_NAME",
    "MAX_UNKNOWN",
    "calibration_fields",
    "calibration_of",
    "check_fields",
    "image_fields",
    "next_id_of",
    "parse_images",
    "short",
]

DATA_NAME = re.compile(r"data-\d{6,15}(-[0-9a-f]{16})?")
"""Names of data folders; those of format 2 have no random part."""

MAX_UNKNOWN = 4096
"""Values of ``unknown_by_class``, and of ``unknown_prominence``, at most."""

CALIBRATION_FIELDS = ("temperature", "confidence", "unknown_by_class", "unknown_prominence")

_FILE = re.compile(DATA_NAME.pattern + r"(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}){1,8}")
_DIGEST = re.compile(r"[0-9a-f]{64}")

_MAX_COUNT = (1 << 53) - 1
_MAX_DEPTH = 6  # of lists and dicts in the settings
_LARGEST = 1e30


def check_fields(path: Path, manifest: dict[str, Any]) -> None:
    """Raise :class:`~lnbnn.errors.ModelFormatError` when a field holds what it must not."""
    generation, data, files = manifest.get("generation"), manifest.get("data"), manifest.get("files")
    if type(generation) is not int or not 0 < generation < 10**15:
        raise ModelFormatError(f"{path}: the generation must be a whole number; got {short(generation)}.")
    if not isinstance(data, str) or DATA_NAME.fullmatch(data) is None:
        raise ModelFormatError(f"{path}: {short(data)} is not a folder inside the model folder.")
    if not isinstance(files, dict):
        raise ModelFormatError(f"{path}: the list of files is missing; copy the model again, or fit it again.")
    for name, entry in files.items():
        if _FILE.fullmatch(name) is None or name.split("/")[0] != data:
            raise ModelFormatError(f"{path}: {short(name)} is not a path inside the model folder.")
        fits = type(entry) is list and len(entry) == 2 and type(entry[0]) is int and type(entry[1]) is str
        if not fits or entry[0] < 0 or _DIGEST.fullmatch(entry[1]) is None:
            raise ModelFormatError(f"{path}: expected a size and a checksum for {name!r}; got {short(entry)}.")
    for name, (kind, what) in _FIELDS.items():
        if name not in manifest:
            continue
        value = manifest[name]
        if isinstance(kind, type):
            fits = type(value) is kind and (kind is not int or 0 <= manifest[name] <= _MAX_COUNT)
        else:
            fits = kind(value)
        if not fits:
            raise ModelFormatError(
                f"{path}: {name} must be {what}; got {short(value)}; the manifest is damaged, fit the model again."
            )


def short(value: Any) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of very many digits
        return "a value too long to be shown"
    return text if len(text) <= 100 else text[:100] + "..."


def _is_plain(value: Any, depth: int = _MAX_DEPTH) -> bool:
    """Whether a setting is made of texts, flags and numbers of a common size, in lists and dicts that end soon."""
    if type(value) in (list, dict):
        parts = value.values() if type(value) is dict else value
        return depth > 0 and all(_is_plain(part, depth - 1) for part in parts)
    return value is None or type(value) in (str, bool) or (type(value) in (int, float) and abs(value) < _LARGEST)


def _is_params(value: Any) -> bool:
    if type(value) is not dict or not _is_plain(value):
        return False
    names = (value[key] for key in ("descriptor", "index") if key in value)
    settings = (value.get(key) for key in ("descriptor_params", "index_params"))
    return all(type(name) is str for name in names) and all(part is None or type(part) is dict for part in settings)


def _is_kinds(value: Any) -> bool:
    """One kind, or a list of some."""
    is_list = type(value) is list and 1 <= len(value) <= 1000 and type(value[0]) is list
    return all(map(_is_kind, value)) if is_list else _is_kind(value)


def _is_kind(value: Any) -> bool:
    if type(value) is not list or len(value) != 2 or type(value[0]) is not int:
        return False
    return 0 < value[0] <= _MAX_COUNT and value[1] in ("uint8", "float16", "float32")


def _is_temperature(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1e300


def _is_ascending(value: Any) -> bool:
    return _is_numbers(value) and 0 < len(value) <= MAX_UNKNOWN and bool(value == sorted(value))


def _is_by_class(value: Any) -> bool:
    return type(value) is list and 1 < len(value) <= MAX_UNKNOWN and all(map(_is_ascending, value))


def _is_confidence(value: Any) -> bool:
    return _is_numbers(value) and len(value) == 3 and min(value[:2]) >= 0


def _is_numbers(value: Any) -> bool:
    return type(value) is list and all(type(n) in (int, float) and abs(n) < _LARGEST for n in value)


def _is_names(value: Any) -> bool:
    return type(value) is list and 2 <= len(value) <= 1000 and all(type(name) is str for name in value)


def _is_weights(value: Any) -> bool:
    return _is_numbers(value) and all(weight >= 0 for weight in value)


def _is_calibrations(value: Any) -> bool:
    return type(value) is list and len(value) <= 1000 and all(map(_is_calibration, value))


def _is_calibration(value: Any) -> bool:
    is_known = type(value) is dict and set(value) <= set(CALIBRATION_FIELDS)
    return is_known and all(_FIELDS[name][0](part) for name, part in value.items())


def _is_folders(value: Any) -> bool:
    return type(value) is list and all(type(name) is str and DATA_NAME.fullmatch(name) for name in value)


def _is_network(value: Any) -> bool:
    if type(value) is not dict or set(value) != {"file", "output"} or value["file"] != "network.onnx":
        return False
    return value["output"] is None or type(value["output"]) is str


_FIELDS: dict[str, tuple[Callable[[Any], bool] | type, str]] = {
    "lnbnn_version": (str, "text"),
    "method": (str, "the name of a method"),
    "params": (_is_params, "the settings, plain values by name"),
    "is_incremental": (bool, "true or false"),
    "min_descriptors": (int, "a whole number"),
    "features": (_is_kinds, "the length and the type of a descriptor"),
    "next_id": (int, "a whole number"),
    "n_indexed": (int, "a whole number"),
    "max_pending": (int, "a whole number"),
    "n_changes": (int, "a whole number"),
    "n_since_weights": (int, "a whole number"),
    "temperature": (_is_temperature, "a number above 0"),
    "confidence": (_is_confidence, "three numbers, the first two not below 0"),
    "unknown_by_class": (_is_by_class, f"two lists or more of at most {MAX_UNKNOWN} numbers that ascend"),
    "unknown_prominence": (_is_ascending, f"at most {MAX_UNKNOWN} numbers that ascend"),
    "members": (_is_names, "a list of names"),
    "weights": (_is_weights, "a list of numbers, none below 0"),
    "member_calibrations": (_is_calibrations, "the calibration of each part"),
    "choice": (_is_plain, "what was tried, plain values"),
    "superseded": (_is_folders, "a list of names of data folders"),
    "network": (_is_network, "the network's file and the name of its output"),
}
"""What a field must be: of a type (a whole number is a count), or what a function accepts; and the words for it."""


# ---- images ---------------------------------------------------------------------------------------------------------


def image_fields(images: Iterable[Reference]) -> dict[str, Any]:
    """The images as the manifest has them: ``classes``, and a row per image with the place of its class."""
    images = list(images)
    classes = sorted({image.label for image in images})
    places = {label: place for place, label in enumerate(classes)}
    rows = [[i.id, i.name, places[i.label], i.n_descriptors, i.digest, i.batch] for i in images]
    return {"classes": classes, "images": rows}


def parse_images(fields: Any, where: Path) -> list[Reference]:
    """The images that :func:`image_fields` wrote, every field checked; ids ascend."""
    try:
        classes, rows = fields["classes"], fields["images"]
        is_text, is_whole = (all(type(label) is kind for label in classes) for kind in (str, int))
        if not isinstance(classes, list) or not classes or not (is_text or is_whole):
            raise ValueError("classes must be all strings or all whole numbers")
        if classes != sorted(set(classes)) or not all(-(1 << 63) <= label < 1 << 63 for label in classes if is_whole):
            raise ValueError("classes must ascend")
        if is_text and any("\0" in label for label in classes):
            raise ValueError("a class has a NUL character in its name")
        images = []
        for row in rows:
            number, name, place, n_descriptors, digest, batch = row
            whole = all(type(value) is int for value in (number, place, n_descriptors, batch))
            if (
                not whole
                or type(name) is not str
                or not (digest is None or (type(digest) is str and len(digest) == 64))
            ):
                raise ValueError(f"image {row}")
            in_range = 0 <= number < MAX_IMAGES and 0 <= place < len(classes) and 1 <= n_descriptors <= MAX_DESCRIPTORS
            if not in_range or not 0 <= batch < 10**15:
                raise ValueError(f"image {row}")
            images.append(Reference(number, name, classes[place], n_descriptors, digest, batch))
        if any(first.id >= second.id for first, second in pairwise(images)):
            raise ValueError("the ids of images must ascend")
        if len({image.label for image in images}) != len(classes):
            raise ValueError("a class has no images")
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFormatError(f"{where}: the list of images is damaged ({error}); fit the model again.") from error
    return images


def next_id_of(manifest: dict[str, Any], last_id: int, where: Path) -> int:
    """The id that the next image gets: above all that were ever given."""
    value = manifest.get("next_id")
    if type(value) is not int or not last_id < value <= MAX_IMAGES:
        raise ModelFormatError(f"{where}: the next image's id must be above {last_id}; got {value!r}.")
    return int(value)


# ---- calibration ----------------------------------------------------------------------------------------------------


def calibration_fields(calibration: Calibration | None) -> dict[str, Any]:
    """What the manifest says of a calibration."""
    if calibration is None:
        return {}
    fields: dict[str, Any] = {} if calibration.temperature is None else {"temperature": calibration.temperature}
    if calibration.confidence is not None:
        fields["confidence"] = list(calibration.confidence)
    if calibration.unknown_by_class is not None:
        fields["unknown_by_class"] = [values.tolist() for values in calibration.unknown_by_class]
    if calibration.unknown_prominence is not None:
        fields["unknown_prominence"] = calibration.unknown_prominence.tolist()
    return fields


def calibration_of(manifest: dict[str, Any]) -> Calibration | None:
    """The calibration that :func:`calibration_fields` wrote; a fusion's has no temperature of its own."""
    temperature, confidence, by_class, older = (manifest.get(name) for name in CALIBRATION_FIELDS)
    if all(value is None for value in (temperature, confidence, by_class, older)):
        return None
    from lnbnn.model.calibration import Calibration  # few models are calibrated

    return Calibration(
        None if temperature is None else float(temperature),
        None if by_class is None else tuple(np.array(one, dtype=np.float64) for one in by_class),
        None if confidence is None else (float(confidence[0]), float(confidence[1]), float(confidence[2])),
        None if older is None else np.array(older, dtype=np.float64),
    )

"""The labelled images of a model: stable ids, labels, and the features of those added later, as plain files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.files.arrays import load_array, save_stacked
from lnbnn.files.regular import read_regular

__all__ = [
    "MAX_IMAGES",
    "StoredImage",
    "parse_images",
    "read_batch",
    "read_table",
    "table_fields",
    "write_batch",
    "write_table",
]

MAX_IMAGES = 1 << 24
"""Ids are below this: how many images can ever be added to one model."""
MAX_DESCRIPTORS = 1 << 20
"""Of one image."""

_TABLE = "table.json"
_MAX_TABLE_BYTES = 1 << 27


@dataclass(frozen=True)
class StoredImage:
    """One labelled image of a model.

    Parameters
    ----------
    id : int
        Its own for as long as the model lives; never given to another image.
    name : str
        The path it was read from, or what it was called.
    label : str or int
    n_descriptors : int
    digest : str or None
        SHA-256 of its content, by which the same image is noticed.
    batch : int
        The generation it was added in; 0 if it is among the model's indexed files.
    """

    id: int
    name: str
    label: Any
    n_descriptors: int
    digest: str | None = None
    batch: int = 0


def table_fields(images: Sequence[StoredImage]) -> dict[str, Any]:
    """The images as the manifest has them: ``classes``, and a row an image with the place of its class."""
    classes = sorted({image.label for image in images})
    places = {label: place for place, label in enumerate(classes)}
    rows = [[i.id, i.name, places[i.label], i.n_descriptors, i.digest, i.batch] for i in images]
    return {"classes": classes, "images": rows}


def parse_images(fields: Any, where: Path) -> list[StoredImage]:
    """The images that :func:`table_fields` wrote, every field checked; ids ascend."""
    try:
        classes, rows = fields["classes"], fields["images"]
        is_text, is_whole = (all(type(label) is kind for label in classes) for kind in (str, int))
        if not isinstance(classes, list) or not classes or not (is_text or is_whole):
            raise ValueError("classes must be all strings or all whole numbers")
        if classes != sorted(set(classes)) or not all(-(1 << 63) <= label < 1 << 63 for label in classes if is_whole):
            raise ValueError("classes must ascend")
        if is_text and any("\0" in label for label in classes):
            raise ValueError("a class has a NUL character in its name")
        images = [_parse_row(row, classes) for row in rows]
        if any(first.id >= second.id for first, second in pairwise(images)):
            raise ValueError("the ids of images must ascend")
        if len({image.label for image in images}) != len(classes):
            raise ValueError("a class has no images")
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFormatError(f"{where}: the list of images is damaged ({error}); fit the model again.") from error
    return images


def _parse_row(row: Any, classes: list[Any]) -> StoredImage:
    number, name, place, n_descriptors, digest, batch = row
    whole = all(type(value) is int for value in (number, place, n_descriptors, batch))
    if not whole or type(name) is not str or not (digest is None or (type(digest) is str and len(digest) == 64)):
        raise ValueError(f"image {row}")
    in_range = 0 <= number < MAX_IMAGES and 0 <= place < len(classes) and 1 <= n_descriptors <= MAX_DESCRIPTORS
    if not in_range or not 0 <= batch < 10**15:
        raise ValueError(f"image {row}")
    return StoredImage(number, name, classes[place], n_descriptors, digest, batch)


def write_table(folder: Path, images: Sequence[StoredImage]) -> None:
    """The images that the files of a folder hold, as the file ``table.json``."""
    (folder / _TABLE).write_text(json.dumps(table_fields(images), separators=(",", ":")), encoding="ascii")


def read_table(folder: Path) -> list[StoredImage]:
    """The images that :func:`write_table` wrote."""
    return parse_images(_read_json(folder / _TABLE), folder / _TABLE)


def write_batch(folder: Path, images: Iterable[tuple[int, ImageFeatures]]) -> None:
    """The features of added images, under their ids, as files of one folder."""
    images = list(images)
    rows = [[number, len(features), *features.size] for number, features in images]
    (folder / _TABLE).write_text(json.dumps(rows), encoding="ascii")
    for name in ("descriptors", "xy", "scale"):
        save_stacked(folder / f"{name}.npy", [getattr(features, name) for _, features in images])


def read_batch(folder: Path) -> dict[int, ImageFeatures]:
    """The features that :func:`write_batch` wrote, by id."""
    rows = _read_json(folder / _TABLE)
    descriptors = load_array(folder / "descriptors.npy", ndim=2, dtypes=("uint8", "float16", "float32"))
    xy = load_array(folder / "xy.npy", ndim=2, dtypes=("float32",))
    scale = load_array(folder / "scale.npy", ndim=1, dtypes=("float32",))
    found: dict[int, ImageFeatures] = {}
    start = 0
    try:
        for number, n_descriptors, width, height in rows:
            if not all(type(value) is int for value in (number, n_descriptors, width, height)) or n_descriptors < 1:
                raise ValueError(f"image {number}")
            part = slice(start, start + n_descriptors)
            places = np.asarray(xy[part], np.float32), np.asarray(scale[part], np.float32)
            found[number] = ImageFeatures(descriptors[part], *places, (width, height))
            if len(found[number]) != n_descriptors:
                raise ValueError(f"image {number} has too few descriptors")
            start += n_descriptors
        if start != len(descriptors):
            raise ValueError(f"{len(descriptors)} descriptors, {start} of them of images")
    except (InvalidInputError, TypeError, ValueError, OverflowError) as error:
        raise ModelFormatError(f"{folder}: the added images are damaged ({error}); fit the model again.") from error
    return found


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, _MAX_TABLE_BYTES).decode("ascii"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path}: cannot be read ({error}); fit the model again.") from error

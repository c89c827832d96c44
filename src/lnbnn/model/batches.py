"""The features of images that were added to a model after its files were written, as plain files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.files.arrays import load_array, save_stacked
from lnbnn.model.folder import read_json

__all__ = ["TABLE", "read_batch", "write_batch"]

TABLE = "table.json"


def write_batch(folder: Path, images: Iterable[tuple[int, ImageFeatures]]) -> None:
    """The features of added images, under their ids, as files of one folder."""
    images = list(images)
    rows = [[number, len(features), *features.size] for number, features in images]
    (folder / TABLE).write_text(json.dumps(rows), encoding="ascii")
    for name in ("descriptors", "xy", "scale"):
        save_stacked(folder / f"{name}.npy", [getattr(features, name) for _, features in images])


def read_batch(folder: Path) -> dict[int, ImageFeatures]:
    """The features that :func:`write_batch` wrote, by id."""
    rows = read_json(folder / TABLE)
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

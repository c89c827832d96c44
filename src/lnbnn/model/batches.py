"""The features of images that were added to a model after its files were written, as plain files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures, JointFeatures
from lnbnn.files.arrays import load_array, save_stacked
from lnbnn.model.folder import Snapshot, batch_folder, read_json
from lnbnn.references import Reference

__all__ = ["TABLE", "features_of_batches", "read_batch", "read_joint_batch", "write_batch"]

TABLE = "table.json"


def write_batch(folder: Path, images: Iterable[tuple[int, Any]]) -> None:
    """The features of added images, under their ids, as files of one folder; joint ones in a folder for each part."""
    images = list(images)
    if isinstance(images[0][1], JointFeatures):
        for place in range(len(images[0][1].parts)):
            _part(folder, place).mkdir()
            write_batch(_part(folder, place), ((number, joint.parts[place]) for number, joint in images))
        return
    rows = [[number, len(features), *features.size] for number, features in images]
    (folder / TABLE).write_text(json.dumps(rows), encoding="ascii")
    for name in ("descriptors", "xy", "scale"):
        save_stacked(folder / f"{name}.npy", [getattr(features, name) for _, features in images])


def read_joint_batch(folder: Path, n_parts: int) -> dict[int, JointFeatures]:
    """The joint features that :func:`write_batch` wrote, by id."""
    parts = [read_batch(_part(folder, place), least=0) for place in range(n_parts)]
    if any(part.keys() != parts[0].keys() for part in parts):
        raise ModelFormatError(f"{folder}: the parts are not of the same images; fit the model again.")
    return {number: JointFeatures(tuple(part[number] for part in parts)) for number in parts[0]}


def _part(folder: Path, place: int) -> Path:
    return folder / f"part{place}"


def read_batch(folder: Path, *, least: int = 1) -> dict[int, ImageFeatures]:
    """The features that :func:`write_batch` wrote, by id; of ``least`` descriptors per image."""
    rows = read_json(folder / TABLE)
    descriptors = load_array(folder / "descriptors.npy", ndim=2, dtypes=("uint8", "float16", "float32"))
    xy = load_array(folder / "xy.npy", ndim=2, dtypes=("float32",))
    scale = load_array(folder / "scale.npy", ndim=1, dtypes=("float32",))
    found: dict[int, ImageFeatures] = {}
    start = 0
    try:
        for number, n_descriptors, width, height in rows:
            if not all(type(value) is int for value in (number, n_descriptors, width, height)) or n_descriptors < least:
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


def features_of_batches(
    snapshot: Snapshot, read: Callable[[Path], Mapping[int, ImageFeatures | JointFeatures]]
) -> Callable[[Reference], Any]:
    """What gives the features of an image that was added to an open folder; each batch is read once, by ``read``."""
    batches: dict[int, Mapping[int, ImageFeatures | JointFeatures]] = {}

    def features(image: Reference) -> Any:
        if image.batch not in batches:
            batches[image.batch] = read(batch_folder(snapshot.data, image.batch))
        found = batches[image.batch].get(image.id)
        if found is None or len(found) != image.n_descriptors:
            raise ModelFormatError(
                f"{snapshot.folder}: the features of image {image.id} are missing; fit the model again."
            )
        return found

    return features

"""Caltech 101 (Fei-Fei, Fergus and Perona 2004) in the publisher's layout, read from a path."""

from __future__ import annotations

import os
from pathlib import Path

from lnbnn.datasets.folder import LabelledImages, scan_folder
from lnbnn.errors import DatasetError

__all__ = ["BACKGROUND", "N_CLASSES", "find_caltech101", "load_caltech101"]

N_CLASSES = 101
BACKGROUND = "BACKGROUND_Google"
_FOLDER = "101_ObjectCategories"
_VARIABLE = "LNBNN_CALTECH101"
_BESIDE = Path("../shared/data/caltech101")


def find_caltech101(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder of class folders: the path given, or ``LNBNN_CALTECH101``, or one beside the project."""
    for place in (path, os.environ.get(_VARIABLE), _BESIDE):
        if place and Path(place).is_dir():
            inner = Path(place) / _FOLDER
            return inner if inner.is_dir() else Path(place)
        if place and place is path:
            break
    raise DatasetError(
        f"Caltech 101 is not at {path or 'any known place'}; download it from its publisher (CaltechDATA, "
        f"10.22002/D1.20086) and give the path of {_FOLDER}, or set {_VARIABLE} to it."
    )


def load_caltech101(path: str | os.PathLike[str] | None = None) -> LabelledImages:
    """All images of the 101 classes; the background class, which the paper leaves out, is left out."""
    folder = find_caltech101(path)
    images = scan_folder(folder)
    kept = [place for place, label in enumerate(images.labels) if label != BACKGROUND]
    n_classes = len({images.labels[place] for place in kept})
    if n_classes != N_CLASSES:
        raise DatasetError(f"{folder}: expected the {N_CLASSES} classes of Caltech 101; got {n_classes}.")
    return LabelledImages(tuple(images.paths[i] for i in kept), tuple(images.labels[i] for i in kept))

"""Caltech 101 (Fei-Fei, Fergus and Perona 2004) in the publisher's layout, read from a path."""

from __future__ import annotations

import os
from pathlib import Path

from lnbnn.data.folder import LabelledImages
from lnbnn.data.published import Archive, PublishedSet, find_set, load_set

__all__ = ["CALTECH101", "find_caltech101", "load_caltech101"]

CALTECH101 = PublishedSet(
    name="caltech101",
    title="Caltech 101",
    folder="101_ObjectCategories",
    image_pattern=r"[A-Za-z][\w-]*/image_\d{4}\.jpg",
    background="BACKGROUND_Google",
    n_classes=101,
    n_images=8677,
    page="https://data.caltech.edu/records/mzrjq-6wc02",
    url="https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip?download=1",
    archives=(
        # Sizes and checksums as TensorFlow Datasets records them for caltech101.
        Archive(
            "caltech-101.zip",
            137_414_764,
            "sha256:331234750fc7f77520e50d9565e8b6907b03565e30320da1401130db08c61f91",
        ),
        Archive(
            "101_ObjectCategories.tar.gz",
            131_740_031,
            "sha256:af6ece2f339791ca20f855943d8b55dd60892c0a25105fcd631ee3d6430f9926",
        ),
    ),
    unpacked_bytes=200_000_000,
    variable="LNBNN_CALTECH101",
)


def find_caltech101(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder of class folders: the path given, or ``LNBNN_CALTECH101``, or one beside the project."""
    return find_set(CALTECH101, path)


def load_caltech101(path: str | os.PathLike[str] | None = None) -> LabelledImages:
    """All images of the 101 classes; the background class, which the paper leaves out, is left out."""
    return load_set(CALTECH101, path)

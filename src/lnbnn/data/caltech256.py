"""Caltech 256 (Griffin, Holub and Perona 2007) in the publisher's layout, read from a path.

Class folders are ``001.ak47`` to ``256.toad``; the pictures of ``257.clutter`` are left out, and so is what was
forgotten in the folders (``198.spider/RENAME2``, ``056.dog/greg/``).
"""

from __future__ import annotations

import os
from pathlib import Path

from lnbnn.data.folder import LabelledImages
from lnbnn.data.published import Archive, PublishedSet, find_set, load_set

__all__ = ["CALTECH256", "find_caltech256", "load_caltech256"]

CALTECH256 = PublishedSet(
    name="caltech256",
    title="Caltech 256",
    folder="256_ObjectCategories",
    image_pattern=r"(\d{3})\.[A-Za-z][\w.-]*/\1_\d{4}\.jpg",
    background="257.clutter",
    n_classes=256,
    n_images=30_607,
    counts_background=True,
    page="https://data.caltech.edu/records/nyy15-4j048",
    url="https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar?download=1",
    # The checksum is the one on the publisher's page.
    archives=(Archive("256_ObjectCategories.tar", 1_183_006_720, "md5:67b4f42ca05d46448c6bb8ecd2220f6d"),),
    unpacked_bytes=1_300_000_000,
    variable="LNBNN_CALTECH256",
)


def find_caltech256(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder of class folders: the path given, or ``LNBNN_CALTECH256``, or one beside the project."""
    return find_set(CALTECH256, path)


def load_caltech256(path: str | os.PathLike[str] | None = None) -> LabelledImages:
    """All images of the 256 classes, without the clutter."""
    return load_set(CALTECH256, path)

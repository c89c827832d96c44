"""Caltech 101 (Fei-Fei, Fergus and Perona 2004) and Caltech 256 (Griffin, Holub and Perona 2007), as published.

Class folders of Caltech 256 are ``001.ak47`` to ``256.toad``; the pictures of ``257.clutter`` are left out, and so is
what was forgotten in the folders (``198.spider/RENAME2``, ``056.dog/greg/``).
"""

from functools import partial

from lnbnn.data.published import Archive, PublishedSet, load_set

__all__ = ["CALTECH101", "CALTECH256", "load_caltech101", "load_caltech256"]

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
CALTECH256 = PublishedSet(
    name="caltech256",
    title="Caltech 256",
    folder="256_ObjectCategories",
    image_pattern=r"(\d{3})\.[A-Za-z][\w.-]*/\1_\d{4}\.jpg",
    background="257.clutter",
    n_classes=256,
    n_images=30_607,
    n_background=827,
    page="https://data.caltech.edu/records/nyy15-4j048",
    url="https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar?download=1",
    # The checksum is the one on the publisher's page.
    archives=(Archive("256_ObjectCategories.tar", 1_183_006_720, "md5:67b4f42ca05d46448c6bb8ecd2220f6d"),),
    unpacked_bytes=1_300_000_000,
    variable="LNBNN_CALTECH256",
)

load_caltech101 = partial(load_set, CALTECH101)
load_caltech256 = partial(load_set, CALTECH256)

"""Seeded splits of labeled images into training and test lists."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from lnbnn.data.folder import LabeledImages
from lnbnn.errors import InvalidInputError

__all__ = ["split_images"]


def split_images(
    images: LabeledImages, *, n_train: int | float, n_test: int | None = None, seed: int = 0
) -> tuple[LabeledImages, LabeledImages]:
    """``n_train`` images of each class to train on, ``n_test`` others (None: all others) to test on.

    The choice in a class depends on the seed, the class's name and its images alone, not on the other classes. A class
    too small for both gives up test images.

    Parameters
    ----------
    n_train : int or float
        Images per class; a class that has no more is refused. Or the share of each class, above 0 and below 1, rounded
        up; a class of a single image is then only trained on.
    """
    is_share = isinstance(n_train, float)
    if (not 0.0 < n_train < 1.0) if is_share else (n_train < 1):
        raise InvalidInputError(f"n_train must be a number of images, or a share above 0 and below 1; got {n_train}.")
    if n_test is not None and n_test < 1:
        raise InvalidInputError(f"n_test must be at least 1; got {n_test}.")
    labels = np.asarray(images.labels)
    train: list[int] = []
    test: list[int] = []
    for label in sorted(set(images.labels)):
        places = np.flatnonzero(labels == label)
        n_first = int(np.ceil(n_train * len(places) - 1e-9)) if is_share else int(n_train)
        if len(places) <= n_first and not is_share:
            raise InvalidInputError(
                f"class {label!r} has {len(places)} images; {n_first} for training leave none to test on. "
                "Ask for fewer, or leave the class out."
            )
        name_seed = int.from_bytes(hashlib.sha256(os.fsencode(label)).digest()[:8], "big")
        order = places[np.random.default_rng([seed, name_seed]).permutation(len(places))]
        train += sorted(order[:n_first])
        test += sorted(order[n_first:] if n_test is None else order[n_first : n_first + n_test])
    if not test:
        raise InvalidInputError("every class has a single image: none is left to test on.")
    return images.take(train), images.take(test)

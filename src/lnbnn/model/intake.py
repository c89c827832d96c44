"""What goes into a model: labels, ids and contents checked at the door, images read, doubles noticed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.model.image_table import MAX_IMAGES, StoredImage
from lnbnn.reading.extraction import ImageLike, Progress, iter_read, name_of, no_progress
from lnbnn.reading.store import FeatureStore

__all__ = [
    "Intake",
    "check_enough_left",
    "check_ids",
    "check_label_kind",
    "check_labels",
    "check_next_id",
    "no_descriptors",
]


class Intake:
    """Reads labelled images for a model, and remembers which of them it left out, and why.

    Parameters
    ----------
    descriptor : Descriptor
    known : dict of content digest to id, optional
        Images of these contents are left out as doubles, and so is a content that comes twice. By default doubles are
        not looked for.

    Attributes
    ----------
    skipped : list of (name, reason)
        Images left out: unreadable, without descriptors, or doubles.
    doubles : list of (name, id)
        Those whose content an image of the model has, by its id.
    """

    def __init__(self, descriptor: Descriptor, known: dict[str, int] | None = None) -> None:
        self.descriptor = descriptor
        self.known = None if known is None else dict(known)
        self.skipped: list[tuple[str, str]] = []
        self.doubles: list[tuple[str, int]] = []

    def read(
        self,
        images: list[ImageLike],
        labels: list[Any],
        *,
        first_id: int,
        on_error: str,
        n_jobs: int | None = None,
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Iterator[tuple[StoredImage, ImageFeatures]]:
        """The images that can be used, with ids from ``first_id`` on, each with its features."""
        if on_error not in ("raise", "skip"):
            raise InvalidInputError(f"on_error must be 'raise' or 'skip'; got {on_error!r}.")
        next_id = first_id
        found = iter_read(images, self.descriptor, n_jobs=n_jobs, store=store)
        for position, read in enumerate(found):
            name = name_of(images[position], position)
            try:
                if isinstance(read, ImageReadError):
                    raise read
                features, digest = read
                if self._is_usable(name, digest, features, next_id):
                    if next_id >= MAX_IMAGES:
                        raise InvalidInputError(f"a model takes at most {MAX_IMAGES} images in its life.")
                    yield StoredImage(next_id, name, labels[position], len(features), digest), features
                    next_id += 1
            except ImageReadError as error:
                if on_error == "raise":
                    raise
                self.skipped.append((name, str(error)))
            progress("reading images", position + 1, len(images))

    def _is_usable(self, name: str, digest: str, features: ImageFeatures, next_id: int) -> bool:
        if len(features) == 0:
            self.skipped.append((name, no_descriptors(name)))
            return False
        if self.known is not None:
            if digest in self.known:
                self.doubles.append((name, self.known[digest]))
                self.skipped.append((name, f"{name}: the same image is in the model as image {self.known[digest]}."))
                return False
            self.known[digest] = next_id
        return True


def no_descriptors(name: str) -> str:
    """What is said of an image without descriptors."""
    return f"{name}: no descriptors; the picture is flat or too small."


def check_labels(y: ArrayLike, n_images: int) -> list[Any]:
    """The labels as a list of all strings or all whole numbers, one an image."""
    labels = np.asarray(y)
    if labels.shape != (n_images,):
        raise InvalidInputError(f"y must hold one label an image ({n_images}); got shape {labels.shape}.")
    if n_images == 0:
        raise InvalidInputError("fit needs at least one image; got none.")
    given: list[Any] = y.tolist() if isinstance(y, np.ndarray) else list(y)  # type: ignore[arg-type]
    all_text = all(isinstance(label, str) for label in given)
    all_whole = all(isinstance(label, int | np.integer) and not isinstance(label, bool) for label in given)
    if not (all_text or all_whole):
        raise InvalidInputError(f"labels must be all strings or all whole numbers; got dtype {labels.dtype}.")
    if all_text and not all(label.strip() for label in given):
        raise InvalidInputError("a label must not be empty; name the class.")
    for label in given if all_text else []:
        if "\0" in label:  # NumPy drops it at the end of a string: two labels would become one
            raise InvalidInputError(f"a label must not hold a NUL character; got {label!r}.")
    return [label if all_text else int(label) for label in given]


def check_label_kind(label: Any, known: Any) -> None:
    """Raise unless a label is of the kind of those a model has."""
    if isinstance(label, str) != isinstance(known, str):
        raise InvalidInputError(f"labels must be of the kind of {known!r}, as before; got {label!r}.")


def check_ids(ids: Iterable[int], known: Container[int]) -> list[int]:
    """The ids once each, in the order given; raises on one that is not known, and on none at all."""
    wanted = []
    for number in ids:
        if not isinstance(number, int | np.integer) or isinstance(number, bool) or int(number) not in known:
            raise InvalidInputError(f"no image of the model has the id {number!r}; lnbnn list MODEL shows them.")
        wanted.append(int(number))
    if not wanted:
        raise InvalidInputError("expected the id of at least one image; got none.")
    return list(dict.fromkeys(wanted))


def check_enough_left(n_descriptors: int, needed: int) -> None:
    """Raise when too few descriptors would be left for a search."""
    if n_descriptors < needed:
        raise InvalidInputError(
            f"a model needs at least {needed} descriptors to search; {n_descriptors} would be left; add others first."
        )


def check_next_id(value: Any, last_id: int, where: Path) -> int:
    """The id that the next image gets: above all that were ever given."""
    if type(value) is not int or not last_id < value <= MAX_IMAGES:
        raise ModelFormatError(f"{where}: the next image's id must be above {last_id}; got {value!r}.")
    return int(value)

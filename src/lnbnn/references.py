"""The labeled images that a model is made of, and what a change does to them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.errors import InvalidInputError

__all__ = [
    "MAX_DESCRIPTORS",
    "MAX_IMAGES",
    "Change",
    "Reference",
    "References",
    "can_be_held_out",
    "check_ids",
    "check_label_kind",
    "check_labels",
]

MAX_IMAGES = 1 << 24
"""Ids are below this: the number of images that can ever be added to one model."""
MAX_DESCRIPTORS = 1 << 20
"""Of one image."""


@dataclass(frozen=True)
class Reference:
    """One labeled image of a model.

    Parameters
    ----------
    id : int
        Unique for the lifetime of the model; never reused.
    name : str
        The path it was read from, or what it was called.
    label : str or int
    n_descriptors : int
    digest : str or None
        SHA-256 of its content, to detect duplicates.
    batch : int
        The generation it was added in; 0 if it is among the model's indexed files.
    """

    id: int
    name: str
    label: Any
    n_descriptors: int
    digest: str | None = None
    batch: int = 0

    def as_json(self) -> dict[str, Any]:
        """The image as plain values."""
        counts = {"id": self.id, "label": self.label, "n_descriptors": self.n_descriptors}
        return counts | {"path": self.name, "sha256": self.digest}


class References(tuple[Reference, ...]):
    """The labeled images of a model, ids ascending.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        The labels, sorted.
    places : ndarray of shape (n_images,), int64
        The place of each image's label in ``classes``.
    """

    classes: NDArray[np.generic]
    places: NDArray[np.int64]

    def __new__(cls, images: Iterable[Reference] = ()) -> Self:
        """The images, with their classes looked up."""
        references = super().__new__(cls, images)
        references.classes, places = np.unique(np.asarray([image.label for image in references]), return_inverse=True)
        references.places = places.astype(np.int64)
        return references

    @property
    def n_descriptors(self) -> int:
        """Of all images together."""
        return sum(image.n_descriptors for image in self)

    def named(self, texts: Iterable[Any]) -> list[Any]:
        """The labels that texts name, such as those of folders; a text that names no class stays itself."""
        labels = {str(label): label for label in self.classes.tolist()}
        return [labels.get(text, text) for text in texts]


@dataclass(frozen=True)
class Change:
    """From one set of references to another: what was removed, what got which other label, what was added."""

    after: References
    removed: tuple[Reference, ...]
    relabeled: tuple[tuple[Reference, Any], ...]
    added: tuple[tuple[Reference, Any], ...]
    """With their features, joint ones for a fusion."""

    @classmethod
    def between(
        cls, before: Iterable[Reference], after: Iterable[Reference], features: Callable[[Reference], Any]
    ) -> Change:
        """The change from ``before`` to ``after``; ``features`` gives those of an added image."""
        old, new = {image.id: image for image in before}, {image.id: image for image in after}
        return cls(
            References(new.values()),
            tuple(image for number, image in old.items() if number not in new),
            tuple(
                (image, new[number].label)
                for number, image in old.items()
                if number in new and new[number].label != image.label
            ),
            tuple((image, features(image)) for number, image in new.items() if number not in old),
        )

    def __len__(self) -> int:
        return len(self.removed) + len(self.relabeled) + len(self.added)


def can_be_held_out(places: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which images have another of their class, so that the class is still known without them."""
    return np.bincount(places)[places] > 1


def check_labels(y: ArrayLike, n_images: int) -> list[Any]:
    """The labels as a list of all strings or all whole numbers, one per image."""
    labels = np.asarray(y)
    if labels.shape != (n_images,):
        raise InvalidInputError(f"y must hold one label per image ({n_images}); got shape {labels.shape}.")
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


def check_ids(ids: int | Iterable[int], known: Container[int]) -> list[int]:
    """The ids once each, in the order given; raises on one that is not known, and on none at all."""
    wanted = []
    for number in [ids] if isinstance(ids, int | np.integer) else ids:
        if not isinstance(number, int | np.integer) or isinstance(number, bool) or int(number) not in known:
            raise InvalidInputError(f"no image of the model has the id {number!r}; lnbnn list MODEL shows them.")
        wanted.append(int(number))
    if not wanted:
        raise InvalidInputError("expected the id of at least one image; got none.")
    return list(dict.fromkeys(wanted))

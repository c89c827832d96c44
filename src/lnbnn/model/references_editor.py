"""Changes to the labeled images of a model, checked one by one: the same in memory and in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.model.image_reader import ImageReader
from lnbnn.params import OldName
from lnbnn.reading.extraction import ImageLike, Jobs, Progress, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.references import Change, Reference, check_ids, check_label_kind, check_labels

__all__ = ["ReferenceEditor"]


class ReferenceEditor:
    """Adds, removes and relabels the images of a model.

    Parameters
    ----------
    images : iterable of Reference
        The images so far, at least one.
    next_id : int
        The id of the next image.
    min_descriptors : int
        How many descriptors a removal must leave.
    descriptor : callable
        Returns the descriptor to read images with, or those of a fusion.
    feature_kind : list, optional
        Required length and type of descriptors; for a fusion, one per descriptor.

    Attributes
    ----------
    skipped : list of (name, reason)
        What :meth:`add` left out: files that cannot be read, images without descriptors, and duplicates.
    duplicates : list of (name, id)
        The duplicates: an image with the same content has this id.
    """

    def __init__(
        self,
        images: Iterable[Reference],
        next_id: int,
        *,
        min_descriptors: int,
        descriptor: Callable[[], Descriptor | Sequence[Descriptor]],
        feature_kind: list[Any] | None = None,
    ) -> None:
        self._images = {image.id: image for image in images}
        self._before = list(self._images.values())
        self._min_descriptors = min_descriptors
        self._descriptor = descriptor
        self._feature_kind = feature_kind
        self.next_id = next_id
        self.added: dict[int, Any] = {}
        self.n_changes = 0
        self.skipped: list[tuple[str, str]] = []
        self.duplicates: list[tuple[str, int]] = []

    doubles = OldName("duplicates")

    @property
    def images(self) -> list[Reference]:
        """The images as they are now, ids ascending."""
        return list(self._images.values())

    def add(
        self,
        X: Sequence[ImageLike],
        y: ArrayLike,
        *,
        on_error: str = "raise",
        n_jobs: Jobs = None,
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> list[Reference]:
        """Add labeled images, of known or new classes; returns those added, with their ids.

        Parameters are those of the classifiers' ``fit``. Duplicates of images in the model are left out.
        """
        images = list(X)
        given = check_labels(y, len(images))
        check_label_kind(given[0], self._before[0].label)
        known = {image.digest: image.id for image in self._images.values() if image.digest is not None}
        reader = ImageReader(self._descriptor(), known)
        self.skipped, self.duplicates = reader.skipped, reader.duplicates
        found = list(
            reader.read(
                images,
                given,
                first_id=self.next_id,
                on_error=on_error,
                n_jobs=n_jobs,
                store=store,
                progress=progress,
            )
        )
        for _, features in found:
            if self._feature_kind is not None and features.kind != self._feature_kind:
                raise InvalidInputError(
                    f"the model's descriptors have length and type {self._feature_kind}; got {features.kind}."
                )
        for image, features in found:
            self._images[image.id], self.added[image.id] = image, features
        self.next_id += len(found)
        self.n_changes += len(found)
        return [image for image, _ in found]

    def remove(self, ids: int | Iterable[int]) -> list[Reference]:
        """Remove images by their ids; returns them. Ids are never reused."""
        wanted = check_ids(ids, self._images)
        gone = set(wanted)
        n_left = sum(image.n_descriptors for image in self._images.values() if image.id not in gone)
        if n_left < self._min_descriptors:
            raise InvalidInputError(
                f"a model needs at least {self._min_descriptors} descriptors to search; {n_left} would be left; add "
                "others first."
            )
        self.n_changes += len(wanted)
        for number in wanted:
            self.added.pop(number, None)
        return [self._images.pop(number) for number in wanted]

    def relabel(self, ids: int | Iterable[int], label: Any) -> list[Reference]:
        """Give images another label, known or new, by their ids; returns the relabeled images."""
        wanted = check_ids(ids, self._images)
        (label,) = check_labels([label], 1)
        check_label_kind(label, self._images[wanted[0]].label)
        self.n_changes += sum(self._images[number].label != label for number in wanted)
        for number in wanted:
            self._images[number] = replace(self._images[number], label=label)
        return [self._images[number] for number in wanted]

    def ids_of(self, label: Any) -> list[int]:
        """The ids of the images of a class."""
        found = [image.id for image in self._images.values() if image.label == label]
        if not found:
            raise InvalidInputError(f"no image of the model has the label {label!r}; lnbnn list MODEL shows them.")
        return found

    def label_of(self, text: str) -> Any:
        """Convert a label from text to the type of the model's labels."""
        if isinstance(self._before[0].label, str):
            return text
        try:
            return int(text)
        except ValueError:
            raise InvalidInputError(f"the model's labels are whole numbers; got {text!r}.") from None

    def as_json(self) -> dict[str, Any]:
        """What was added and what was left out, as plain values."""
        return {
            "added": [self._images[number].as_json() for number in self.added],
            "duplicates": [list(pair) for pair in self.duplicates],
            "doubles": [list(pair) for pair in self.duplicates],  # the old key, until 0.4
            "skipped": [list(entry) for entry in self.skipped],
        }

    def set_batch(self, batch: int) -> None:
        """Set the batch in which the features of the added images are stored."""
        for number in self.added:
            self._images[number] = replace(self._images[number], batch=batch)

    @property
    def has_removed(self) -> bool:
        """Whether images were removed."""
        return any(image.id not in self._images for image in self._before)

    def change(self) -> Change:
        """The change from the images given to those there are now."""
        return Change.between(self._before, self._images.values(), lambda image: self.added[image.id])

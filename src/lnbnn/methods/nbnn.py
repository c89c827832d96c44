"""NBNN: one index per class, every class is updated by every descriptor (Algorithm 1); and its log-odds form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.features import UNIT_LENGTH
from lnbnn.indexes import INDEXES, Index, LeaveOut, make_index
from lnbnn.methods.base import Progress
from lnbnn.methods.matching import MatchingMethod, check_count, ids_of_image
from lnbnn.params import resolve
from lnbnn.references import Reference, References
from lnbnn.scoring import Updates, log_odds_updates, nbnn_updates

__all__ = ["ClassMatching", "LogOddsMatching"]


class ClassMatching(MatchingMethod):
    """NBNN (Boiman, Shechtman and Irani 2008; Algorithm 1 of McCann & Lowe 2011)."""

    def __init__(self, settings: Any, location_weight: float, scale_weight: float) -> None:
        super().__init__(settings, location_weight, scale_weight)
        if resolve(INDEXES, settings.index, "index").is_remote:
            raise InvalidInputError(
                f"index {settings.index!r} is one large index, and this method has one per class; use local-nbnn."
            )
        self.class_indexes: list[Index] = []
        self._by_label: dict[Any, Index] = {}

    def class_distances(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> NDArray[np.float32]:
        """Squared distance of each query vector to its nearest neighbor in every class; inf where none was found."""
        return np.hstack([index.search(vectors, 1, leave_out=leave_out)[0] for index in self.class_indexes])

    def updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> Updates:
        """Squared distance of each query descriptor to its nearest neighbor in every class."""
        return nbnn_updates(self.class_distances(vectors, leave_out))

    def reference_vectors(self, place: int) -> NDArray[np.generic]:
        image = self.references[place]
        index = self.class_indexes[self.references.places[place]]
        return index.vectors_of(ids_of_image(image.id, image.n_descriptors))

    def indexes(self) -> list[tuple[Index, int | None]]:
        return [(index, place) for place, index in enumerate(self.class_indexes)]

    def resume(self, *, keeps_structure: bool = False) -> None:
        self._by_label = dict(zip(self.references.classes.tolist(), self.class_indexes, strict=True))
        for index in self.class_indexes:
            index.keeps_structure = keeps_structure

    def add_vectors(self, vectors: NDArray[np.generic], ids: NDArray[np.int64], label: Any) -> None:
        if label not in self._by_label:
            self._by_label[label] = make_index(self.settings.index, self.settings.index_params)
        self._by_label[label].add(vectors, ids)

    def remove(self, image: Reference) -> None:
        index = self._by_label[image.label]
        index.remove(np.array(ids_of_image(image.id, image.n_descriptors), np.int64))
        if len(index) == 0:
            del self._by_label[image.label]

    def relabel(self, image: Reference, label: Any) -> None:
        ids = ids_of_image(image.id, image.n_descriptors)
        vectors = self._by_label[image.label].vectors_of(ids)
        self.remove(image)
        self.add_vectors(vectors, np.array(ids, np.int64), label)

    def finish(self, references: References, progress: Progress) -> None:
        self.references = references
        self.class_indexes = [self._by_label[label] for label in references.classes.tolist()]
        self._by_label = {}
        for place, index in enumerate(self.class_indexes):
            index.keeps_structure = False
            index.build()
            progress("building the indexes", place + 1, len(self.class_indexes))

    def save(self, folder: Path) -> None:
        for place, index in enumerate(self.class_indexes):
            (folder / f"{place:05d}").mkdir()
            index.save(folder / f"{place:05d}")

    def load(self, folder: Path, references: References) -> None:
        kind = resolve(INDEXES, self.settings.index, "index")
        self.references = references
        self.class_indexes = []
        for place in range(len(references.classes)):
            index = kind.load(folder / f"{place:05d}", self.settings.index_params or {})
            own = (image for image, label in zip(references, references.places, strict=True) if label == place)
            check_count(folder / f"{place:05d}", index, own)
            self.class_indexes.append(index)

    def describe(self) -> str:
        forms = {index.describe() for index in self.class_indexes}
        return f"one index per class, {' / '.join(sorted(forms))}"


class LogOddsMatching(ClassMatching):
    """NBNN by increments of the posterior log-odds (Equation 15); the setting is ``positive_only``.

    With equal priors the increment of class C by descriptor d is ``log(P(C|d) / (1 - P(C|d))) + log(n_classes - 1)``,
    with ``P(C|d)`` proportional to ``exp(-||d - NN_C(d)||^2)`` between unit vectors.
    """

    def increments(self, distances: NDArray[np.floating], *, positive_only: bool) -> Updates:
        """The updates from squared distances to the classes, all or the positive ones."""
        unit = UNIT_LENGTH**2 if self.class_indexes[0].dtype == np.uint8 else 1.0
        return log_odds_updates(distances / unit, positive_only=positive_only)

    def updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> Updates:
        return self.increments(self.class_distances(vectors, leave_out), positive_only=self.settings.positive_only)

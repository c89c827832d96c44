"""Local NBNN: one merged index, only the classes near a descriptor are updated (Algorithm 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.indexes import INDEXES, Index, LeaveOut, make_index
from lnbnn.methods.base import Progress
from lnbnn.methods.matching import MatchingMethod, check_count, ids_of_image, image_of_id
from lnbnn.params import resolve
from lnbnn.references import Reference, References
from lnbnn.scoring import Updates, local_nbnn_updates

__all__ = ["LocalMatching"]


class LocalMatching(MatchingMethod):
    """Local NBNN (McCann & Lowe 2011, Algorithm 2); the setting beyond those of the family is ``n_neighbors``."""

    def __init__(self, settings: Any, location_weight: float, scale_weight: float) -> None:
        super().__init__(settings, location_weight, scale_weight)
        self.index = make_index(settings.index, settings.index_params)

    def neighbors(
        self, vectors: NDArray[np.generic], leave_out: LeaveOut = None, n: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Squared distances and classes (places, -1 for none) of the n (k + 1) nearest neighbors of query vectors."""
        n = int(self.settings.n_neighbors) + 1 if n is None else n
        distances, ids = self.index.search(vectors, n, leave_out=leave_out)
        images = image_of_id(ids)
        if images.size and (images.max() >= len(self._class_of_image) or images.min() < -1):
            raise ModelFormatError("the index holds images that the model does not; fit the model again.")
        return distances, self._class_of_image[images]

    def updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> Updates:
        """dist_C - dist_B of each query descriptor for the classes among its k nearest neighbors."""
        return local_nbnn_updates(*self.neighbors(vectors, leave_out), int(self.settings.n_neighbors))

    def min_descriptors(self) -> int:
        return int(self.settings.n_neighbors) + 1

    def reference_vectors(self, place: int) -> NDArray[np.generic]:
        image = self.references[place]
        return self.index.vectors_of(ids_of_image(image.id, image.n_descriptors))

    def indexes(self) -> list[tuple[Index, int | None]]:
        return [(self.index, None)]

    def add_vectors(self, vectors: NDArray[np.generic], ids: NDArray[np.int64], label: Any) -> None:
        self.index.add(vectors, ids)

    def resume(self, *, keeps_structure: bool = False) -> None:
        self.index.keeps_structure = keeps_structure

    def remove(self, image: Reference) -> None:
        self.index.remove(np.array(ids_of_image(image.id, image.n_descriptors), np.int64))

    def finish(self, references: References, progress: Progress) -> None:
        n_indexed = len(self.index)
        if self.settings.n_neighbors >= n_indexed:
            raise InvalidInputError(
                f"n_neighbors must be at most {n_indexed - 1} (one less than the {n_indexed} indexed descriptors); "
                f"got {self.settings.n_neighbors}."
            )
        progress("building the index", 0, n_indexed)
        self.index.build(lambda done, total: progress("building the index", done, total))
        progress("building the index", n_indexed, n_indexed)
        self._set_references(references)

    def _set_references(self, references: References) -> None:
        self.references = references
        self.index.keeps_structure = False
        self._class_of_image = np.full(references[-1].id + 2, -1, np.int32)  # by id; the last one is that of no image
        self._class_of_image[[image.id for image in references]] = references.places

    def save(self, folder: Path) -> None:
        self.index.save(folder)

    def load(self, folder: Path, references: References) -> None:
        self.index = resolve(INDEXES, self.settings.index, "index").load(folder, self.settings.index_params or {})
        check_count(folder, self.index, references)
        self._set_references(references)

    def describe(self) -> str:
        return f"one merged index, {self.index.describe()}"

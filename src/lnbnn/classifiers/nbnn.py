"""NBNN: one index a class, every class is updated by every descriptor (Algorithm 1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.neighbors import NeighborClassifier, check_count, ids_of_image
from lnbnn.descriptors import Descriptor
from lnbnn.indexes import INDEXES, Index, LeaveOut, make_index
from lnbnn.model.image_table import StoredImage
from lnbnn.reading.extraction import ImageLike, Progress
from lnbnn.registry import resolve
from lnbnn.scoring import Updates, nbnn_updates

__all__ = ["NBNN"]


class NBNN(NeighborClassifier):
    """NBNN classifier (Boiman, Shechtman and Irani 2008; Algorithm 1 of McCann & Lowe 2011).

    Parameters
    ----------
    location_weight : float, optional
        alpha: weight of a patch's place in the image, 0 to 2; by default what suits the descriptor, 1.6 for dense SIFT.
    scale_weight : float, optional
        Weight of an octave of a patch's size, 0 to 0.4; by default what suits the descriptor, 0.25 for dense SIFT.
    descriptor, descriptor_params, index, index_params, query_budget, stop_confidence, n_jobs, random_state
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`; each class has an index of its own.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    images_ : list of ReferenceImage
    indexes_ : list of Index
        One a class, in the order of ``classes_``.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> NBNN(index="exact").fit(images, [0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method = "nbnn"

    def __init__(
        self,
        *,
        location_weight: float | None = None,
        scale_weight: float | None = None,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 500,
        stop_confidence: float | None = 0.95,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.location_weight = location_weight
        self.scale_weight = scale_weight
        self.descriptor = descriptor
        self.descriptor_params = descriptor_params
        self.index = index
        self.index_params = index_params
        self.query_budget = query_budget
        self.stop_confidence = stop_confidence
        self.n_jobs = n_jobs
        self.random_state = random_state

    def class_distances(self, image: ImageLike) -> NDArray[np.float32]:
        """Squared distance of each query descriptor of an image to its nearest neighbour in every class.

        Returns
        -------
        ndarray of shape (n_descriptors, n_classes); inf where a class's index found none
        """
        return self._class_distances(self._vectors(self.query_features(image)), None)

    def _updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> Updates:
        """Squared distance of each query descriptor to its nearest neighbour in every class."""
        return nbnn_updates(self._class_distances(vectors, leave_out))

    def _class_distances(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> NDArray[np.float32]:
        return np.hstack([index.search(vectors, 1, leave_out=leave_out)[0] for index in self.indexes_])

    def reference_vectors(self, number: int) -> NDArray[np.generic]:
        """The indexed descriptors of a labelled image, location included."""
        image = self.images_[number]
        return self.indexes_[image.label].vectors_of(ids_of_image(image.id, image.n_descriptors))

    def _start_fit(self) -> None:
        self._by_label: dict[Any, Index] = {}

    def _indexes(self) -> list[tuple[Index, int | None]]:
        return [(index, place) for place, index in enumerate(self.indexes_)]

    def _resume_fit(self, keeps_structure: bool = False) -> None:
        self._by_label = dict(zip(self.classes_.tolist(), self.indexes_, strict=True))
        for index in self.indexes_:
            index.keeps_structure = keeps_structure

    def _remove_image(self, image: StoredImage) -> None:
        index = self._by_label[image.label]
        index.remove(np.array(ids_of_image(image.id, image.n_descriptors), np.int64))
        if len(index) == 0:
            del self._by_label[image.label]

    def _relabel_image(self, image: StoredImage, label: Any) -> None:
        ids = ids_of_image(image.id, image.n_descriptors)
        vectors = self._by_label[image.label].vectors_of(ids)
        self._remove_image(image)
        self._add_reference(vectors, np.array(ids, np.int64), label)

    def _add_reference(self, vectors: NDArray[np.generic], ids: NDArray[np.int64], label: Any) -> None:
        if label not in self._by_label:
            self._by_label[label] = make_index(self.index, self.index_params)
        self._by_label[label].add(vectors, ids)

    def _end_fit(self, progress: Progress) -> None:
        self.indexes_ = [self._by_label[label] for label in self.classes_.tolist()]
        del self._by_label
        for place, index in enumerate(self.indexes_):
            index.keeps_structure = False
            index.build()
            progress("building the indexes", place + 1, len(self.indexes_))

    def _save_parts(self, folder: Path) -> None:
        for place, index in enumerate(self.indexes_):
            (folder / f"{place:05d}").mkdir()
            index.save(folder / f"{place:05d}")

    def _load_parts(self, folder: Path) -> None:
        kind = resolve(INDEXES, self.index, "index")
        places = range(len(self.classes_))
        self.indexes_ = [kind.load(folder / f"{place:05d}", self.index_params or {}) for place in places]
        for place, index in enumerate(self.indexes_):
            check_count(folder / f"{place:05d}", index, (image for image in self.images_ if image.label == place))

    def describe(self) -> str:
        """One line that says how the answer is found."""
        forms = {index.describe() for index in self.indexes_}
        return f"one index a class, {' / '.join(sorted(forms))}"

    @property
    def nbytes_(self) -> int:
        """Bytes of all indexes in memory, memory-mapped parts included."""
        return sum(index.nbytes for index in self.indexes_)

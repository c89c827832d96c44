"""Local NBNN: one merged index, only the classes near a descriptor are updated (Algorithm 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.neighbors import NeighborClassifier, check_count, ids_of_image, image_of_id
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.indexes import INDEXES, Index, LeaveOut, make_index
from lnbnn.model.image_table import StoredImage
from lnbnn.reading.extraction import ImageLike, Progress
from lnbnn.registry import resolve
from lnbnn.scoring import SCORES, Updates, local_nbnn_updates
from lnbnn.settings import check_whole

__all__ = ["LocalNBNN"]


class LocalNBNN(NeighborClassifier):
    """Local NBNN classifier (McCann & Lowe 2011, Algorithm 2).

    Parameters
    ----------
    n_neighbors : int, default=10
        k: a descriptor speaks for the classes among its k nearest neighbours.
    location_weight : float, optional
        alpha: weight of a patch's place in the image, 0 to 2; by default what suits the descriptor, 1.6 for dense SIFT.
    scale_weight : float, optional
        Weight of an octave of a patch's size, 0 to 0.4; by default what suits the descriptor, 0.25 for dense SIFT.
    descriptor : str or Descriptor, default="dense-sift"
        A registered name, or a descriptor object.
    descriptor_params : dict, optional
        Settings of the named descriptor.
    index : str, default="faiss"
        A registered name: "faiss", "exact" or "flann".
    index_params : dict, optional
        Settings of the index.
    query_budget : int, float or None, default=500
        Use at most this many (int) or this share (float) of a query image's descriptors, evenly spread over scales and
        places (``random_state`` says from where on); None uses all.
    stop_confidence : float or None, default=0.95
        Answers ask for a part of the query descriptors at a time and stop when the leading class would keep its lead
        over the second with this probability if all were asked for; the scores are then estimates of the full sums.
        None asks for all of them. ``updates`` and ``totals`` always do.
    match_score : {"difference", "ratio", "log-ratio", "count"}, default="difference"
        What a class gains from a match: the paper's dist_C - dist_B, or another measure.
    background_rank : int, optional
        The neighbour whose distance is the background's, counted from 1; by default k + 1.
    background_other_class : bool, default=False
        The background neighbour must be of another class than the k matches; it is looked for among k more neighbours.
    normalize_classes : bool, default=False
        Multiply each class's updates by the mean number of descriptors of a class over its own number.
    n_jobs : int, optional
        Threads; by default all cores. The answers do not depend on it.
    random_state : int, default=0
        Seed of the choice of query descriptors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    images_ : list of ReferenceImage
        The labelled images, in the order given.
    index_ : Index
        The merged index.
    skipped_ : list of (name, reason)
        Files left out by ``fit(..., on_error="skip")``.

    References
    ----------
    McCann and Lowe, "Local Naive Bayes Nearest Neighbor for Image Classification", UBC TR-2011-11.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = LocalNBNN(index="exact").fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method = "local-nbnn"

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        location_weight: float | None = None,
        scale_weight: float | None = None,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 500,
        stop_confidence: float | None = 0.95,
        match_score: str = "difference",
        background_rank: int | None = None,
        background_other_class: bool = False,
        normalize_classes: bool = False,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.location_weight = location_weight
        self.scale_weight = scale_weight
        self.descriptor = descriptor
        self.descriptor_params = descriptor_params
        self.index = index
        self.index_params = index_params
        self.query_budget = query_budget
        self.stop_confidence = stop_confidence
        self.match_score = match_score
        self.background_rank = background_rank
        self.background_other_class = background_other_class
        self.normalize_classes = normalize_classes
        self.n_jobs = n_jobs
        self.random_state = random_state

    def neighbors(self, image: ImageLike) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """The k + 1 nearest neighbours of each query descriptor of an image, nearest first.

        Returns
        -------
        distances, labels : ndarrays of shape (n_descriptors, k + 1)
            Squared distances, and classes as their places in ``classes_``; inf and -1 where fewer were found.
        """
        return self._search(self._vectors(self.query_features(image)), None)

    def _search(
        self, vectors: NDArray[np.generic], leave_out: LeaveOut
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        distances, ids = self.index_.search(vectors, self._n_searched(), leave_out=leave_out)
        return distances, self._labels_of(ids)

    def _updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> Updates:
        """dist_C - dist_B of each query descriptor for the classes among its k nearest neighbours."""
        return local_nbnn_updates(
            *self._search(vectors, leave_out),
            int(self.n_neighbors),
            score=self.match_score,
            background_rank=self.background_rank,
            background_other_class=self.background_other_class,
            class_weights=self._class_weights if self.normalize_classes else None,
        )

    def _n_searched(self) -> int:
        rank = int(self.n_neighbors) + 1 if self.background_rank is None else int(self.background_rank)
        return min(rank + int(self.n_neighbors), len(self.index_)) if self.background_other_class else rank

    def reference_vectors(self, number: int) -> NDArray[np.generic]:
        """The indexed descriptors of a labelled image, location included."""
        image = self.images_[number]
        return self.index_.vectors_of(ids_of_image(image.id, image.n_descriptors))

    def check_settings(self) -> None:
        super().check_settings()
        check_whole("n_neighbors", self.n_neighbors, 1, 1 << 30)
        if self.background_rank is not None:
            check_whole("background_rank", self.background_rank, int(self.n_neighbors) + 1, 1 << 30)
        if self.match_score not in SCORES:
            raise InvalidInputError(f"match_score must be one of {', '.join(SCORES)}; got {self.match_score!r}.")

    def _start_fit(self) -> None:
        self.index_ = make_index(self.index, self.index_params)

    def _indexes(self) -> list[tuple[Index, int | None]]:
        return [(self.index_, None)]

    def _resume_fit(self, keeps_structure: bool = False) -> None:
        self.index_.keeps_structure = keeps_structure

    def _add_reference(self, vectors: NDArray[np.generic], ids: NDArray[np.int64], label: Any) -> None:
        self.index_.add(vectors, ids)

    def _remove_image(self, image: StoredImage) -> None:
        self.index_.remove(np.array(ids_of_image(image.id, image.n_descriptors), np.int64))

    def _min_descriptors(self) -> int:
        return int(self.n_neighbors) + 1 if self.background_rank is None else int(self.background_rank)

    def _end_fit(self, progress: Progress) -> None:
        n_indexed = len(self.index_)
        if self.n_neighbors >= n_indexed:
            raise InvalidInputError(
                f"n_neighbors must be at most {n_indexed - 1} (one less than the {n_indexed} indexed descriptors); "
                f"got {self.n_neighbors}."
            )
        if self._n_searched() > n_indexed:
            raise InvalidInputError(
                f"background_rank must be at most {n_indexed}, the number of indexed descriptors; "
                f"got {self.background_rank}."
            )
        progress("building the index", 0, n_indexed)
        self.index_.build(lambda done, total: progress("building the index", done, total))
        progress("building the index", n_indexed, n_indexed)
        self._set_image_labels()

    def _set_image_labels(self) -> None:
        self.index_.keeps_structure = False
        labels = np.array([image.label for image in self.images_], dtype=np.int64)
        self._image_labels = np.full(self.images_[-1].id + 2, -1, np.int32)  # by id; the last one is that of no image
        self._image_labels[[image.id for image in self.images_]] = labels
        n_descriptors = np.bincount(labels, weights=[image.n_descriptors for image in self.images_])
        self._class_weights = n_descriptors.mean() / n_descriptors

    def _labels_of(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """The place of the class of each descriptor id in ``classes_``; -1 where there is none."""
        images = image_of_id(ids)
        if images.size and (images.max() >= len(self._image_labels) or images.min() < -1):
            raise ModelFormatError("the index holds images that the model does not; fit the model again.")
        return self._image_labels[images]

    def _save_parts(self, folder: Path) -> None:
        self.index_.save(folder)

    def _load_parts(self, folder: Path) -> None:
        self.index_ = resolve(INDEXES, self.index, "index").load(folder, self.index_params or {})
        check_count(folder, self.index_, self.images_)
        self._set_image_labels()

    def describe(self) -> str:
        """One line that says how the answer is found."""
        return f"one merged index, {self.index_.describe()}"

    @property
    def nbytes_(self) -> int:
        """Bytes of the index in memory, memory-mapped parts included."""
        return self.index_.nbytes

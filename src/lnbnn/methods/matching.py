"""What the NBNN family shares: reference descriptors by id, location, a query budget, updates to totals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures, append_location
from lnbnn.indexes import Index, LeaveOut
from lnbnn.methods.base import Method, Progress, no_progress
from lnbnn.reading.extraction import map_in_order
from lnbnn.references import MAX_DESCRIPTORS, Reference
from lnbnn.scoring import Updates, joined, lead_z

__all__ = ["MatchingMethod", "check_count", "ids_of_image", "image_of_id"]

_DESCRIPTOR_BITS = 20  # of a descriptor's id; the bits above are the id of its image
_ASKED_AT_ONCE = 250  # query descriptors searched for before the lead is looked at


def ids_of_image(number: int, n_descriptors: int) -> range:
    """Stable ids of an image's descriptors: the image's id, then the descriptor's number."""
    if n_descriptors > MAX_DESCRIPTORS:
        raise InvalidInputError(
            f"an image may have at most {MAX_DESCRIPTORS} descriptors; got {n_descriptors}. Use a coarser grid."
        )
    first = number << _DESCRIPTOR_BITS
    return range(first, first + n_descriptors)


def image_of_id(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The id of the image each descriptor id belongs to; -1 stays -1."""
    return ids >> _DESCRIPTOR_BITS


def check_count(folder: Path, index: Index, images: Iterable[Reference]) -> None:
    """Raise unless an index holds as many vectors as its images have descriptors."""
    expected = sum(image.n_descriptors for image in images)
    if len(index) != expected:
        raise ModelFormatError(f"{folder}: {len(index)} vectors for {expected} descriptors; fit the model again.")


class MatchingMethod(Method):
    """Scores an image by the nearest neighbors of its descriptors.

    Parameters
    ----------
    settings : object
        With ``query_budget``, ``stop_confidence``, ``index``, ``index_params``, ``random_state``, ``n_jobs``.
    location_weight, scale_weight : float
        The weights of a patch's location and size.
    """

    is_incremental = True
    has_patch_evidence = True

    def __init__(self, settings: Any, location_weight: float, scale_weight: float) -> None:
        super().__init__(settings)
        self.location_weight = location_weight
        self.scale_weight = scale_weight

    # ---- what a method of the family writes ---------------------------------------------------------------------

    @abstractmethod
    def add_vectors(self, vectors: NDArray[np.generic], ids: NDArray[np.int64], label: Any) -> None:
        """Index the vectors of one image under these ids."""

    @abstractmethod
    def updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> Updates:
        """What each query vector adds to the total of each class, with ranges of descriptor ids left out."""

    @abstractmethod
    def reference_vectors(self, place: int) -> NDArray[np.generic]:
        """The indexed vectors of a labeled image, by its place in the references."""

    @abstractmethod
    def indexes(self) -> list[tuple[Index, int | None]]:
        """The indexes, each with the place of the class it is of; None: of all."""

    # ---- learning -----------------------------------------------------------------------------------------------

    def add(self, image: Reference, features: ImageFeatures) -> None:
        vectors = self.vectors(features)
        self.add_vectors(vectors, np.array(ids_of_image(image.id, len(vectors)), np.int64), image.label)

    def absorb(self, other: Method, place: int, image: Reference) -> None:
        assert isinstance(other, MatchingMethod)
        vectors = np.asarray(other.reference_vectors(place))
        self.add_vectors(vectors, np.array(ids_of_image(image.id, len(vectors)), np.int64), image.label)

    def compact(self, *, full: bool, progress: Progress) -> None:
        indexes = self.indexes()
        for place, (index, _) in enumerate(indexes):
            if full:
                index.compact()
            else:
                index.renew()
            progress("compacting", place + 1, len(indexes))

    @property
    def max_pending(self) -> int | None:
        return self.indexes()[0][0].max_pending

    # ---- queries ------------------------------------------------------------------------------------------------

    def vectors(self, features: ImageFeatures) -> NDArray[np.generic]:
        """Descriptors with the weighted size and location of their patches appended."""
        return append_location(features, self.location_weight, self.scale_weight)

    def query_rows(self, n: int) -> NDArray[np.intp] | None:
        """Which of n query descriptors are used, ascending; None for all of them."""
        budget = self.settings.query_budget
        if budget is None:
            return None
        n_used = min(n, int(budget) if isinstance(budget, int | np.integer) else -int(-budget * n // 1))
        if n_used == n:
            return None
        offset = np.random.default_rng(self.settings.random_state).random()
        places = (np.arange(n_used) + offset) * (n / n_used)  # evenly: descriptors stand in the order of the grid
        return np.minimum(places.astype(np.intp), n - 1)

    def query_features(self, features: ImageFeatures) -> ImageFeatures:
        """The features that are searched: all, or an even choice within the budget."""
        rows = self.query_rows(len(features))
        return features if rows is None else features.take(rows)

    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        return 0.0 - self.estimated_totals(self.vectors(self.query_features(features)))

    def estimated_totals(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> NDArray[np.float64]:
        """The totals of query vectors, estimated from a part of them once the lead is sure (``stop_confidence``)."""
        n_classes = len(self.references.classes)
        if self.settings.stop_confidence is None:
            return self.updates_of(vectors, leave_out).totals(n_classes)
        n_rounds = max(1, len(vectors) // _ASKED_AT_ONCE)
        enough = NormalDist().inv_cdf(self.settings.stop_confidence)
        seen: Updates | None = None
        for first in _spread(n_rounds):  # each round is an even sample over scales and places
            found = self.updates_of(vectors[first::n_rounds], leave_out)
            seen = found if seen is None else joined([seen, found])
            if lead_z(seen, n_classes, len(vectors)) > enough:
                break
        assert seen is not None
        return seen.totals(n_classes) * (len(vectors) / len(seen.values))

    # ---- references as queries ----------------------------------------------------------------------------------

    def leave_each_out(
        self,
        work: Callable[[NDArray[np.generic], range], NDArray[np.float64]],
        progress: Progress = no_progress,
        stage: str = "leaving each image out",
        rows: Sequence[int] | None = None,
    ) -> NDArray[np.float64]:
        """``work(query vectors, own ids)`` for each labeled image, or those at ``rows``, one row per image."""
        places: Sequence[int] = range(len(self.references)) if rows is None else rows

        def task(place: int) -> NDArray[np.float64]:
            vectors = self.reference_vectors(place)
            used = self.query_rows(len(vectors))
            own = ids_of_image(self.references[place].id, len(vectors))
            return work(vectors if used is None else vectors[used], own)

        found = []
        for row in map_in_order(task, places, self.settings.n_jobs):
            found.append(row)
            progress(stage, len(found), len(places))
        return np.stack(found)

    def reference_totals(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64]:
        """The totals of each labeled image with its own descriptors left out of the index."""
        n_classes = len(self.references.classes)

        def work(vectors: NDArray[np.generic], own: range) -> NDArray[np.float64]:
            return self.updates_of(vectors, own).totals(n_classes)

        return self.leave_each_out(work, progress, rows=rows)

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        return 0.0 - self.reference_totals(progress, rows)

    def unknown_scores(self, progress: Progress = no_progress) -> NDArray[np.float64] | None:
        by_class: list[list[range]] = [[] for _ in self.references.classes]
        places = {}
        for image, place in zip(self.references, self.references.places.tolist(), strict=True):
            by_class[place].append(ids_of_image(image.id, image.n_descriptors))
            places[image.id] = place

        def work(vectors: NDArray[np.generic], own: range) -> NDArray[np.float64]:
            place = places[own.start >> _DESCRIPTOR_BITS]
            scores = 0.0 - self.estimated_totals(vectors, by_class[place])
            scores[place] = -np.inf
            return scores

        return self.leave_each_out(work, progress, "leaving each class out")

    def score_scale(self, n_descriptors: int) -> float:
        """The number of query descriptors: probabilities come from the mean of their updates, not the sum."""
        rows = self.query_rows(n_descriptors)
        return float(n_descriptors if rows is None else len(rows))

    # ---- keeping ------------------------------------------------------------------------------------------------

    def inconsistencies(self) -> list[str]:
        found = []
        for index, label in self.indexes():
            expected = {
                image.id: image.n_descriptors
                for image, place in zip(self.references, self.references.places.tolist(), strict=True)
                if label is None or place == label
            }
            numbers, counts = np.unique(image_of_id(index.live_ids()), return_counts=True)
            if dict(zip(numbers.tolist(), counts.tolist(), strict=True)) != expected:
                found.append("the ids of the index are not those of the images")
            found += index.problems()
        return found

    @property
    def nbytes(self) -> int:
        return sum(index.nbytes for index, _ in self.indexes())


def _spread(n: int) -> list[int]:
    """0 .. n-1 in an order whose every beginning lies evenly: halves first, then quarters (bits read backwards)."""
    n_bits = max(1, (n - 1).bit_length())
    return [place for place in (int(f"{i:0{n_bits}b}"[::-1], 2) for i in range(1 << n_bits)) if place < n]

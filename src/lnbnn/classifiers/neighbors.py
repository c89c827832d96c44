"""What the NBNN family shares: reference descriptors under ids, location, a query budget, updates to totals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import ImageClassifier, ReferenceImage
from lnbnn.descriptors.normalization import same_normalizer
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures, append_location, check_weight
from lnbnn.indexes import Index, LeaveOut, make_index
from lnbnn.model.image_table import MAX_DESCRIPTORS
from lnbnn.model.intake import check_label_kind
from lnbnn.reading.extraction import ImageLike, Progress, map_in_order, no_progress
from lnbnn.scoring import Updates, joined, lead_z

__all__ = ["NeighborClassifier", "check_count", "ids_of_image", "image_of_id"]

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


def check_count(folder: Path, index: Index, images: Iterable[ReferenceImage]) -> None:
    """Raise unless an index holds as many vectors as its images have descriptors."""
    expected = sum(image.n_descriptors for image in images)
    if len(index) != expected:
        raise ModelFormatError(f"{folder}: {len(index)} vectors for {expected} descriptors; fit the model again.")


class NeighborClassifier(ImageClassifier):
    """Base of the methods that score an image by the nearest neighbours of its descriptors.

    A subclass writes :meth:`_add_reference`, :meth:`_updates_of` and :meth:`reference_vectors`.
    """

    is_incremental = True
    has_patch_evidence = True
    """Whether the scores are sums of what the descriptors say, so that they can be shown on the picture."""

    location_weight: float | None
    scale_weight: float | None
    index: str
    index_params: dict[str, Any] | None
    query_budget: int | float | None
    stop_confidence: float | None = None

    def totals(self, X: Sequence[ImageLike], *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """The paper's totals, shape (n_images, n_classes): what the updates sum to, lower is better."""
        images = list(X)
        result = np.zeros((len(images), len(self.fitted_classes())))
        for row, updates in enumerate(map_in_order(self.updates, images, self.n_jobs)):
            result[row] = updates.totals(result.shape[1])
            progress("classifying", row + 1, len(images))
        return result

    def updates(self, image: ImageLike) -> Updates:
        """What each descriptor of :meth:`query_features` adds to the total of each class."""
        return self._updates_of(self._vectors(self.query_features(image)), None)

    def query_features(self, image: ImageLike) -> ImageFeatures:
        """The features of a query image that are searched for: all of them, or an even choice within the budget."""
        self.fitted_classes()
        features = self.image_features(image)
        rows = self._budget_rows(len(features))
        return features if rows is None else features.take(rows)

    def reference_totals(self, *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """The totals of each labelled image with its own descriptors left out of the index.

        Returns
        -------
        ndarray of shape (n_images, n_classes), in the order of ``images_``
        """
        n_classes = len(self.fitted_classes())
        return self._leave_each_out(lambda vectors, own: self._updates_of(vectors, own).totals(n_classes), progress)

    def _leave_each_out(
        self,
        work: Callable[[NDArray[np.generic], range], NDArray[np.float64]],
        progress: Progress,
        stage: str = "leaving each image out",
    ) -> NDArray[np.float64]:
        """``work(query vectors, own ids)`` for each labelled image, one row an image."""

        def task(number: int) -> NDArray[np.float64]:
            vectors = self.reference_vectors(number)
            rows = self._budget_rows(len(vectors))
            own = ids_of_image(self.images_[number].id, len(vectors))
            return work(vectors if rows is None else vectors[rows], own)

        found = []
        for row in map_in_order(task, range(len(self.images_)), self.n_jobs):
            found.append(row)
            progress(stage, len(found), len(self.images_))
        return np.stack(found)

    @abstractmethod
    def reference_vectors(self, number: int) -> NDArray[np.generic]:
        """The indexed descriptors of a labelled image, by its place in ``images_``, location included."""

    def absorb(self, other: ImageClassifier, *, progress: Progress = no_progress) -> list[tuple[int, int]]:
        """Take in the images of another model of the same method and settings, under new ids.

        Returns
        -------
        list of (id in the other, id in this one)
            The images left out because their content is here already.
        """
        self._check_incremental()
        if not isinstance(other, NeighborClassifier) or other.method != self.method:
            raise InvalidInputError(f"models to merge must be of one method; got {self.method} and {other.method}.")
        mine, theirs = self.plain_params(), other.plain_params()
        for name in mine:
            if mine[name] != theirs[name]:
                raise InvalidInputError(
                    f"models to merge must have the same settings; {name} is {mine[name]!r} and {theirs[name]!r}."
                )
        if not same_normalizer(self.normalizer_, other.normalizer_):
            raise InvalidInputError(
                "models to merge must have learnt the same centre and components of their descriptors; "
                "fit one model on the images of both."
            )
        check_label_kind(other.fitted_classes().tolist()[0], self.fitted_classes().tolist()[0])
        images = self.stored_images()
        known = {image.digest: image.id for image in images if image.digest is not None}
        doubles = []
        self._resume_fit()
        for place, image in enumerate(other.stored_images()):
            if image.digest in known:
                doubles.append((image.id, known[image.digest]))
                continue
            vectors = np.asarray(other.reference_vectors(place))
            ids = np.array(ids_of_image(self.next_id_, len(vectors)), np.int64)
            self._add_reference(vectors, ids, image.label)
            images.append(replace(image, id=self.next_id_))
            self.next_id_ += 1
            progress("merging", place + 1, len(other.images_))
        self._snapshot, self.n_changes_ = None, self.n_changes_ + len(other.images_) - len(doubles)
        self._set_images(images)
        self._end_fit(progress)
        return doubles

    def inconsistencies(self) -> list[str]:
        """What does not fit together in a model whose files are whole, one line each; every row is looked at."""
        found = []
        for index, label in self._indexes():
            own = [image for image in self.images_ if label is None or image.label == label]
            expected = {image.id: image.n_descriptors for image in own}
            numbers, counts = np.unique(image_of_id(index.live_ids()), return_counts=True)
            if dict(zip(numbers.tolist(), counts.tolist(), strict=True)) != expected:
                found.append("the ids of the index are not those of the images")
        return found

    def _compact(self, *, full: bool, progress: Progress) -> None:
        for place, (index, _) in enumerate(self._indexes()):
            if full:
                index.compact()
            else:
                index.renew()
            progress("compacting", place + 1, len(self._indexes()))

    @abstractmethod
    def _indexes(self) -> list[tuple[Index, int | None]]:
        """The indexes, each with the place of the class it is of; None: of all."""

    @abstractmethod
    def _add_reference(self, vectors: NDArray[np.generic], ids: NDArray[np.int64], label: Any) -> None: ...

    @abstractmethod
    def _updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> Updates:
        """The updates of query vectors, with a range of descriptor ids left out of the index."""

    def plain_params(self) -> dict[str, Any]:
        """The settings as plain values, with the weights of place and size that are used."""
        used = {"location_weight": self.used_location_weight(), "scale_weight": self.used_scale_weight()}
        return super().plain_params() | used

    @classmethod
    def _stored_params(cls, manifest: dict[str, Any]) -> dict[str, Any]:
        return {"scale_weight": 0.0, **super()._stored_params(manifest)}  # models made before this setting have none

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        super().check_settings()
        if self.location_weight is not None:
            check_weight("location_weight", self.location_weight)
        if self.scale_weight is not None:
            check_weight("scale_weight", self.scale_weight)
        make_index(self.index, self.index_params)
        budget = self.query_budget
        if budget is not None:
            is_count = isinstance(budget, int | np.integer) and not isinstance(budget, bool) and budget >= 1
            is_share = isinstance(budget, float) and 0.0 < budget <= 1.0
            if not (is_count or is_share):
                raise InvalidInputError(
                    "query_budget must be None (all), a number of descriptors (int, at least 1) or a share "
                    f"(float, above 0 up to 1.0); got {budget!r}."
                )

        confidence = self.stop_confidence
        if confidence is not None and not (isinstance(confidence, float) and 0.5 < confidence < 1.0):
            raise InvalidInputError(
                f"stop_confidence must be above 0.5 and below 1, or None to ask for all; got {confidence!r}."
            )

    def _add_image(self, features: ImageFeatures, number: int, label: Any) -> None:
        vectors = self._vectors(self.normalize(features))
        self._add_reference(vectors, np.array(ids_of_image(number, len(vectors)), np.int64), label)

    def _scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        return 0.0 - self._estimated_totals(self._vectors(self.query_features(features)), None)

    def _estimated_totals(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> NDArray[np.float64]:
        """The totals of query vectors, estimated from a part of them once the lead is sure (``stop_confidence``)."""
        n_classes = len(self.classes_)
        if self.stop_confidence is None:
            return self._updates_of(vectors, leave_out).totals(n_classes)
        n_rounds = max(1, len(vectors) // _ASKED_AT_ONCE)
        enough = NormalDist().inv_cdf(self.stop_confidence)
        parts: list[Updates] = []
        for first in _spread(n_rounds):  # each round is an even sample over scales and places
            parts.append(self._updates_of(vectors[first::n_rounds], leave_out))
            seen = joined(parts)
            if lead_z(seen, n_classes, len(vectors)) > enough:
                break
        return seen.totals(n_classes) * (len(vectors) / len(seen.values))

    def _held_out_scores(self, progress: Progress) -> NDArray[np.float64] | None:
        """Leave-one-out scores, where the scores are the totals."""
        return 0.0 - self.reference_totals(progress=progress) if self.has_patch_evidence else None

    def _unknown_scores(self, progress: Progress) -> NDArray[np.float64] | None:
        """Scores with all images of the own class left out of the index, where the scores are the totals."""
        if not self.has_patch_evidence:
            return None
        labels = {image.id: image.label for image in self.images_}
        by_class: dict[int, list[range]] = {label: [] for label in labels.values()}
        for image in self.images_:
            by_class[image.label].append(ids_of_image(image.id, image.n_descriptors))

        def work(vectors: NDArray[np.generic], own: range) -> NDArray[np.float64]:
            label = labels[own.start >> _DESCRIPTOR_BITS]
            scores = 0.0 - self._estimated_totals(vectors, by_class[label])
            scores[label] = -np.inf
            return scores

        return self._leave_each_out(work, progress, "leaving each class out")

    def _score_scale(self, n_descriptors: int) -> float:
        """The number of query descriptors: probabilities come from the mean of what they say, not from the sum."""
        rows = self._budget_rows(n_descriptors)
        return float(n_descriptors if rows is None else len(rows)) if self.has_patch_evidence else 1.0

    def _vectors(self, features: ImageFeatures) -> NDArray[np.generic]:
        return append_location(features, self.used_location_weight(), self.used_scale_weight())

    def used_location_weight(self) -> float:
        """The weight of a patch's place: the setting, or what suits the descriptor where it is None."""
        return self._used_weight("location_weight")

    def used_scale_weight(self) -> float:
        """The weight of an octave of a patch's size: the setting, or what suits the descriptor where it is None."""
        return self._used_weight("scale_weight")

    def _used_weight(self, name: str) -> float:
        if getattr(self, name) is not None:
            return float(getattr(self, name))
        return float(getattr(self.descriptor_ if hasattr(self, "descriptor_") else self._make_descriptor(), name))

    def _budget_rows(self, n: int) -> NDArray[np.intp] | None:
        """Which of n query descriptors are used, ascending; None for all of them."""
        budget = self.query_budget
        if budget is None:
            return None
        n_used = min(n, int(budget) if isinstance(budget, int | np.integer) else -int(-budget * n // 1))
        if n_used == n:
            return None
        offset = np.random.default_rng(self.random_state).random()
        places = (np.arange(n_used) + offset) * (n / n_used)  # evenly: descriptors stand in the order of the grid
        return np.minimum(places.astype(np.intp), n - 1)


def _spread(n: int) -> list[int]:
    """0 .. n-1 in an order whose every beginning lies evenly: halves first, then quarters (bits read backwards)."""
    n_bits = max(1, (n - 1).bit_length())
    return [place for place in (int(f"{i:0{n_bits}b}"[::-1], 2) for i in range(1 << n_bits)) if place < n]

"""The classifiers of the NBNN family: Local NBNN, NBNN, its log-odds form, and NBNN corrected for unequal classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.indexes import Index, make_index
from lnbnn.methods.affine import AffineCorrection
from lnbnn.methods.base import Method, Progress, no_progress
from lnbnn.methods.kernel import ResponseKernel
from lnbnn.methods.local_nbnn import LocalMatching
from lnbnn.methods.matching import MatchingMethod
from lnbnn.methods.nbnn import ClassMatching, LogOddsMatching
from lnbnn.params import LARGEST, check_choice, check_whole
from lnbnn.reading.extraction import ImageLike, map_in_order
from lnbnn.reading.location import check_location_weight, check_scale_weight
from lnbnn.scoring import SCORES, Updates

__all__ = ["NBNN", "AffineNBNN", "LocalNBNN", "LogOddsNBNN", "MatchingClassifier"]


@settings_class
class MatchingClassifier(Classifier):
    """The settings that the NBNN family shares, and the searches behind its scores."""

    params_before: ClassVar[dict[str, Any]] = {"scale_weight": 0.0}

    location_weight: float | None = None
    scale_weight: float | None = None
    index: str = "faiss"
    index_params: dict[str, Any] | None = None
    query_budget: int | float | None = 500
    stop_confidence: float | None = 0.95

    @property
    def matching_(self) -> MatchingMethod:
        """The fitted method that searches: of a kernel, the one inside it."""
        method = self.fitted().method
        return cast(MatchingMethod, method.inner if isinstance(method, ResponseKernel) else method)

    def query_features(self, image: ImageLike) -> ImageFeatures:
        """The features of a query image that are searched for: all of them, or an even choice within the budget."""
        return self.matching_.query_features(self.image_features(image))

    def updates(self, image: ImageLike) -> Updates:
        """What each descriptor of :meth:`query_features` adds to the total of each class."""
        matching = self.matching_
        return matching.updates_of(matching.vectors(self.query_features(image)))

    def totals(self, X: Sequence[ImageLike], *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """The paper's totals, shape (n_images, n_classes): what the updates sum to, lower is better."""
        images = list(X)
        result = np.zeros((len(images), len(self.fitted_classes())))
        for row, updates in enumerate(map_in_order(self.updates, images, self.n_jobs)):
            result[row] = updates.totals(result.shape[1])
            progress("classifying", row + 1, len(images))
        return result

    def reference_totals(self, *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """The totals of each labeled image, in the order of ``images_``, with its own descriptors left out."""
        return self.matching_.reference_totals(progress)

    def reference_vectors(self, place: int) -> NDArray[np.generic]:
        """The indexed descriptors of a labeled image, by its place in ``images_``, size and location included."""
        return self.matching_.reference_vectors(place)

    def used_location_weight(self) -> float:
        """The weight of a patch's place: the setting, or what suits the descriptor where it is None."""
        return self._weights(self.make_descriptor())[0]

    def used_scale_weight(self) -> float:
        """The weight of an octave of a patch's size: the setting, or what suits the descriptor where it is None."""
        return self._weights(self.make_descriptor())[1]

    def _weights(self, descriptor: Descriptor) -> tuple[float, float]:
        location = descriptor.location_weight if self.location_weight is None else self.location_weight
        scale = descriptor.scale_weight if self.scale_weight is None else self.scale_weight
        return float(location), float(scale)

    def plain_params(self, descriptor: Descriptor | None = None) -> dict[str, Any]:
        """The settings as plain values, with the weights of place and size that are used."""
        if descriptor is None:
            descriptor = self.make_descriptor() if self.model_ is None else self.model_.descriptor
        location_weight, scale_weight = self._weights(descriptor)
        used = {"location_weight": location_weight, "scale_weight": scale_weight}
        return super().plain_params(descriptor) | used

    def check_settings(self) -> None:
        super().check_settings()
        if self.location_weight is not None:
            check_location_weight(self.location_weight)
        if self.scale_weight is not None:
            check_scale_weight(self.scale_weight)
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


@settings_class
class LocalNBNN(MatchingClassifier):
    """Local NBNN classifier (McCann & Lowe 2011, Algorithm 2).

    Parameters
    ----------
    n_neighbors : int, default=10
        k: a descriptor speaks for the classes among its k nearest neighbors.
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
        The neighbor whose distance is the background's, counted from 1; by default k + 1.
    background_other_class : bool, default=False
        The background neighbor must be of another class than the k matches; it is looked for among k more neighbors.
    normalize_classes : bool, default=False
        Multiply each class's updates by the mean number of descriptors of a class over its own number.
    n_jobs : int, optional
        Threads; by default all cores. The answers do not depend on it.
    random_state : int, default=0
        Seed of the choice of query descriptors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    images_ : list of Reference
        The labeled images, in the order given.
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

    method: ClassVar[str] = "local-nbnn"

    n_neighbors: int = dataclasses.field(default=10, kw_only=False)
    match_score: str = "difference"
    background_rank: int | None = None
    background_other_class: bool = False
    normalize_classes: bool = False

    def make_method(self, descriptor: Descriptor) -> Method:
        return LocalMatching(self, *self._weights(descriptor))

    @property
    def index_(self) -> Index:
        """The merged index."""
        return cast(LocalMatching, self.matching_).index

    def neighbors(self, image: ImageLike) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """The k + 1 nearest neighbors of each query descriptor of an image, nearest first.

        Returns
        -------
        distances, labels : ndarrays of shape (n_descriptors, k + 1)
            Squared distances, and classes as their places in ``classes_``; inf and -1 where fewer were found.
        """
        matching = cast(LocalMatching, self.matching_)
        return matching.neighbors(matching.vectors(self.query_features(image)))

    def check_settings(self) -> None:
        super().check_settings()
        check_whole("n_neighbors", self.n_neighbors, 1, 1 << 30)
        if self.background_rank is not None:
            check_whole("background_rank", self.background_rank, int(self.n_neighbors) + 1, 1 << 30)
        check_choice("match_score", self.match_score, SCORES)


@settings_class
class NBNN(MatchingClassifier):
    """NBNN classifier (Boiman, Shechtman and Irani 2008; Algorithm 1 of McCann & Lowe 2011).

    Parameters
    ----------
    location_weight : float, optional
        alpha: weight of a patch's place in the image, 0 to 2; by default what suits the descriptor, 1.6 for dense SIFT.
    scale_weight : float, optional
        Weight of an octave of a patch's size, 0 to 0.4; by default what suits the descriptor, 0.25 for dense SIFT.
    descriptor, descriptor_params, index, index_params, query_budget, stop_confidence, n_jobs, random_state
        As of :class:`LocalNBNN`; each class has an index of its own.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    images_ : list of Reference
    indexes_ : list of Index
        One per class, in the order of ``classes_``.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> NBNN(index="exact").fit(images, [0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method: ClassVar[str] = "nbnn"

    def make_method(self, descriptor: Descriptor) -> Method:
        return ClassMatching(self, *self._weights(descriptor))

    @property
    def indexes_(self) -> list[Index]:
        """One index per class."""
        return [index for index, _ in self.matching_.indexes()]

    def class_distances(self, image: ImageLike) -> NDArray[np.float32]:
        """Squared distance of each query descriptor of an image to its nearest neighbor in every class.

        Returns
        -------
        ndarray of shape (n_descriptors, n_classes); inf where a class's index found none
        """
        matching = self.matching_
        inner = matching.inner if isinstance(matching, AffineCorrection) else cast(ClassMatching, matching)
        return inner.class_distances(matching.vectors(self.query_features(image)))


@settings_class
class LogOddsNBNN(NBNN):
    """NBNN by increments of the posterior log-odds (McCann & Lowe 2011, section "Towards local NBNN").

    Parameters
    ----------
    positive_only : bool, default=True
        Use only the increments that speak for a class. The paper finds that the rest is not needed.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    stop_confidence, n_jobs, random_state
        As of :class:`NBNN`.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> LogOddsNBNN(index="exact").fit(images, [0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method: ClassVar[str] = "nbnn-log-odds"

    positive_only: bool = True

    def make_method(self, descriptor: Descriptor) -> Method:
        return LogOddsMatching(self, *self._weights(descriptor))

    def mean_increments(self, X: Sequence[ImageLike]) -> float:
        """How many classes a descriptor moves, on average over all query descriptors of all images."""
        sizes = [
            (updates.n_increments * len(updates.values), len(updates.values))
            for updates in map_in_order(self.updates, list(X), self.n_jobs)
        ]
        n_increments, n_descriptors = np.sum(sizes, axis=0)
        return float(n_increments / n_descriptors) if n_descriptors else 0.0

    def increments(self, distances: NDArray[np.floating], *, positive_only: bool) -> Updates:
        """The updates from squared distances to the classes (see :meth:`class_distances`), all or the positive ones."""
        return cast(LogOddsMatching, self.matching_).increments(distances, positive_only=positive_only)


@settings_class
class AffineNBNN(NBNN):
    """NBNN with per-class affine correction (Behmo, Marcombes, Dalalyan and Prinet 2010).

    Parameters
    ----------
    regularization : float, default=0.01
        How strongly alpha is held near 1 and beta near 0; see :func:`lnbnn.methods.affine_correction.fit_affine`.
    balance : float, default=0.5
        In learning, an image of a class of n counts n ** -balance: every image the same at 0, every class at 1.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    n_jobs, random_state
        As of :class:`NBNN`.

    Attributes
    ----------
    alpha_, beta_ : ndarray of shape (n_classes,)
        The correction of each class; 1 and 0 for a class of one image.
    reference_distances_ : ndarray of shape (n_images, n_classes)
        The uncorrected mean distances of the labeled images, every class one image short: what alpha and beta are
        learned from.
    classes_, images_, indexes_, skipped_
        As of :class:`NBNN`.

    Notes
    -----
    The total of class c for an image with descriptors d_1 ... d_n is its corrected distance::

        alpha_c * (1 / n) * sum_i ||d_i - NN_c(d_i)||^2 + beta_c

    A class with more descriptors has nearer neighbors whatever the image, and plain NBNN leans to it. The correction
    takes that away. Fitting costs one search of every training image.

    References
    ----------
    Behmo, Marcombes, Dalalyan and Prinet, "Towards Optimal Naive Bayes Nearest Neighbor", ECCV 2010.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> images += [images[0][2:], images[1][:, 2:]]
    >>> AffineNBNN(query_budget=50).fit(images, [0, 1, 0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method: ClassVar[str] = "nbnn-affine"
    stop_confidence: ClassVar[None] = None  # type: ignore[misc]  # corrected distances are means over all descriptors

    regularization: float = 0.01
    balance: float = 0.5

    def make_method(self, descriptor: Descriptor) -> Method:
        return AffineCorrection(self, ClassMatching(self, *self._weights(descriptor)))

    @property
    def alpha_(self) -> NDArray[np.float64]:
        """The factor of each class."""
        return cast(AffineCorrection, self.matching_).alpha

    @property
    def beta_(self) -> NDArray[np.float64]:
        """The offset of each class."""
        return cast(AffineCorrection, self.matching_).beta

    @property
    def reference_distances_(self) -> NDArray[np.float64]:
        """The uncorrected mean distances of the labeled images."""
        return cast(AffineCorrection, self.matching_).reference_distances

    def check_settings(self) -> None:
        super().check_settings()
        if not _is_number(self.regularization) or not 0.0 < self.regularization <= LARGEST:
            raise InvalidInputError(f"regularization must be a number above 0; got {self.regularization!r}.")
        if not _is_number(self.balance) or not 0.0 <= self.balance <= 1.0:
            raise InvalidInputError(f"balance must be a number from 0 to 1; got {self.balance!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)

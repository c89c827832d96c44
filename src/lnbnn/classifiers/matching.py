"""What the classifiers of the NBNN family share: settings, and the searches behind their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures, check_weight
from lnbnn.indexes import make_index
from lnbnn.methods.base import Progress, no_progress
from lnbnn.methods.matching import MatchingMethod
from lnbnn.reading.extraction import ImageLike, map_in_order
from lnbnn.scoring import Updates

__all__ = ["MatchingClassifier"]


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
        """The fitted method that searches."""
        return cast(MatchingMethod, self.fitted().method)

    def query_features(self, image: ImageLike) -> ImageFeatures:
        """The features of a query image that are searched: all, or an even choice within the budget."""
        return self.matching_.query_features(self.image_features(image))

    def query_vectors(self, image: ImageLike) -> NDArray[np.generic]:
        """The vectors that are searched: :meth:`query_features` with size and location appended."""
        return self.matching_.vectors(self.query_features(image))

    def updates(self, image: ImageLike) -> Updates:
        """What each descriptor of :meth:`query_features` adds to the total of each class."""
        return self.matching_.updates_of(self.query_vectors(image))

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
        """The weight of a patch's location: the setting, or the descriptor's default if it is None."""
        return self._weights(self.make_descriptor())[0]

    def used_scale_weight(self) -> float:
        """The weight of an octave of a patch's size: the setting, or the descriptor's default if it is None."""
        return self._weights(self.make_descriptor())[1]

    def _weights(self, descriptor: Descriptor) -> tuple[float, float]:
        location = descriptor.location_weight if self.location_weight is None else self.location_weight
        scale = descriptor.scale_weight if self.scale_weight is None else self.scale_weight
        return float(location), float(scale)

    def plain_params(self, descriptor: Descriptor | None = None) -> dict[str, Any]:
        """The settings as plain values, with the location and scale weights in use."""
        if descriptor is None:
            descriptor = self.make_descriptor() if self.model_ is None else self.model_.descriptor
        location_weight, scale_weight = self._weights(descriptor)
        used = {"location_weight": location_weight, "scale_weight": scale_weight}
        return super().plain_params(descriptor) | used

    def check_settings(self) -> None:
        super().check_settings()
        for name in ("location_weight", "scale_weight"):
            if getattr(self, name) is not None:
                check_weight(name, getattr(self, name))
        make_index(self.index, self.index_params)
        budget = self.query_budget
        if budget is not None:
            is_count = isinstance(budget, int | np.integer) and not isinstance(budget, bool) and budget >= 1
            is_share = isinstance(budget, float) and 0.0 < budget <= 1.0
            if not (is_count or is_share):
                raise InvalidInputError(
                    "query_budget must be None (all), a number of descriptors (int, at least 1) or a fraction "
                    f"(float, above 0 up to 1.0); got {budget!r}."
                )
        confidence = self.stop_confidence
        if confidence is not None and not (isinstance(confidence, float) and 0.5 < confidence < 1.0):
            raise InvalidInputError(
                f"stop_confidence must be above 0.5 and below 1, or None to use all descriptors; got {confidence!r}."
            )

"""What a classifier says of images: scores, labels, and answers with their ranking, probability and reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.probabilities import ProbabilityMixin
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.model.intake import no_descriptors
from lnbnn.reading.extraction import ImageLike, Progress, name_of, no_progress
from lnbnn.reading.store import FeatureStore

__all__ = ["Answer", "AnswerMixin"]


@dataclass(frozen=True)
class Answer:
    """What a classifier says of one image.

    ``ranking`` holds (label, score) for every class, best first. An image that cannot be read, or has no descriptors,
    gets no label, an empty ranking and the reason; ``unreadable`` tells the two apart. ``is_unknown``: the image was
    rejected, and has a ranking but no label. Of a calibrated model, ``probabilities`` holds the probability of each
    class of the ranking, if the image is of one of the classes; of one calibrated for rejecting,
    ``false_accept_rate`` is the smallest rate at which it is accepted.
    """

    name: str
    label: Any
    ranking: tuple[tuple[Any, float], ...]
    reason: str | None = None
    unreadable: bool = False
    is_unknown: bool = False
    probabilities: tuple[float, ...] = ()
    false_accept_rate: float | None = None


class AnswerMixin(ProbabilityMixin):
    """``decision_function``, ``predict`` and ``iter_answers`` over the scores of a classifier."""

    def decision_function(
        self, X: Sequence[ImageLike], *, store: FeatureStore | None = None, progress: Progress = no_progress
    ) -> NDArray[np.float64]:
        """A score for each image and class, higher is better; zeros for an image without descriptors.

        Returns
        -------
        ndarray of shape (n_images, n_classes)
        """
        images = list(X)
        result = np.zeros((len(images), len(self.fitted_classes())))
        for row, found in enumerate(self._iter_scores(images, store)):
            if isinstance(found, ImageReadError):
                raise found
            if found is not None:
                result[row] = found
            progress("classifying", row + 1, len(images))
        return result

    def predict(self, X: Sequence[ImageLike], *, reject: float | None = None) -> NDArray[np.generic]:
        """The class with the highest score; of equal ones the first in ``classes_``.

        Parameters
        ----------
        reject : float, optional
            Of images of unknown classes, accept at most this share; images that are not accepted get None, in an array
            of objects. The model must be calibrated for it: ``calibrate(unknown=True)``.
        """
        classes = self.fitted_classes()
        check_rate(reject)
        scores = self.decision_function(X)
        labels = classes[np.argmax(scores, axis=1)]
        if reject is None:
            return labels
        labels = labels.astype(object)
        labels[self.false_accept_rates(scores) > reject] = None
        return labels

    def iter_answers(
        self, X: Sequence[ImageLike], *, store: FeatureStore | None = None, reject: float | None = None
    ) -> Iterator[Answer]:
        """An :class:`Answer` an image, in order, each as soon as it is known; a bad file does not stop the rest.

        With ``reject`` as of :meth:`predict`.
        """
        images = list(X)
        can_reject = hasattr(self, "unknown_prominence_")
        if reject is not None:
            check_rate(reject)
            self.false_accept_rates(np.ones((0, 2)))
        for position, found in enumerate(self._iter_scores(images, store, score=self._scores_and_log_proba)):
            name = name_of(images[position], position)
            if isinstance(found, ImageReadError):
                yield Answer(name, None, (), str(found), unreadable=True)
            elif found is None:
                yield Answer(name, None, (), no_descriptors(name))
            else:
                rows = np.atleast_2d(found)
                ranking = self.ranking(rows[0])
                rate = float(self.false_accept_rates(rows[:1])[0]) if can_reject else None
                is_unknown = reject is not None and rate is not None and rate > reject
                probabilities = np.exp(rows[-1][np.argsort(-rows[0], kind="stable")]) if self._is_calibrated() else ()
                label = None if is_unknown else ranking[0][0]
                yield Answer(
                    name,
                    label,
                    ranking,
                    is_unknown=is_unknown,
                    probabilities=tuple(map(float, probabilities)),
                    false_accept_rate=rate,
                )

    def ranking(self, scores: NDArray[np.float64]) -> tuple[tuple[Any, float], ...]:
        """All classes with their scores, best first; equal ones in the order of ``classes_``."""
        classes = self.fitted_classes().tolist()
        return tuple((classes[place], float(scores[place])) for place in np.argsort(-scores, kind="stable"))


def check_rate(rate: float | None) -> None:
    """Raise unless a rate to reject by is a number between 0 and 1."""
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.0 < rate < 1.0):
        raise InvalidInputError(f"reject must be the share of unknown images to accept, between 0 and 1; got {rate!r}.")

"""Calibrated probabilities for every classifier: a temperature fitted on scores of images that were held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.calibration import fit_temperature, log_probabilities
from lnbnn.classifiers.estimator import Estimator, check_is_fitted
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.extraction import ImageLike, Progress, name_of, no_progress
from lnbnn.features import ImageFeatures
from lnbnn.settings import check_whole
from lnbnn.store import FeatureStore

if TYPE_CHECKING:
    from lnbnn.classifiers.base import ImageClassifier, ReferenceImage

__all__ = ["ProbabilityMixin", "can_be_held_out", "cross_fitted_scores"]


class ProbabilityMixin(Estimator):
    """``calibrate`` and ``predict_proba`` over the scores of a classifier.

    The probability of class c is ``softmax(score / (scale * T))``: the scale belongs to the image and the temperature
    T to the model, so that the ranking stays that of the scores. A method that can score its own labelled images as
    if it had not seen them writes :meth:`_held_out_scores`.
    """

    method: ClassVar[str]
    images_: list[ReferenceImage]
    temperature_: float

    def calibrate(self, held_out: ArrayLike | None = None, *, progress: Progress = no_progress) -> Self:
        """Fit the temperature of :meth:`predict_proba` on the labelled images, each scored as if it was not known.

        Parameters
        ----------
        held_out : array of shape (n_images, n_classes), optional
            Scores of ``images_`` by models that had not seen them, as :func:`cross_fitted_scores` gives. By default
            the method's own leave-one-out scores. Images that are alone in their class are passed over: their rows do
            not matter.
        progress : callable, optional
            Called as ``progress(stage, done, total)``.
        """
        n_classes = len(self.fitted_classes())
        found = self._held_out_scores(progress) if held_out is None else held_out
        if found is None:
            raise InvalidInputError(
                f"method {self.method!r} cannot leave its labelled images out one at a time; give calibrate the scores "
                "that lnbnn.classifiers.probabilities.cross_fitted_scores makes of them."
            )
        scores = np.asarray(found, dtype=np.float64)
        if scores.shape != (len(self.images_), n_classes):
            raise InvalidInputError(
                f"held_out must hold a row an image and a column a class, shape {(len(self.images_), n_classes)}; "
                f"got {scores.shape}."
            )
        labels = np.array([image.label for image in self.images_])
        used = can_be_held_out(labels)
        if not used.any():
            raise InvalidInputError("calibration needs a class with at least two images; every class has one.")
        scales = np.array([self._score_scale(image.n_descriptors) for image in self.images_])
        self.temperature_ = fit_temperature((scores / scales[:, None])[used], labels[used])
        return self

    def predict_proba(self, X: Sequence[ImageLike], *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """A probability for each image and class; all equal for an image without descriptors.

        Returns
        -------
        ndarray of shape (n_images, n_classes)
            Columns in the order of ``classes_``; each row sums to 1.
        """
        n_classes = len(self.fitted_classes())
        self._check_calibrated()
        images = list(X)
        result = np.full((len(images), n_classes), 1.0 / n_classes)
        for row, found in enumerate(self._iter_scores(images, score=self._log_proba)):
            if isinstance(found, ImageReadError):
                raise found
            if found is not None:
                result[row] = np.exp(found)
            progress("classifying", row + 1, len(images))
        return result

    def _held_out_scores(self, progress: Progress) -> NDArray[np.float64] | None:
        """The scores of each of ``images_`` as if it was not known, or None where the method cannot tell.

        Returns
        -------
        ndarray of shape (n_images, n_classes), comparable to those of ``decision_function``
        """
        return None

    def _score_scale(self, n_descriptors: int) -> float:
        """What an image's scores are divided by before the softmax, given its number of descriptors."""
        return 1.0

    def _log_proba(self, features: ImageFeatures) -> NDArray[np.float64]:
        return log_probabilities(self._scores(features) / self._score_scale(len(features)), self.temperature_)

    def _check_calibrated(self) -> None:
        check_is_fitted(
            self, "temperature_", msg="This %(name)s is not calibrated yet; call calibrate() before predict_proba."
        )

    if TYPE_CHECKING:  # of ImageClassifier, which this is mixed into

        def fitted_classes(self) -> NDArray[np.generic]: ...

        def _scores(self, features: ImageFeatures) -> NDArray[np.float64]: ...

        def _iter_scores(
            self,
            images: Sequence[ImageLike],
            store: FeatureStore | None = None,
            *,
            score: Callable[[ImageFeatures], NDArray[np.float64]] | None = None,
        ) -> Iterator[NDArray[np.float64] | ImageReadError | None]: ...


def can_be_held_out(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which images have another of their class, so that the class is still known without them."""
    return np.bincount(labels)[labels] > 1


def cross_fitted_scores(
    classifier: ImageClassifier,
    X: Sequence[ImageLike],
    y: Sequence[Any],
    *,
    n_folds: int = 5,
    store: FeatureStore | None = None,
    progress: Progress = no_progress,
) -> NDArray[np.float64]:
    """Scores of the images a classifier was fitted on, by copies of it that were fitted without them.

    For methods that cannot leave one image out of a fitted model. Every class is dealt over ``n_folds`` parts by
    ``random_state``; a copy fitted on the other parts scores each. An image that is alone in its class is in every
    copy, and its row is NaN.

    Parameters
    ----------
    classifier : ImageClassifier
        Fitted on X and y.
    X, y
        What it was fitted on, images that it skipped included.

    Returns
    -------
    ndarray of shape (n_images, n_classes), in the order of ``classifier.images_``
    """
    from sklearn.base import clone

    check_whole("n_folds", n_folds, 2, 1 << 30)
    skipped = {name for name, _ in classifier.skipped_}
    kept = [place for place, image in enumerate(X) if name_of(image, place) not in skipped]
    labels = np.array([image.label for image in classifier.images_])
    if len(kept) != len(labels) or [y[place] for place in kept] != classifier.fitted_classes()[labels].tolist():
        raise InvalidInputError("X and y must be those the classifier was fitted on.")
    order = np.random.default_rng(classifier.random_state).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.intp)
    folds[order] = np.arange(len(labels)) % n_folds
    folds[~can_be_held_out(labels)] = -1
    result = np.full((len(labels), len(classifier.classes_)), np.nan)
    for fold in range(n_folds):
        held = np.flatnonzero(folds == fold)
        rest = np.flatnonzero(folds != fold)
        if len(held):
            copy = clone(classifier).fit([X[kept[i]] for i in rest], [y[kept[i]] for i in rest], store=store)
            for row, scores in zip(held, copy._iter_scores([X[kept[i]] for i in held], store), strict=True):
                result[row] = scores
        progress("fitting without each part", fold + 1, n_folds)
    return result

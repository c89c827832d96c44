"""Calibrated probabilities for every classifier: a temperature fitted on scores of images that were held out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.classifiers.estimator import Estimator, check_is_fitted
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.model.manifest import MAX_UNKNOWN
from lnbnn.reading.extraction import ImageLike, Progress, name_of, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.settings import check_whole
from lnbnn.trust.calibration import false_accept_rates, fit_temperature, log_probabilities, prominence

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
    unknown_prominence_: NDArray[np.float64]
    n_changes_: int

    def calibrate(
        self, held_out: ArrayLike | None = None, *, unknown: bool = False, progress: Progress = no_progress
    ) -> Self:
        """Fit the temperature of :meth:`predict_proba` on the labelled images, each scored as if it was not known.

        Parameters
        ----------
        unknown : bool, default=False
            Also score each image as if its whole class was not known: what :meth:`predict` with ``reject`` goes by. It
            takes as long again, and at least three classes.
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
        self.n_changes_ = 0
        self.__dict__.pop("unknown_prominence_", None)
        if unknown:
            self._calibrate_unknown(progress)
        return self

    def _calibrate_unknown(self, progress: Progress) -> None:
        if len(self.fitted_classes()) < 3:
            raise InvalidInputError("telling what is unknown needs at least three classes; the model has fewer.")
        scores = self._unknown_scores(progress)
        if scores is None:
            raise InvalidInputError(
                f"method {self.method!r} cannot leave a class out, so it cannot tell what is unknown."
            )
        found = np.sort(prominence(scores))
        if len(found) > MAX_UNKNOWN:
            found = found[np.linspace(0, len(found) - 1, MAX_UNKNOWN).round().astype(np.intp)]
        self.unknown_prominence_ = found

    def false_accept_rates(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest rate at which ``predict(..., reject=rate)`` would accept images of these scores.

        Parameters
        ----------
        scores : ndarray of shape (n_images, n_classes), of :meth:`decision_function`
        """
        check_is_fitted(
            self, "unknown_prominence_", msg="This %(name)s cannot reject yet; call calibrate(unknown=True) first."
        )
        return false_accept_rates(prominence(scores), self.unknown_prominence_)

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

    def _unknown_scores(self, progress: Progress) -> NDArray[np.float64] | None:
        """The scores of each of ``images_`` as if its class was not known, or None where the method cannot tell.

        Returns
        -------
        ndarray of shape (n_images, n_classes), -inf for the image's own class
        """
        return None

    def _score_scale(self, n_descriptors: int) -> float:
        """What an image's scores are divided by before the softmax, given its number of descriptors."""
        return 1.0

    def _scores_and_log_proba(self, features: ImageFeatures) -> NDArray[np.float64]:
        """Two rows; of a model that is not calibrated only the first."""
        scores = self._scores(features)
        if not hasattr(self, "temperature_"):
            return scores[None]
        return np.stack([scores, log_probabilities(scores / self._score_scale(len(features)), self.temperature_)])

    def _log_proba(self, features: ImageFeatures) -> NDArray[np.float64]:
        return log_probabilities(self._scores(features) / self._score_scale(len(features)), self.temperature_)

    def _calibration_fields(self) -> dict[str, Any]:
        """What the manifest says of the calibration."""
        fields: dict[str, Any] = {"temperature": self.temperature_} if hasattr(self, "temperature_") else {}
        if hasattr(self, "unknown_prominence_"):
            fields["unknown_prominence"] = self.unknown_prominence_.tolist()
        return fields

    def _set_calibration(self, manifest: dict[str, Any]) -> None:
        """Take over what :meth:`_calibration_fields` wrote."""
        for name in ("temperature_", "unknown_prominence_"):
            self.__dict__.pop(name, None)
        self.n_changes_ = manifest.get("n_changes", 0)
        if "temperature" in manifest:
            self.temperature_ = float(manifest["temperature"])
        if "unknown_prominence" in manifest:
            self.unknown_prominence_ = np.array(manifest["unknown_prominence"], dtype=np.float64)

    def _is_calibrated(self) -> bool:
        return hasattr(self, "temperature_")

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

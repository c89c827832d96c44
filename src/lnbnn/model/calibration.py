"""From scores to probabilities, and what a model keeps of that.

Pure functions of (scores, labels). What is fitted here is honest only on scores of images that were held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.model.unknown import best_class_z, distinction, false_accept_rates, new_class_rates

__all__ = [
    "Calibration",
    "corrected",
    "expected_calibration_error",
    "fit_confidence",
    "fit_fusion_weights",
    "fit_temperature",
    "fuse",
    "log_probabilities",
    "negative_log_likelihood",
]

_MAX_SHARPNESS = 1e12  # of the inverse temperature, in units of the spread of the scores
_SMALLEST_LOG = -690.0  # of the probability that an answer is wrong
_AS_IT_IS = (1.0, 1.0, 0.0)


def log_probabilities(scores: NDArray[np.floating], temperature: float) -> NDArray[np.float64]:
    """The logarithm of ``softmax(scores / temperature)`` along the last axis; the order of the classes stays.

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(log_probabilities(np.array([[0.0, 2.0 * np.log(3.0)]]), temperature=2.0)).round(4)
    array([[0.25, 0.75]])
    """
    return _log_softmax(np.asarray(scores, dtype=np.float64) / temperature, axis=-1)


def negative_log_likelihood(log_proba: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    """Mean over the images of minus the log-probability of the true class."""
    log_proba, labels = _check(log_proba, labels)
    return float(-np.take_along_axis(log_proba, labels[:, None], axis=1).mean())


def fit_temperature(scores: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    """The temperature T > 0 at which ``softmax(scores / T)`` has the least negative log-likelihood.

    Parameters
    ----------
    scores : ndarray of shape (n_images, n_classes)
        Higher is better; of images that the scorer had not seen.
    labels : ndarray of shape (n_images,)
        The true classes, from 0.

    Notes
    -----
    In b = 1 / T the likelihood is convex, so its minimum is where the derivative is zero::

        mean_j ( sum_c p_jc(b) s_jc  -  sum_c t_jc s_jc ) = 0

    The targets t are those of Platt (1999): (n + 1) / (n + 2) for the true class and the rest spread evenly over the
    others, with n the number of images. Without it, scores that are right every time would ask for T = 0. Scores that
    say nothing give a T so high that all classes are equally likely.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[0.0, 1.0]] * 40)
    >>> labels = np.array([1] * 30 + [0] * 10)
    >>> round(fit_temperature(scores, labels), 2)      # right in 3 of 4: near 1 / log(3) = 0.91
    0.97
    """
    scores, labels = _check(scores, labels)
    centered = scores - scores.mean(axis=1, keepdims=True)
    spread = float(np.abs(centered).max())
    if spread == 0.0 or scores.shape[1] < 2:
        return 1.0
    centered = centered / spread
    wanted = (_targets(labels, scores.shape[1]) * centered).sum()

    def slope(sharpness: float) -> float:
        return float((np.exp(_log_softmax(sharpness * centered, axis=1)) * centered).sum() - wanted)

    low, high = 1e-6, 1.0
    if slope(low) >= 0.0:
        return spread / low
    while slope(high) < 0.0 and high < _MAX_SHARPNESS:
        high *= 4.0
    from scipy.optimize import brentq  # here and below: SciPy takes longer to load than an answer takes

    return spread / (float(brentq(slope, low, high, rtol=1e-10)) if slope(high) >= 0.0 else high)


def corrected(log_proba: NDArray[np.floating], confidence: Sequence[float]) -> NDArray[np.float64]:
    """Log-probabilities whose best class has the probability p' instead of p: beta calibration of the answer.

    Parameters
    ----------
    log_proba : ndarray of shape (..., n_classes), at least two
    confidence : (a, b, c)
        ``log(p' / (1 - p')) = a log(p) - b log(1 - p) + c``; with (1, 1, 0) nothing changes.

    Returns
    -------
    ndarray of the same shape
        The other classes share 1 - p' as they shared 1 - p. The order of the classes stays: p' is at least what makes
        the second class as likely as the best.

    References
    ----------
    Kull, Silva Filho, Flach: Beta calibration, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(corrected(np.log([[0.8, 0.15, 0.05]]), (0.0, 0.0, np.log(1.5)))).round(3)
    array([[0.6, 0.3, 0.1]])
    """
    given: NDArray[np.float64] = np.asarray(log_proba, dtype=np.float64)
    best, best_log, rest_log = _best_and_rest(given)
    second = np.partition(given, -2, axis=-1)[..., -2]
    odds = _log_odds(best_log, rest_log, confidence)
    odds = np.maximum(odds, second - rest_log)[..., None]
    others = given - rest_log[..., None] - np.logaddexp(0.0, odds)
    np.put_along_axis(others, best[..., None], -np.logaddexp(0.0, -odds), axis=-1)
    return others


def fit_confidence(log_proba: NDArray[np.floating], labels: NDArray[np.integer]) -> tuple[float, float, float]:
    """The (a, b, c) of :func:`corrected` with which answers are right as often as they say, a convex problem.

    A temperature makes all classes of all images likely together. That leaves the answers too sure where one class
    leads by far, and not sure enough where none does.

    Parameters
    ----------
    log_proba : ndarray of shape (n_images, n_classes)
        Of images that the scorer had not seen.
    labels : ndarray of shape (n_images,)
        The true classes, from 0.

    Notes
    -----
    The least negative log-likelihood of whether the answer is right, with Platt's targets as in
    :func:`fit_temperature`, a and b not below 0, and half the squared distance from (1, 1, 0) added, which is worth
    less than an image: few images change little.
    """
    log_proba, labels = _check(log_proba, labels)
    if log_proba.shape[1] < 2:
        return _AS_IT_IS
    best, best_log, rest_log = _best_and_rest(log_proba)
    rest = 1.0 / (len(labels) + 2.0)
    targets = np.where(best == labels, 1.0 - rest, rest)
    inputs = np.stack([best_log, -np.maximum(rest_log, _SMALLEST_LOG), np.ones(len(labels))])

    def loss(place: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        odds, away = place @ inputs, place - _AS_IT_IS
        value = (np.logaddexp(0.0, odds) - targets * odds).sum() + away @ away / 2.0
        return float(value), inputs @ (np.exp(-np.logaddexp(0.0, -odds)) - targets) + away

    from scipy.optimize import minimize

    bounds = [(0.0, None), (0.0, None), (None, None)]
    a, b, c = minimize(loss, np.array(_AS_IT_IS), jac=True, method="L-BFGS-B", bounds=bounds).x.tolist()
    return a, b, c


def _best_and_rest(
    log_proba: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Place and log-probability of the best class, and the log-probability of all others together."""
    best = log_proba.argmax(axis=-1)
    best_log = np.take_along_axis(log_proba, best[..., None], axis=-1)[..., 0]
    others = np.array(log_proba)
    np.put_along_axis(others, best[..., None], -np.inf, axis=-1)
    return best, best_log, np.logaddexp.reduce(others, axis=-1)


def _log_odds(
    best_log: NDArray[np.float64], rest_log: NDArray[np.float64], confidence: Sequence[float]
) -> NDArray[np.float64]:
    return confidence[0] * best_log - confidence[1] * np.maximum(rest_log, _SMALLEST_LOG) + confidence[2]


def fuse(log_probas: Sequence[NDArray[np.floating]], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """``log softmax(sum_m w_m log p_m)``: the weighted product of the methods' probabilities, normalized.

    Examples
    --------
    >>> import numpy as np
    >>> first, second = np.log([[0.8, 0.2]]), np.log([[0.5, 0.5]])
    >>> np.exp(fuse([first, second], np.array([1.0, 1.0]))).round(4)
    array([[0.8, 0.2]])
    """
    return _log_softmax(np.tensordot(weights, np.stack(log_probas), axes=1), axis=-1)


def fit_fusion_weights(log_probas: Sequence[NDArray[np.floating]], labels: NDArray[np.integer]) -> NDArray[np.float64]:
    """The weights w >= 0 at which :func:`fuse` has the least negative log-likelihood, a convex problem.

    Parameters
    ----------
    log_probas : sequence of ndarray of shape (n_images, n_classes)
        Log-probabilities of each method for the same held-out images.
    labels : ndarray of shape (n_images,)
        The true classes, from 0. The targets are those of :func:`fit_temperature`.

    Returns
    -------
    ndarray of shape (n_methods,)
        They need not sum to 1: methods that err on different images deserve more trust together. Methods that say the
        same get the same weight.
    """
    stacked = np.stack([_check(log_proba, labels)[0] for log_proba in log_probas])
    targets = _targets(np.asarray(labels), stacked.shape[2])

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        fused = _log_softmax(np.tensordot(weights, stacked, axes=1), axis=1)
        gradient = np.tensordot(stacked, np.exp(fused) - targets, axes=([1, 2], [0, 1]))
        return float(-(targets * fused).sum() / len(targets)), gradient / len(targets)

    start = np.full(len(stacked), 1.0 / len(stacked))
    from scipy.optimize import minimize

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(stacked))
    weights = np.asarray(found.x, dtype=np.float64)
    return weights if weights.any() else start


def expected_calibration_error(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], *, n_bins: int = 15
) -> float:
    """Mean gap between how sure the answers are and how often they are right (Naeini et al. 2015).

    The images are put into ``n_bins`` bins of equal width by the probability of their answer; the gap of each bin,
    |share right - mean probability|, is weighted by its number of images.

    Examples
    --------
    >>> import numpy as np
    >>> sure = np.array([[0.9, 0.1], [0.9, 0.1]])
    >>> round(expected_calibration_error(sure, np.array([0, 1])), 3)
    0.4
    """
    probabilities, labels = _check(probabilities, labels)
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * n_bins).astype(np.intp) - 1, 0, n_bins - 1)
    gaps = np.bincount(bins, weights=right - confidence, minlength=n_bins)
    return float(np.abs(gaps).sum() / len(labels))


def _targets(labels: NDArray[np.integer], n_classes: int) -> NDArray[np.float64]:
    rest = 1.0 / (len(labels) + 2.0)
    targets = np.full((len(labels), n_classes), rest / max(1, n_classes - 1))
    np.put_along_axis(targets, labels[:, None], 1.0 - rest, axis=1)
    return targets


def _check(
    scores: NDArray[np.floating], labels: NDArray[np.integer]
) -> tuple[NDArray[np.float64], NDArray[np.integer]]:
    values: NDArray[np.float64] = np.asarray(scores, dtype=np.float64)
    labels = np.asarray(labels)
    if values.ndim != 2 or labels.shape != values.shape[:1] or len(labels) == 0:
        raise InvalidInputError(
            "expected scores of shape (n_images, n_classes) and one label per image, at least one image; "
            f"got shapes {values.shape} and {labels.shape}."
        )
    if not np.isfinite(values).all():
        raise InvalidInputError("the scores of held-out images must be finite numbers.")
    if labels.min() < 0 or labels.max() >= values.shape[1]:
        raise InvalidInputError(
            f"labels must be from 0 to {values.shape[1] - 1}; got {labels.min()} to {labels.max()}."
        )
    return values, labels


def _log_softmax(values: NDArray[np.floating], axis: int) -> NDArray[np.float64]:
    """The logarithm of the softmax along an axis, without overflow."""
    shifted = np.asarray(values, dtype=np.float64)
    shifted = shifted - shifted.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


@dataclass(frozen=True, eq=False)
class Calibration:
    """What a model learned from leave-one-out scores of its own images.

    Parameters
    ----------
    temperature : float or None
        What scores are divided by before the softmax; None: they are log-probabilities already.
    unknown_by_class : tuple of ndarray, or None
        The :func:`~lnbnn.model.unknown.distinction` of images whose class was left out, ascending, one array per class;
        None: such images cannot be rejected.
    confidence : tuple of three float, or None
        How the probability of an answer is corrected (:func:`corrected`); None: it stays.
    unknown_prominence : ndarray, ascending, or None
        What older models have instead of ``unknown_by_class``: :func:`~lnbnn.model.unknown.best_class_z`, of all
        classes together.
    """

    temperature: float | None
    unknown_by_class: tuple[NDArray[np.float64], ...] | None = None
    confidence: tuple[float, float, float] | None = None
    unknown_prominence: NDArray[np.float64] | None = None

    @classmethod
    def learn(
        cls,
        scores: NDArray[np.floating],
        labels: NDArray[np.integer],
        *,
        unknown_by_class: tuple[NDArray[np.float64], ...] | None = None,
    ) -> Self:
        """From scores of images that were held out, each divided by what belongs to the image, or log-probabilities."""
        temperature = fit_temperature(scores, labels)
        return cls(temperature, unknown_by_class, fit_confidence(log_probabilities(scores, temperature), labels))

    @property
    def can_reject(self) -> bool:
        """Whether images of unknown classes can be rejected."""
        return self.unknown_by_class is not None or self.unknown_prominence is not None

    def log_proba(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-probabilities of scores that were divided by what belongs to the image."""
        found = self.log_softmax(scores)
        return found if self.confidence is None or found.shape[-1] < 2 else corrected(found, self.confidence)

    def log_softmax(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same with ``temperature`` alone: what is fused, because scores stay sums but for a constant per image."""
        return scores if self.temperature is None else log_probabilities(scores, self.temperature)

    def false_accept_rates(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest rates at which images of these scores would be accepted."""
        if self.unknown_by_class is not None:
            return new_class_rates(distinction(scores), self.unknown_by_class)
        assert self.unknown_prominence is not None
        return false_accept_rates(best_class_z(scores), self.unknown_prominence)

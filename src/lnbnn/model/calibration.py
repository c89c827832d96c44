"""From scores to probabilities: a softmax with a temperature, and how far its probabilities can be trusted.

Pure functions of (scores, labels). What is fitted here is honest only on scores of images that were held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError

__all__ = [
    "Calibration",
    "expected_calibration_error",
    "false_accept_rates",
    "fit_fusion_weights",
    "fit_temperature",
    "fuse",
    "log_probabilities",
    "negative_log_likelihood",
    "prominence",
]

_MAX_SHARPNESS = 1e12  # of the inverse temperature, in units of the spread of the scores


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
    centred = scores - scores.mean(axis=1, keepdims=True)
    spread = float(np.abs(centred).max())
    if spread == 0.0 or scores.shape[1] < 2:
        return 1.0
    centred = centred / spread
    wanted = (_targets(labels, scores.shape[1]) * centred).sum()

    def slope(sharpness: float) -> float:
        return float((np.exp(_log_softmax(sharpness * centred, axis=1)) * centred).sum() - wanted)

    low, high = 1e-6, 1.0
    if slope(low) >= 0.0:
        return spread / low
    while slope(high) < 0.0 and high < _MAX_SHARPNESS:
        high *= 4.0
    from scipy.optimize import brentq  # here and below: SciPy takes longer to load than an answer takes

    return spread / (float(brentq(slope, low, high, rtol=1e-10)) if slope(high) >= 0.0 else high)


def fuse(log_probas: Sequence[NDArray[np.floating]], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """``log softmax(sum_m w_m log p_m)``: the weighted product of the methods' probabilities, normalised.

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


def prominence(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """How far the best class of each image stands out from the others: an image of no known class makes none stand out.

    Parameters
    ----------
    scores : ndarray of shape (n_images, n_classes)
        Higher is better; -inf for a class that counts as absent. At least two must be there.

    Returns
    -------
    ndarray of shape (n_images,)
        (best - m) / sqrt(v + (a / 2)^2), with m, v and a the mean, variance and mean absolute value of the other
        scores: in standard deviations, where a few others that happen to be equal do not make it infinite.

    Examples
    --------
    >>> import numpy as np
    >>> prominence(np.array([[6.0, 2.0, 2.0], [3.0, 3.0, -np.inf]]))
    array([4., 0.])
    """
    values = np.asarray(scores, dtype=np.float64)
    there = values > -np.inf
    if values.ndim != 2 or (len(values) and there.sum(axis=1).min() < 2):
        raise InvalidInputError(f"prominence needs the scores of at least two classes; got shape {values.shape}.")
    best = values.max(axis=1)
    n_others = there.sum(axis=1) - 1
    values = np.where(there, values, 0.0)
    mean = (values.sum(axis=1) - best) / n_others
    size = (np.abs(values).sum(axis=1) - np.abs(best)) / n_others
    square = (np.square(values).sum(axis=1) - np.square(best)) / n_others
    spread = np.sqrt(np.maximum(square - np.square(mean), 0.0) + np.square(size / 2.0))
    spread = np.maximum(spread, 1e-9 * np.abs(best))  # where no other class was found at all
    return np.divide(best - mean, spread, out=np.zeros_like(best), where=spread > 0)


def false_accept_rates(values: NDArray[np.floating], unknown: NDArray[np.floating]) -> NDArray[np.float64]:
    """The share of images of unknown classes that would be accepted if an image with this value was.

    Parameters
    ----------
    values : ndarray
        What images are accepted by, higher is better.
    unknown : ndarray of shape (n,), ascending
        The same for images whose class was not known.

    Returns
    -------
    ndarray, of the shape of ``values``
        (1 + number of unknown ones at least as high) / (n + 1): a conformal p-value. Accepting where it is at most r
        accepts a new image of an unknown class with probability at most r, if it is like those in ``unknown``.

    Examples
    --------
    >>> import numpy as np
    >>> false_accept_rates(np.array([5.0, 2.0, 0.0]), np.array([1.0, 2.0, 3.0]))
    array([0.25, 0.75, 1.  ])
    """
    n_above = len(unknown) - np.searchsorted(unknown, values, side="left")
    return np.asarray((1.0 + n_above) / (len(unknown) + 1.0), np.float64)


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
            "expected scores of shape (n_images, n_classes) and one label an image, at least one image; "
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
    """What a model learned from scores of its own images, each as if it was not known.

    Parameters
    ----------
    temperature : float or None
        What scores are divided by before the softmax; None: they are log-probabilities already.
    unknown_prominence : ndarray, ascending, or None
        How far the best class stood out for images whose class was left out; None: such images cannot be told.
    """

    temperature: float | None
    unknown_prominence: NDArray[np.float64] | None = None

    def log_proba(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-probabilities of scores that were divided by what belongs to the image."""
        return scores if self.temperature is None else log_probabilities(scores, self.temperature)

    def false_accept_rates(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest rates at which images of these scores would be accepted."""
        assert self.unknown_prominence is not None
        return false_accept_rates(prominence(scores), self.unknown_prominence)

    @staticmethod
    def prominence_of(scores: NDArray[np.float64], n_most: int) -> NDArray[np.float64]:
        """``unknown_prominence`` from the scores of images whose class was left out; an even choice of ``n_most``."""
        found = np.sort(prominence(scores))
        if len(found) > n_most:
            found = found[np.linspace(0, len(found) - 1, n_most).round().astype(np.intp)]
        return found

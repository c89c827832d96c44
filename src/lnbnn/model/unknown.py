"""Images of unknown classes: how far the best class stands out, and the rate at which such images would be accepted.

Pure functions of scores. What they are compared with is honest only if it comes from images whose class was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError

__all__ = ["best_class_z", "distinction", "distinctions_by_class", "false_accept_rates", "new_class_rates"]

_SMALLEST_RATE = 0.005  # of accepting unknown classes that a distribution, and not the classes seen, may promise
_FEWEST_DF, _CLASSES_PER_DF = 3, 20  # of Student's distribution: the tail that a few classes do not show is heavy


def best_class_z(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """The z-score of the best class of each image among the others; it is low for images of unknown classes.

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
    >>> best_class_z(np.array([[6.0, 2.0, 2.0], [3.0, 3.0, -np.inf]]))
    array([4., 0.])
    """
    values = np.asarray(scores, dtype=np.float64)
    there = values > -np.inf
    if values.ndim != 2 or (len(values) and there.sum(axis=1).min() < 2):
        raise InvalidInputError(f"expected the scores of at least two classes; got shape {values.shape}.")
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


def distinction(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """How far the best class of each image is above the others, and the more so the closer these are together.

    Parameters
    ----------
    scores : ndarray of shape (n_images, n_classes)
        Higher is better; -inf for a class that counts as absent. At least two must be there. Log-probabilities, too:
        a number added to all scores of an image changes nothing.

    Returns
    -------
    ndarray of shape (n_images,)
        (best - m) / s^(1/4), with m and s the mean and standard deviation of the other scores; s at least
        (best - m) / 1000, and (best - m) / 10 if there is one other.

    Examples
    --------
    >>> import numpy as np
    >>> distinction(np.array([[9.0, 0.0, 2.0], [10.0, 0.0, -np.inf]]))    # m = 1 and 0, s = 1 and at least 1
    array([ 8., 10.])
    """
    values = np.asarray(scores, dtype=np.float64)
    there = values > -np.inf
    if values.ndim != 2 or (len(values) and there.sum(axis=1).min() < 2):
        raise InvalidInputError(f"a distinction needs the scores of at least two classes; got shape {values.shape}.")
    np.put_along_axis(there, values.argmax(axis=1)[:, None], False, axis=1)
    mean = values.mean(axis=1, where=there)
    above = values.max(axis=1) - mean
    spread = np.sqrt(np.square(np.where(there, values - mean[:, None], 0.0)).mean(axis=1, where=there))
    spread = np.maximum(spread, above / np.where(there.sum(axis=1) > 1, 1000.0, 10.0))
    return np.divide(above, spread**0.25, out=np.zeros_like(above), where=spread > 0)


def distinctions_by_class(
    scores: NDArray[np.floating], labels: NDArray[np.integer], n_most: int
) -> tuple[NDArray[np.float64], ...]:
    """The distinctions of images whose class was left out, one ascending array per class; ``n_most`` values in all."""
    values, labels = distinction(scores), np.asarray(labels)
    found = [np.sort(values[labels == label]) for label in np.unique(labels)]
    found = [found[place] for place in _even_choice(len(found), n_most)]
    return tuple(one[_even_choice(len(one), n_most // len(found))] for one in found)


def _even_choice(n: int, n_most: int) -> NDArray[np.intp]:
    return np.arange(n) if n <= n_most else np.linspace(0, n - 1, n_most).round().astype(np.intp)


def new_class_rates(values: NDArray[np.floating], by_class: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """The share of images of a new class that would be accepted if an image with this value was.

    Parameters
    ----------
    values : ndarray
        What images are accepted by, higher is better.
    by_class : sequence of ndarray
        The same for images whose class was not known, one array per class, ascending; at least two.

    Returns
    -------
    ndarray, of the shape of ``values``

    Notes
    -----
    Images of one class are alike, so the sample is the n classes, each with the same weight, not the images. The rate
    is the larger of two, times n / (n - 1):

    - the share of images at least as high, the mean over the classes;
    - the chance that an image of a class not seen before is as high, by Student's distribution with 3 degrees of
      freedom, one more for every 20 classes, and never more than n - 1, around the median, as wide as all values are,
      or as those above the median if these are wider: it reaches where no class has been. Its tail is heavy, since a
      new class may look much like a known one.

    The factor is there because answers take the best of n classes and the values the best of n - 1: of n classes one
    left out at random leaves the best in with probability (n - 1) / n, so the best of n is above a bound at most
    n / (n - 1) times as often. No rate is below 0.005, or 1 / (n + 1) if that is less: so few classes cannot tell.

    Examples
    --------
    >>> import numpy as np
    >>> by_class = [np.array([1.0, 2.0]), np.array([2.0, 3.0]), np.array([4.0])]
    >>> new_class_rates(np.array([0.0, 4.0]), by_class).round(2)      # 4: 1 of 3 classes, times 3 / 2
    array([1. , 0.5])
    """
    n_classes = len(by_class)
    pooled = np.concatenate(by_class)
    weights = np.concatenate([np.full(len(one), 1.0 / len(one)) for one in by_class])
    order = np.argsort(pooled, kind="stable")
    pooled, weights = pooled[order], weights[order] / n_classes
    n_below = np.searchsorted(pooled, values, side="left")
    shares = np.concatenate([weights[::-1].cumsum()[::-1], [0.0]])[n_below]
    median = pooled[np.searchsorted(weights.cumsum(), 0.5 - 1e-9)]
    first = int(np.searchsorted(pooled, median, side="left"))
    squares = weights * np.square(pooled - median)
    square = max(float(squares.sum()), float(squares[first:].sum() / weights[first:].sum()))
    width = max(sqrt(square * (n_classes + 1.0) / (n_classes - 1.0)), 1e-9)
    df = min(n_classes - 1, _FEWEST_DF + n_classes // _CLASSES_PER_DF)
    tails = np.array([_student_tail(value, df) for value in np.ravel((values - median) / width).tolist()])
    rates = np.maximum(shares, tails.reshape(np.shape(values))) * n_classes / (n_classes - 1)
    return np.asarray(np.clip(rates, min(_SMALLEST_RATE, 1.0 / (n_classes + 1.0)), 1.0), np.float64)


def _student_tail(value: float, df: int) -> float:
    """P(t >= value) of Student's distribution with a whole number of degrees of freedom.

    Abramowitz & Stegun, 26.7.3 and 26.7.4: SciPy takes longer to load than an answer takes.
    """
    angle = atan(value / sqrt(df))
    square = df / (df + value * value)  # of the cosine
    term, total = 1.0, 0.0
    for number in range(df % 2 + 2, df + 1, 2):
        total += term
        term *= square * (number - 1) / number
    sine = value / sqrt(df + value * value)
    inside = sine * total if df % 2 == 0 else 2.0 / pi * (angle + sine * sqrt(square) * total)
    return (1.0 - inside) / 2.0

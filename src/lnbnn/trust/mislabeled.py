"""The probability that a label is wrong, from held-out scores: pure functions of arrays.

Give any image another class at random, and its label is known to be wrong: that shows how doubt is distributed for
wrong labels. The doubt that is observed is a mixture of this distribution and that of right labels. Expectation
maximization finds the proportions, and with them the probability that each label is wrong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError

__all__ = ["doubts", "standard_scores", "wrong_label_probabilities"]

_DRAWN = 20  # wrong labels drawn for each image
_PRIOR = (1.0, 10.0)  # as if one label of 10 more was wrong: few images do not settle on none
_RIDGE = 1e-3  # keeps the slope finite where the two kinds do not overlap
_MAX_ROUNDS = 200


def standard_scores(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """The scores of each image, centered and divided by their spread: some images separate classes better than others.

    With few classes, the spread is shrunk toward the median.
    """
    n_classes = scores.shape[1]
    centered = scores - scores.mean(axis=1, keepdims=True)
    squared = (centered**2).mean(axis=1, keepdims=True)
    shrunk = (n_classes * squared + 2 * np.median(squared)) / (n_classes + 2)
    result: NDArray[np.float64] = centered / np.sqrt(np.where(shrunk > 0.0, shrunk, 1.0))
    return result


def doubts(standard: NDArray[np.float64], labels: NDArray[np.integer]) -> NDArray[np.float64]:
    """How far the best other class is above the label.

    Examples
    --------
    >>> import numpy as np
    >>> doubts(np.array([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0]]), np.array([0, 2]))
    array([-2.,  3.])
    """
    rows = np.arange(len(labels))
    others = standard.copy()
    others[rows, labels] = -np.inf
    result: NDArray[np.float64] = others.max(axis=1) - standard[rows, labels]
    return result


def wrong_label_probabilities(
    scores: NDArray[np.floating], labels: NDArray[np.integer], *, seed: int = 0
) -> NDArray[np.float64]:
    """For each image the probability that its label is wrong.

    Parameters
    ----------
    scores : ndarray of shape (n_images, n_classes)
        Higher is better; of images that the scorer had not seen, in units that compare across images.
    labels : ndarray of shape (n_images,)
        Their labels, from 0.
    seed : int
        Of the wrong labels that are drawn.

    Notes
    -----
    With e the doubt about a label, f1 its density for wrong labels and f0 for right ones::

        P(wrong | e) = pi f1(e) / ((1 - pi) f0(e) + pi f1(e)),    log f1(e) / f0(e) = a + b e

    a and b are those of a logistic regression that tells drawn wrong labels from given ones, each given one counted by
    its probability of being right; pi, the share of wrong labels, is the mean probability. The two steps are repeated
    until pi converges. Mistakes are assumed to be equally likely for all classes: those between similar classes raise
    less doubt than random ones.
    """
    scores = np.asarray(scores, dtype=np.float64)
    n_images, n_classes = scores.shape
    if n_classes < 2 or n_images == 0:
        raise InvalidInputError(f"doubts need images and at least two classes; got {n_images} and {n_classes}.")
    standard = standard_scores(scores)
    given = doubts(standard, labels)
    rng = np.random.default_rng(seed)
    drawn = np.concatenate(
        [doubts(standard, (labels + rng.integers(1, n_classes, n_images)) % n_classes) for _ in range(_DRAWN)]
    )
    share = _PRIOR[0] / _PRIOR[1]
    wrong = np.full(n_images, share)
    line = np.zeros(2)
    for _ in range(_MAX_ROUNDS):
        line = _logistic(given, 1.0 - wrong, drawn, np.full(len(drawn), 1.0 / _DRAWN), line)
        log_ratio = line[0] + line[1] * given + np.log((1.0 - wrong).sum() / n_images)
        wrong = 1.0 / (1.0 + np.exp(-np.clip(log_ratio + np.log(share / (1.0 - share)), -500.0, 500.0)))
        before, share = share, min(0.5, float(wrong.sum() + _PRIOR[0]) / (n_images + _PRIOR[1]))
        if abs(share - before) < 1e-6:
            break
    return wrong


def _logistic(
    right: NDArray[np.float64],
    right_weights: NDArray[np.float64],
    wrong: NDArray[np.float64],
    wrong_weights: NDArray[np.float64],
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Offset and slope of the log-odds of wrong against right, by Newton's steps."""
    x = np.concatenate([right, wrong])
    weights = np.concatenate([right_weights, wrong_weights])
    target = np.concatenate([np.zeros(len(right)), np.ones(len(wrong))])
    design = np.stack([np.ones_like(x), x], axis=1)
    ridge = _RIDGE * len(right) * np.eye(2)
    line = start.copy()
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-np.clip(design @ line, -500.0, 500.0)))
        gradient = design.T @ (weights * (p - target)) + ridge @ line
        curvature = (design * (weights * p * (1.0 - p))[:, None]).T @ design + ridge
        step = np.linalg.solve(curvature, gradient)
        line = line - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-8:
            break
    return line

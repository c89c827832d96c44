"""Coding: how much of a descriptor each of its nearest visual words gets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lnbnn.methods.pyramid.codebook import Codebook

__all__ = ["Codes", "hard_codes", "local_soft_codes", "soft_weights"]


@dataclass(frozen=True, eq=False)
class Codes:
    """The codes of an image's descriptors: all but a few words of a code are zero, so only those few are held.

    Parameters
    ----------
    words : ndarray of shape (n_descriptors, n_nearest), int64
        Words with a weight, each at most once in a row.
    weights : ndarray of shape (n_descriptors, n_nearest), float32
        Their weights; a row sums to 1.
    n_words : int
        Size of the codebook.
    """

    words: NDArray[np.int64]
    weights: NDArray[np.float32]
    n_words: int


def hard_codes(descriptors: NDArray[np.generic], codebook: Codebook) -> Codes:
    """Hard assignment (Lazebnik et al. 2006): the nearest word gets 1, all others 0.

    References
    ----------
    Lazebnik, Schmid and Ponce, "Beyond Bags of Features: Spatial Pyramid Matching for Recognizing Natural Scene
    Categories", CVPR 2006.
    """
    _, words = codebook.assign(descriptors)
    return Codes(words, np.ones(words.shape, np.float32), len(codebook))


def local_soft_codes(descriptors: NDArray[np.generic], codebook: Codebook, *, n_nearest: int, beta: float) -> Codes:
    """Local soft assignment (Liu et al. 2011): the nearest few words share a descriptor, see :func:`soft_weights`.

    Parameters
    ----------
    descriptors : ndarray of shape (n_descriptors, d)
    codebook : Codebook
    n_nearest : int
        Words that share a descriptor; all of them in a smaller codebook.
    beta : float
        How fast a word's share falls with its distance.
    """
    squared, words = codebook.assign(descriptors, min(n_nearest, len(codebook)))
    return Codes(words, soft_weights(squared, beta), len(codebook))


def soft_weights(squared: NDArray[np.float32], beta: float) -> NDArray[np.float32]:
    """Shares of the nearest words from their squared distances.

    Parameters
    ----------
    squared : ndarray of shape (n_descriptors, n_nearest)
        Squared distances to the nearest words, nearest first.
    beta : float

    Returns
    -------
    ndarray of shape (n_descriptors, n_nearest)

    Notes
    -----
    With ``d_j`` the distance of the j-th nearest of n words, ``u_j = exp(-beta d_j^2) / sum_k exp(-beta d_k^2)``, the
    sum over the n nearest words only: a word far away gets nothing, however large beta is. The nearest distance is
    taken off all of them first, which changes no share and keeps the sum above zero.

    References
    ----------
    Liu, Wang and Liu, "In Defense of Soft-assignment Coding", ICCV 2011.

    Examples
    --------
    >>> import numpy as np
    >>> soft_weights(np.array([[0.0, np.log(3.0)]]), 1.0)
    array([[0.75, 0.25]], dtype=float32)
    """
    shares = np.exp(-beta * (squared - squared[:, :1]).astype(np.float64))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)

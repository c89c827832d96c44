"""Image-to-class totals as the features of an image: what a classifier on top of NBNN responses is fed with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.scoring import Updates

__all__ = ["RESPONSES", "cell_totals", "own_and_response", "response_vectors"]


def response_vectors(
    totals: NDArray[np.floating], n_descriptors: NDArray[np.integer], kind: str
) -> NDArray[np.float64]:
    """The response vector of each image (Tuytelaars et al. 2011), in one of several scales.

    Parameters
    ----------
    totals : ndarray of shape (n_images, n_classes)
        NBNN or Local NBNN totals, lower is better.
    n_descriptors : ndarray of shape (n_images,)
        Query descriptors that were summed over.
    kind : {"raw", "mean", "unit", "standard", "rank", "log-odds"}
        The totals; divided by the number of descriptors; scaled to unit length; less their mean over the classes and
        divided by their spread; their ranks from 0 to 1, best first; or the log-odds of a softmax over the image's
        standardized totals.

    Returns
    -------
    ndarray of shape (n_images, n_classes)
    """
    if kind not in RESPONSES:
        raise InvalidInputError(f"response must be one of {', '.join(RESPONSES)}; got {kind!r}.")
    return RESPONSES[kind](np.asarray(totals, dtype=np.float64), np.maximum(np.asarray(n_descriptors), 1)[:, None])


def cell_totals(updates: Updates, xy: NDArray[np.floating], n_classes: int, n_side: int) -> NDArray[np.float64]:
    """Totals of the updates in each of ``n_side`` x ``n_side`` cells of the image, row by row: (n_cells, n_classes).

    ``xy`` is the place of each descriptor as a fraction of width and height. The sum over the cells is the total of
    the image.
    """
    column, row = np.clip((np.asarray(xy) * n_side).astype(np.intp), 0, n_side - 1).T
    cell = row * n_side + column
    inside = [cell == place for place in range(n_side * n_side)]
    return np.stack([Updates(updates.values[rows], updates.labels[rows]).totals(n_classes) for rows in inside])


def own_and_response(
    totals: NDArray[np.floating], n_descriptors: int, kind: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What the totals of an image say by themselves (standardized, higher is better), and its response vector.

    ``totals`` has the shape (n_cells, n_classes): of the whole image first, then of its cells. The two have the shapes
    (n_classes,) and (n_cells * n_classes,).
    """
    counts = np.full(len(totals), n_descriptors)
    own = 0.0 - response_vectors(totals[:1], counts[:1], "standard")[0]
    return own, response_vectors(totals, counts, kind).ravel()


def _unit(totals: NDArray[np.float64], n: NDArray[np.integer]) -> NDArray[np.float64]:
    length = np.linalg.norm(totals, axis=1, keepdims=True)
    return np.divide(totals, length, out=np.zeros_like(totals), where=length > 0)


def _rank(totals: NDArray[np.float64], n: NDArray[np.integer]) -> NDArray[np.float64]:
    order = np.argsort(np.argsort(totals, axis=1, kind="stable"), axis=1, kind="stable")
    return order / max(totals.shape[1] - 1, 1)


def _standard(totals: NDArray[np.float64], n: NDArray[np.integer]) -> NDArray[np.float64]:
    spread = totals.std(axis=1, keepdims=True)
    return np.divide(totals - totals.mean(axis=1, keepdims=True), spread, out=np.zeros_like(totals), where=spread > 0)


def _log_odds(totals: NDArray[np.float64], n: NDArray[np.integer]) -> NDArray[np.float64]:
    z = -_standard(totals, n)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p = np.clip(p / p.sum(axis=1, keepdims=True), 1e-12, 1 - 1e-12)
    return np.log(p) - np.log1p(-p)


RESPONSES: dict[str, Callable[[NDArray[np.float64], NDArray[np.integer]], NDArray[np.float64]]] = {
    "raw": lambda totals, n: totals,
    "mean": lambda totals, n: totals / n,
    "unit": _unit,
    "standard": _standard,
    "rank": _rank,
    "log-odds": _log_odds,
}
"""Scales of the response vector by name: functions of totals and number of descriptors."""

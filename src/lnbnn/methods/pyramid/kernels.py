"""The histogram intersection kernel of pyramids, in blocks that stay in the processor's cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lnbnn.compiled import compiled
from lnbnn.errors import InvalidInputError
from lnbnn.reading.extraction import map_in_order

__all__ = ["intersection_kernel"]

_ROWS_PER_BLOCK = 16
_COLUMNS_PER_BLOCK = 16
_DIMS_PER_BLOCK = 1024  # summed in float32; the sums of these are float64


def intersection_kernel(
    rows: NDArray[np.float32], columns: NDArray[np.float32] | None = None, *, n_jobs: int | None = 1
) -> NDArray[np.float64]:
    """``K(x, y) = sum_d min(x_d, y_d)`` of each row of one array with each row of another.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    columns : ndarray of shape (m, d), optional
        By default ``rows`` again; of that symmetric kernel only a half is computed.
    n_jobs : int or None, default=1
        Threads; None for all cores. A value depends on its two vectors alone: not on the threads, nor on the others.

    Returns
    -------
    ndarray of shape (n, m)

    References
    ----------
    Swain and Ballard, "Color Indexing", IJCV 1991. Grauman and Darrell, "The Pyramid Match Kernel", ICCV 2005.

    Examples
    --------
    >>> import numpy as np
    >>> intersection_kernel(np.array([[1, 5, 0]], np.float32), np.array([[2, 3, 4], [0, 0, 1]], np.float32))
    array([[4., 0.]])
    """
    left = _read_only(rows)
    right = left if columns is None else _read_only(columns)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise InvalidInputError(f"pyramids must be rows of one length; got shapes {left.shape} and {right.shape}.")
    kernel = np.zeros((len(left), len(right)))

    def work(start: int) -> None:
        first = start if columns is None else 0
        _add_intersections(left[start : start + _ROWS_PER_BLOCK], right[first:], kernel[start:, first:])

    for _ in map_in_order(work, range(0, len(left), _ROWS_PER_BLOCK), n_jobs):
        pass
    return np.triu(kernel) + np.triu(kernel, 1).T if columns is None else kernel


def _read_only(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """A plain read-only view: one compiled loop, to the last bit the same, serves arrays in memory and mapped files."""
    view = np.ascontiguousarray(vectors, np.float32).view(np.ndarray)
    view.flags.writeable = False
    return view


@compiled()
def _add_intersections(rows, columns, kernel):  # type: ignore[no-untyped-def]
    n_dims = rows.shape[1]
    for first in range(0, columns.shape[0], _COLUMNS_PER_BLOCK):
        last = min(first + _COLUMNS_PER_BLOCK, columns.shape[0])
        for start in range(0, n_dims, _DIMS_PER_BLOCK):
            stop = min(start + _DIMS_PER_BLOCK, n_dims)
            for row in range(rows.shape[0]):
                for column in range(first, last):
                    kernel[row, column] += _sum_of_smaller(rows[row, start:stop], columns[column, start:stop])


@compiled(fastmath=True)
def _sum_of_smaller(a, b):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for d in range(len(a)):
        total += min(a[d], b[d])
    return total

"""Dense multi-scale SIFT with a flat window: the paper's feature.

One scale makes five hops: blur -> gradients -> eight orientation maps -> triangle filter -> descriptors gathered
on the grid. Filtering an orientation map with a triangle gives, at every pixel at once, the sum that SIFT's spatial
interpolation would collect there, so a descriptor is only a gather of 16 pixels of the filtered maps; the filter is
evaluated at these pixels only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from lnbnn.compiled import compiled
from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.params import check_whole

__all__ = ["DenseSIFT"]

_N_BINS = 4  # spatial bins a side
_N_ORIENTATIONS = 8
_N_DIMS = _N_BINS * _N_BINS * _N_ORIENTATIONS
_MAGNIFICATION = 6.0  # a bin of b pixels describes the scale b / 6
_CAMERA_BLUR = (4 / _MAGNIFICATION) ** 2 - 0.66**2  # blur (as variance) the picture is taken to have already
_WINDOW_SIGMA = 2.0  # of the Gaussian window, in bins; the flat window takes its mean over each bin


@dataclass(eq=False, repr=False)
class DenseSIFT(Descriptor):
    """SIFT descriptors on a dense grid at several scales (VLFeat's ``dsift`` with its flat window).

    Parameters
    ----------
    bin_sizes : int or sequence of int, default=(4, 6, 9, 14, 21, 31)
        Side of one spatial bin, in pixels, at each scale. A descriptor covers 4 x 4 bins. The authors' program
        uses (4, 6, 9).
    step_px : int, default=8
        Distance of neighboring grid points, in pixels, at every scale. The authors' program uses 3.
    min_contrast : float, default=2.0
        A descriptor whose gradient mass per pixel is lower comes from a flat region and is discarded.
    longest_side : int, default=300
        Images are resized to this longest side, up or down.

    Notes
    -----
    Each scale blurs the image by ``sqrt((bin/6)**2 - ((4/6)**2 - 0.66**2))`` and rounds it back to 8 bits. The
    gradient's magnitude is shared linearly between the two nearest of eight orientations. A descriptor is scaled to
    unit length, clipped at 0.2, scaled to unit length again and stored as ``int(127 * v + 0.5)``.

    References
    ----------
    Lowe, "Distinctive image features from scale-invariant keypoints", IJCV 2004. Vedaldi and Fulkerson, VLFeat.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((40, 40), np.uint8); image[:, 20:] = 255
    >>> features = DenseSIFT(bin_sizes=(4,), step_px=6, longest_side=40).extract(image)
    >>> features.descriptors.shape, features.descriptors.dtype
    ((15, 128), dtype('uint8'))
    """

    name = "dense-sift"
    version = 2  # 2: the filter sums in another order; 8-bit values may differ by one step
    n_dims = _N_DIMS
    scale_weight = 0.25

    bin_sizes: int | Sequence[int] = (4, 6, 9, 14, 21, 31)
    _: KW_ONLY
    step_px: int = 8
    min_contrast: float = 2.0
    longest_side: int = 300

    def check_params(self) -> None:
        bins = [self.bin_sizes] if isinstance(self.bin_sizes, int | np.integer) else list(self.bin_sizes)
        if not bins:
            raise InvalidInputError("bin_sizes must hold at least one size in pixels; got none.")
        for bin_size in bins:
            check_whole("bin_sizes", bin_size, 2, 1000)
        check_whole("step_px", self.step_px, 1, 10_000)
        if not (math.isfinite(self.min_contrast) and self.min_contrast >= 0):
            raise InvalidInputError(f"min_contrast must be a number, at least 0; got {self.min_contrast}.")
        check_whole("longest_side", self.longest_side, 8, 10_000)

    def warm_up(self) -> None:
        """Load the compiled loops and the gradient table."""
        small = DenseSIFT(4, longest_side=24)
        small.extract(np.arange(24 * 24, dtype=np.uint16).reshape(24, 24).astype(np.uint8))

    def extract(self, image: NDArray[np.generic]) -> ImageFeatures:
        """Descriptors of one image of any size."""
        self.check_params()
        gray = self.prepare(image)
        height, width = gray.shape
        step, min_contrast = int(self.step_px), float(self.min_contrast)
        descriptors, xy = [np.empty((0, _N_DIMS), np.uint8)], [np.empty((0, 2), np.float32)]
        scale = [np.empty(0, np.float32)]
        for bin_size in np.atleast_1d(self.bin_sizes).tolist():
            if min(height, width) <= (_N_BINS - 1) * bin_size:
                continue
            sigma = math.sqrt(max(0.0, (bin_size / _MAGNIFICATION) ** 2 - _CAMERA_BLUR))
            blurred = cv2.GaussianBlur(gray, (0, 0), sigma) if sigma > 0 else gray
            rows, row_places = _needed(height, step, bin_size)
            columns, column_places = _needed(width, step, bin_size)
            triangle, window = _filters(bin_size)
            maps = _orientation_maps(blurred, *_gradient_table()).reshape(height, -1)
            sums = _filter_at(maps, triangle, rows, columns)
            found, centers = _gather(sums, row_places, column_places, step, bin_size, window, min_contrast)
            del blurred, maps, sums  # their memory serves the next scale
            descriptors.append(found)
            xy.append(centers / np.array([width, height], np.float32))
            scale.append(np.full(len(found), _N_BINS * bin_size, np.float32))
        return ImageFeatures(np.concatenate(descriptors), np.concatenate(xy), np.concatenate(scale), (width, height))


@lru_cache(maxsize=256)
def _needed(length: int, step: int, bin_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where on one axis filtered values are needed, and which of these the four bins of each grid point are.

    The values between are never looked at: on a grid of 8 pixels they are most.
    """
    starts = np.arange(0, length - (_N_BINS - 1) * bin_size, step)
    centers = starts[:, None] + bin_size * np.arange(_N_BINS)
    needed = np.unique(centers)
    return needed, np.searchsorted(needed, centers)


@lru_cache(maxsize=64)
def _filters(bin_size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The triangle of unit height and support ``2 * bin_size - 1``; the Gaussian window's mean over each 4 x 4 bin."""
    offsets = np.arange(1 - bin_size, bin_size)
    triangle = (1.0 - np.abs(offsets) / bin_size).astype(np.float32)
    centers = bin_size * (np.arange(_N_BINS) - 0.5 * (_N_BINS - 1))
    z = (offsets[None, :] - centers[:, None]) / (bin_size * _WINDOW_SIGMA)
    mean = np.exp(-0.5 * z * z).mean(axis=1)
    return triangle, np.outer(mean, mean).astype(np.float32)


@lru_cache(maxsize=1)
def _gradient_table() -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Orientation bin, and the two shares of the magnitude, of every gradient an 8-bit image can have.

    Central differences of an 8-bit image are multiples of one half between -255 and 255, so there are 1021 x 1021
    of them: looking one up is faster than its arc tangent, and exact.
    """
    half_steps = np.arange(-510, 511) * 0.5
    gx, gy = half_steps[None, :], half_steps[510:, None]
    upper = np.arctan2(gy, gx) * (_N_ORIENTATIONS / (2 * np.pi))  # the other half turn is its mirror image
    turn = np.concatenate([_N_ORIENTATIONS - upper[:0:-1], upper])
    magnitude = np.hypot(gx, half_steps[:, None])
    lower = turn.astype(np.uint8)
    upper_share = turn - lower
    shares = np.empty((*turn.shape, 2), np.float32)
    shares[..., 0] = (1 - upper_share) * magnitude
    shares[..., 1] = upper_share * magnitude
    return lower % _N_ORIENTATIONS, shares


@compiled
def _orientation_maps(gray, table_bin, table_shares):  # type: ignore[no-untyped-def]
    height, width = gray.shape
    maps = np.zeros((height, width, 8), np.float32)
    for y in range(height):
        above, below = max(y - 1, 0), min(y + 1, height - 1)
        y_unit = 2 if below - above == 1 else 1  # one-sided at the border: a whole difference, not half of it
        for x in range(width):
            left, right = max(x - 1, 0), min(x + 1, width - 1)
            x_unit = 2 if right - left == 1 else 1
            row = (np.int64(gray[below, x]) - np.int64(gray[above, x])) * y_unit + 510
            column = (np.int64(gray[y, right]) - np.int64(gray[y, left])) * x_unit + 510
            orientation = table_bin[row, column]
            maps[y, x, orientation] = table_shares[row, column, 0]
            maps[y, x, (orientation + 1) & 7] = table_shares[row, column, 1]
    return maps


@compiled(fastmath=True)
def _filter_at(maps, triangle, rows, columns):  # type: ignore[no-untyped-def]
    """The triangle filter, down and across, at some rows and columns; values beyond the border are those at it.

    ``maps`` has one row per row of the image, its eight orientations side by side at every pixel.
    """
    height, row_length = maps.shape
    half = len(triangle) // 2
    sums = np.empty((len(rows), len(columns), 8), np.float32)
    line = np.empty(row_length + 16 * half, np.float32)  # one row filtered downwards, its ends repeated
    inner = line[8 * half : 8 * half + row_length]
    for place in range(len(rows)):
        y = rows[place]
        inner[:] = maps[y]  # the middle of the triangle is 1
        for away in range(1, half + 1):
            above, below = maps[max(y - away, 0)], maps[min(y + away, height - 1)]
            weight = triangle[half + away]
            for x in range(row_length):
                inner[x] += weight * (above[x] + below[x])
        for tap in range(half):
            for t in range(8):
                line[8 * tap + t] = inner[t]
                line[8 * half + row_length + 8 * tap + t] = inner[row_length - 8 + t]
        across = sums[place]
        for column in range(len(columns)):
            middle = 8 * (columns[column] + half)
            for t in range(8):
                across[column, t] = line[middle + t]
        for away in range(1, half + 1):
            weight = triangle[half + away]
            for column in range(len(columns)):
                middle = 8 * (columns[column] + half)
                for t in range(8):
                    pair = line[middle - 8 * away + t] + line[middle + 8 * away + t]
                    across[column, t] += weight * pair
    return sums


@compiled(fastmath=True)
def _gather(sums, row_places, column_places, step, bin_size, weights, min_contrast):  # type: ignore[no-untyped-def]
    span = 3 * bin_size
    n_rows, n_columns = len(row_places), len(column_places)
    descriptors = np.empty((n_rows * n_columns, 128), np.uint8)
    centers = np.empty((n_rows * n_columns, 2), np.float32)
    raw = np.empty(128, np.float32)
    min_mass = min_contrast * (span + 1) * (span + 1)
    n = 0
    for row in range(n_rows):
        for column in range(n_columns):
            mass = np.float32(0)
            square = np.float32(0)
            for i in range(4):
                for j in range(4):
                    weight = weights[i, j]
                    for t in range(8):
                        value = sums[row_places[row, i], column_places[column, j], t] * weight
                        raw[(i * 4 + j) * 8 + t] = value
                        mass += value
                        square += value * value
            if mass < min_mass or square <= 0:
                continue
            limit = np.float32(0.2) * np.sqrt(square)
            square = np.float32(0)
            for d in range(128):
                value = min(raw[d], limit)
                raw[d] = value
                square += value * value
            to_unit = np.float32(127.0) / np.sqrt(square)
            for d in range(128):
                descriptors[n, d] = np.uint8(raw[d] * to_unit + np.float32(0.5))
            centers[n, 0] = column * step + np.float32(0.5) * span
            centers[n, 1] = row * step + np.float32(0.5) * span
            n += 1
    return descriptors[:n].copy(), centers[:n].copy()

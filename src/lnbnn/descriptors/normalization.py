"""What a model learns about float descriptors from its labeled images: their center and their principal components."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lnbnn.compiled import compiled
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.files.arrays import load_array, save_array

__all__ = ["Normalization", "Normalizer", "same_normalizer"]

_ZERO = 128.0  # where the 8-bit code of 0 lies
_MAX_ROWS = 1 << 15  # an even choice of so many descriptors is learned from
_MEAN, _COMPONENTS = "normalizer_mean.npy", "normalizer_components.npy"


@dataclass(frozen=True)
class Normalization:
    """How descriptors are to be normalized.

    Parameters
    ----------
    n_components : int or None
        Keep this many principal components; None keeps the descriptors' own dimensions.
    whitening : float
        0 leaves the components their spread, 1 gives all of them the same, between them by a power.
    """

    n_components: int | None
    whitening: float

    def learn(self, images: Sequence[ImageFeatures]) -> Normalizer:
        """The normalizer of these images, the same whatever their order."""
        if len({image.n_dims for image in images}) > 1:
            sizes = sorted({image.n_dims for image in images})
            raise InvalidInputError(f"descriptors must all have the same length; got {', '.join(map(str, sizes))}.")
        # Sums of floats depend on their order: the images are taken in that of their content.
        ordered = sorted(images, key=lambda image: hashlib.sha256(image.descriptors.tobytes()).digest())
        step = -(-sum(map(len, ordered)) // _MAX_ROWS)
        rows = np.concatenate([image.descriptors for image in ordered])[::step].astype(np.float32)
        mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        if self.n_components is None:
            return Normalizer(mean, None)
        rows -= mean
        variances, directions = np.linalg.eigh((rows.T @ rows).astype(np.float64) / len(rows))
        n_kept = min(self.n_components, len(mean), len(rows))
        variances, directions = variances[::-1][:n_kept], directions[:, ::-1][:, :n_kept]
        floor = max(float(variances[0]) * 1e-6, 1e-12)
        scale = np.maximum(variances, floor) ** (-0.5 * self.whitening)
        return Normalizer(mean, (directions * scale).astype(np.float32))


@dataclass(frozen=True, eq=False)
class Normalizer:
    """Centers float descriptors, turns them to their principal components, and writes them as 8-bit unit vectors.

    A value v in -1..1 becomes the code ``round(127 v) + 128``: squared distances of codes are 127 ** 2 times those of
    the unit vectors, as for all 8-bit descriptors.
    """

    mean: NDArray[np.float32]
    components: NDArray[np.float32] | None

    def apply(self, features: ImageFeatures) -> ImageFeatures:
        """The same features with normalized 8-bit descriptors; 8-bit ones pass as they are."""
        if features.descriptors.dtype == np.uint8:
            return features
        centered = self.project(features.descriptors)
        lengths = np.linalg.norm(centered, axis=1, keepdims=True)
        unit = centered / np.maximum(lengths, np.float32(1e-12))
        codes = np.floor(unit * np.float32(UNIT_LENGTH) + np.float32(_ZERO + 0.5)).astype(np.uint8)
        return ImageFeatures(codes, features.xy, features.scale, features.size)

    def project(self, descriptors: NDArray[np.generic]) -> NDArray[np.float32]:
        """Float descriptors, centered and turned to their principal components, of the length they have."""
        if descriptors.shape[1] != len(self.mean):
            raise InvalidInputError(
                f"descriptors must have the length {len(self.mean)}, as those the model was fitted on; "
                f"got {descriptors.shape[1]}."
            )
        centered: NDArray[np.float32] = descriptors.astype(np.float32) - self.mean
        return centered if self.components is None else _product(centered, self.components)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.mean.nbytes + (0 if self.components is None else self.components.nbytes)

    def save(self, folder: Path) -> None:
        """Write the arrays into a model folder."""
        save_array(folder / _MEAN, self.mean)
        if self.components is not None:
            save_array(folder / _COMPONENTS, self.components)

    @classmethod
    def load(cls, folder: Path) -> Normalizer | None:
        """What :meth:`save` wrote; None where a model has no normalizer."""
        if not (folder / _MEAN).exists():
            return None
        mean = np.array(load_array(folder / _MEAN, ndim=1, dtypes=("float32",)))
        components = None
        if (folder / _COMPONENTS).exists():
            components = np.array(load_array(folder / _COMPONENTS, ndim=2, dtypes=("float32",)))
            if len(components) != len(mean) or not np.isfinite(components).all():
                raise ModelFormatError(f"{folder / _COMPONENTS}: does not fit {_MEAN}; fit the model again.")
        if not len(mean) or not np.isfinite(mean).all():
            raise ModelFormatError(f"{folder / _MEAN}: no finite numbers; fit the model again.")
        return cls(mean, components)


def same_normalizer(one: Normalizer | None, other: Normalizer | None) -> bool:
    """Whether two models treat their descriptors alike."""
    if one is None or other is None:
        return one is other
    return all(np.array_equal(*map(attrgetter(name), (one, other))) for name in ("mean", "components"))


@compiled
def _product(rows, matrix):  # type: ignore[no-untyped-def]
    """The matrix product on one thread: images are worked on side by side, where BLAS's own threads only wait."""
    n_rows, n_inner = rows.shape
    n_columns = matrix.shape[1]
    result = np.zeros((n_rows, n_columns), np.float32)
    for row in range(n_rows):
        for inner in range(n_inner):
            value = rows[row, inner]
            if value != 0.0:
                for column in range(n_columns):
                    result[row, column] += value * matrix[inner, column]
    return result

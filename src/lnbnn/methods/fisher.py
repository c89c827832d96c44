"""Fisher vectors: how the descriptors of an image differ from a mixture of Gaussians, and ridge regression."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.compiled import compiled
from lnbnn.descriptors.normalization import Normalization, Normalizer
from lnbnn.descriptors.root_sift import rooted
from lnbnn.errors import ModelFormatError
from lnbnn.features import UNIT_LENGTH, ImageFeatures, append_location
from lnbnn.files.arrays import load_array, save_array
from lnbnn.methods.base import Progress
from lnbnn.methods.coded_ridge import CodedRegression
from lnbnn.reading.extraction import map_in_order

__all__ = ["FisherRegression", "Mixture", "learn_mixture"]

_N_KMEANS, _N_EM = 10, 10  # rounds
_N_ROWS = 4096  # at a time
_ROWS_EACH = 32  # that a Gaussian is learned from, at least
_FLOOR = 0.01  # of a variance, as a share of that of all rows
_SMALLEST_SHARE = 1e-4  # of a Gaussian in a descriptor; smaller ones count as 0
_OCTAVE = 0.25  # of a patch's size, beside its place in units of the picture


class Mixture:
    """Gaussians with diagonal covariances.

    Parameters
    ----------
    weights : ndarray of shape (k,)
    means, variances : ndarray of shape (k, d)
    """

    def __init__(
        self, weights: NDArray[np.floating], means: NDArray[np.floating], variances: NDArray[np.floating]
    ) -> None:
        self.weights = np.asarray(weights, np.float32)
        self.means = np.ascontiguousarray(means, np.float32)
        self.variances = np.ascontiguousarray(variances, np.float32)
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights.astype(np.float64)) - 0.5 * np.log(self.variances.astype(np.float64)).sum(axis=1)
        self._constants = logs.astype(np.float32)
        self._columns = np.ascontiguousarray(self.means.T), np.ascontiguousarray(0.5 / self.variances.T)
        self.deviations = np.sqrt(self.variances)

    def shares(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """How likely each row is of each Gaussian, shape (n_rows, k)."""
        shares: NDArray[np.float32] = _shares(rows, self._constants, *self._columns)
        return shares

    def sums(
        self, rows: NDArray[np.float32], shares: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Over the rows, each Gaussian's shares s, those of s z and of s (z^2 - 1), with z = (row - mean) / deviation.

        Returns
        -------
        ndarrays of shape (k,), (k, d) and (k, d)
        """
        counts, first, second = _sums(rows, shares, self.means, self.deviations)
        return counts, first, second


def learn_mixture(rows: NDArray[np.float32], n_gaussians: int, *, seed: int, n_jobs: int | None = 1) -> Mixture:
    """The mixture that makes rows likely: k-means, then expectation maximization.

    There are fewer Gaussians where there are not 32 rows for each. A variance is at least a hundredth of that of all
    rows. The result does not depend on ``n_jobs``.
    """
    from lnbnn.indexes.faiss_kmeans import kmeans_centers  # here: answers need no FAISS

    n_gaussians = max(1, min(n_gaussians, len(rows) // _ROWS_EACH))
    centers = kmeans_centers(rows, n_gaussians, n_iterations=_N_KMEANS, seed=seed, max_vectors_per_center=len(rows))
    spread = rows.var(axis=0, dtype=np.float64)
    floor = np.maximum(_FLOOR * spread, 1e-6 * max(float(spread.max()), 1e-6))
    mixture = Mixture(np.full(len(centers), 1.0 / len(centers)), centers, np.tile(spread + floor, (len(centers), 1)))
    blocks = [rows[start : start + _N_ROWS] for start in range(0, len(rows), _N_ROWS)]

    def work(block: NDArray[np.float32]) -> tuple[NDArray[np.float64], ...]:
        return mixture.sums(block, mixture.shares(block))

    for _ in range(_N_EM):
        counts, first, second = (sum(parts) for parts in zip(*map_in_order(work, blocks, n_jobs), strict=True))
        counts = np.maximum(counts, 1e-9)
        shift = first / counts[:, None]  # in deviations
        variances = mixture.variances * np.maximum(second / counts[:, None] + 1.0 - shift**2, 0.0)
        means = mixture.means + mixture.deviations * shift
        mixture = Mixture(counts / counts.sum(), means, np.maximum(variances, floor))
    return mixture


class FisherRegression(CodedRegression):
    """Ridge regression on Fisher vectors.

    The settings are ``n_gaussians``, ``n_components``, ``root``, ``spatial``, ``power``, ``n_samples`` and ``alpha``.
    Principal components and Gaussians are learned by the first :meth:`finish` and stay: images that come later are
    coded with them.

    Given the sums over an image, each value of its vector is a sum over its descriptors, so the score of a class is the
    sum of what each descriptor says (:meth:`patch_scores`).

    Notes
    -----
    With s_ik the share of Gaussian k in the n descriptors x_i, z_ik = (x_i - m_k) / sigma_k and p_k its weight, the
    values are ``sum_i s_ik z_ik / (n sqrt(p_k))`` and ``sum_i s_ik (z_ik^2 - 1) / (n sqrt(2 p_k))``. Each value g
    becomes ``sign(g) |g|^power``, and the vector is scaled to unit length.

    References
    ----------
    Perronnin, Sanchez and Mensink, "Improving the Fisher kernel for large-scale image classification", ECCV 2010.
    """

    learns = "Gaussians"

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.turned: Normalizer | None = None  # to principal components
        self.mixture: Mixture | None = None

    # ---- codes --------------------------------------------------------------------------------------------------

    def rows_of(self, features: ImageFeatures) -> NDArray[np.float32]:
        """The principal components of the descriptors; if ``spatial``, with size and place of the patches."""
        assert self.turned is not None
        descriptors = self._rooted(features).descriptors
        projected = self.turned.project(descriptors)
        if descriptors.dtype == np.uint8:
            projected /= np.float32(UNIT_LENGTH)
        if not self.settings.spatial:
            return projected
        located = ImageFeatures(projected, features.xy, features.scale, features.size)
        return np.ascontiguousarray(append_location(located, 1.0, _OCTAVE), np.float32)

    def vector_of(self, features: ImageFeatures) -> NDArray[np.float16]:
        """The Fisher vector, of unit length: in float16, as there are many values."""
        assert self.mixture is not None
        rows = self.rows_of(features)
        return self._normalized(self._gradients(rows, self.mixture.shares(rows)))

    def contributions(self, features: ImageFeatures, coef: NDArray[np.float64]) -> NDArray[np.float64]:
        mixture, rows = self.mixture, self.rows_of(features)
        assert mixture is not None
        shares = mixture.shares(rows)
        gradients = self._gradients(rows, shares)
        vector = self._normalized(gradients).astype(np.float64)
        factors = np.divide(vector, gradients, out=np.zeros_like(vector), where=gradients != 0.0)
        weights = (coef * factors).reshape(len(coef), 2, *mixture.means.shape) * self._scales(len(rows))
        result = np.zeros((len(rows), len(coef)))
        for place, (mean, deviation) in enumerate(zip(mixture.means, mixture.deviations, strict=True)):
            near = np.flatnonzero(shares[:, place])
            z = ((rows[near] - mean) / deviation).astype(np.float64)
            said = z @ weights[:, 0, place].T + (z**2 - 1.0) @ weights[:, 1, place].T
            result[near] += shares[near, place, None] * said
        return result

    def _rooted(self, features: ImageFeatures) -> ImageFeatures:
        """The features with the square roots of 8-bit histograms, if ``root``."""
        if not self.settings.root or features.descriptors.dtype != np.uint8:
            return features
        return ImageFeatures(rooted(features.descriptors), features.xy, features.scale, features.size)

    def _gradients(self, rows: NDArray[np.float32], shares: NDArray[np.float32]) -> NDArray[np.float64]:
        assert self.mixture is not None
        _, first, second = self.mixture.sums(rows, shares)
        gradients: NDArray[np.float64] = np.stack([first, second]) * self._scales(len(rows))
        return gradients.ravel()

    def _scales(self, n_rows: int) -> NDArray[np.float64]:
        """What the sums of each Gaussian are multiplied by, shape (2, k, 1)."""
        assert self.mixture is not None
        roots = np.sqrt(self.mixture.weights.astype(np.float64))[:, None] * n_rows
        return np.stack([1.0 / roots, 1.0 / (np.sqrt(2.0) * roots)])

    def _normalized(self, gradients: NDArray[np.float64]) -> NDArray[np.float16]:
        powered = np.sign(gradients) * np.abs(gradients) ** float(self.settings.power)
        length = float(np.sqrt(np.square(powered).sum()))  # not BLAS: see RidgeMethod.scores
        return (powered / (length or 1.0)).astype(np.float16)

    # ---- learning -----------------------------------------------------------------------------------------------

    @property
    def has_learned(self) -> bool:
        return self.mixture is not None

    def learn(self, images: list[ImageFeatures], progress: Progress) -> None:
        from lnbnn.methods.pyramid.codebook import sample_features  # which loads FAISS, too

        settings = self.settings
        progress("learning the Gaussians", 0, 1)
        sample = sample_features(images, int(settings.n_samples), int(settings.random_state))
        self.turned = Normalization(int(settings.n_components), 0.0).learn([self._rooted(image) for image in sample])
        rows = np.concatenate([self.rows_of(image) for image in sample])
        self.mixture = learn_mixture(
            rows, int(settings.n_gaussians), seed=int(settings.random_state), n_jobs=settings.n_jobs
        )
        progress("learning the Gaussians", 1, 1)

    def has_codes_of(self, other: Self) -> bool:
        mine, theirs = self._arrays(), other._arrays()
        return all(np.array_equal(mine[name], theirs[name]) for name in mine)

    # ---- keeping ------------------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        assert self.turned is not None
        assert self.turned.components is not None
        assert self.mixture is not None
        mixture = self.mixture
        return {
            "mean": self.turned.mean,
            "components": self.turned.components,
            "weights": mixture.weights,
            "means": mixture.means,
            "variances": mixture.variances,
        }

    @property
    def n_values(self) -> int:
        assert self.mixture is not None
        return int(2 * self.mixture.means.size)

    def save_codes(self, folder: Path) -> None:
        for name, array in self._arrays().items():
            save_array(folder / f"fisher_{name}.npy", array)

    def load_codes(self, folder: Path) -> None:
        ndims = {"mean": 1, "components": 2, "weights": 1, "means": 2, "variances": 2}
        mean, components, weights, means, variances = (
            np.array(load_array(folder / f"fisher_{name}.npy", ndim=ndim, dtypes=("float32",)))
            for name, ndim in ndims.items()
        )
        n_dims = components.shape[1] + 3 * bool(self.settings.spatial)
        shape = (len(weights), n_dims)
        fits = means.shape == variances.shape == shape and len(components) == len(mean)
        if not fits:
            raise ModelFormatError(f"{folder}: the Gaussians do not fit each other; fit the model again.")
        everything = (mean, components, weights, means, variances)
        if not (
            all(np.isfinite(array).all() for array in everything) and (variances > 0).all() and (weights > 0).all()
        ):
            raise ModelFormatError(f"{folder}: the Gaussians are no finite numbers; fit the model again.")
        self.turned = Normalizer(mean, components)
        self.mixture = Mixture(weights, means, variances)

    def describe_codes(self) -> str:
        assert self.mixture is not None
        n_gaussians, n_dims = self.mixture.means.shape
        return f"Fisher vectors of {n_gaussians} Gaussians of {n_dims} values"

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(array.nbytes for array in self._arrays().values())


@compiled
def _shares(rows, constants, means, halves):  # type: ignore[no-untyped-def]
    """Softmax of the log-likelihoods over the Gaussians; ``means`` and ``halves``, 0.5 / variance, are (d, k)."""
    n_rows, n_dims = rows.shape
    n_gaussians = len(constants)
    result = np.zeros((n_rows, n_gaussians), np.float32)
    logs = np.empty(n_gaussians, np.float32)
    for row in range(n_rows):
        logs[:] = constants
        for dim in range(n_dims):
            value = rows[row, dim]
            for place in range(n_gaussians):
                away = value - means[dim, place]
                logs[place] -= away * away * halves[dim, place]
        highest = logs[0]
        for place in range(1, n_gaussians):  # with logs.max() numba would load SciPy
            highest = max(highest, logs[place])
        total = np.float32(0.0)
        for place in range(n_gaussians):
            if logs[place] > highest - np.float32(20.0):
                result[row, place] = np.exp(logs[place] - highest)
                total += result[row, place]
        for place in range(n_gaussians):
            share = result[row, place] / total
            result[row, place] = share if share >= np.float32(_SMALLEST_SHARE) else np.float32(0.0)
    return result


@compiled
def _sums(rows, shares, means, deviations):  # type: ignore[no-untyped-def]
    n_rows, n_dims = rows.shape
    n_gaussians = len(means)
    counts = np.zeros(n_gaussians)
    first, second = np.zeros((n_gaussians, n_dims)), np.zeros((n_gaussians, n_dims))
    for row in range(n_rows):
        for place in range(n_gaussians):
            share = shares[row, place]
            if share > 0.0:
                counts[place] += share
                for dim in range(n_dims):
                    z = (rows[row, dim] - means[place, dim]) / deviations[place, dim]
                    first[place, dim] += share * z
                    second[place, dim] += share * (z * z - np.float32(1.0))
    return counts, first, second

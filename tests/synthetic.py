"""Seeded synthetic images, features and vectors that several test files share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lnbnn import DenseSIFT, ImageFeatures

SIDE = 48


def small_sift(**changes: object) -> DenseSIFT:
    """One scale on 48-pixel images: quick, and 36 descriptors per image."""
    settings = {"bin_sizes": (4,), "step_px": 7, "min_contrast": 0.5, "longest_side": SIDE}
    return DenseSIFT(**{**settings, **changes})


def grating(angle_degrees: float, seed: int, *, side: int = SIDE, period: float = 11.0) -> NDArray[np.uint8]:
    """Stripes across one direction, with a random phase and noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:side, 0:side]
    angle = np.deg2rad(angle_degrees)
    wave = np.sin(2 * np.pi * (columns * np.cos(angle) + rows * np.sin(angle)) / period + rng.uniform(0, 2 * np.pi))
    return np.clip(128 + 90 * wave + rng.normal(0, 8, (side, side)), 0, 255).astype(np.uint8)


def grating_set(n_classes: int = 3, n_images: int = 2, *, seed: int = 0) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Images of ``n_classes`` directions, class names in alphabetical order of the direction."""
    images, labels = [], []
    for place in range(n_classes):
        for number in range(n_images):
            images.append(grating(180.0 * place / n_classes, seed=1000 * seed + 100 * place + number))
            labels.append(f"direction {place}")
    return images, labels


def flat_image(value: int = 90, side: int = SIDE) -> NDArray[np.uint8]:
    """A picture without a single descriptor."""
    return np.full((side, side), value, np.uint8)


def noise_image(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Independent random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def make_features(descriptors: NDArray[np.generic], *, seed: int | None = None) -> ImageFeatures:
    """Features with these descriptors; all at the center of the image, or at seeded random places."""
    n = len(descriptors)
    xy = np.full((n, 2), 0.5) if seed is None else np.random.default_rng(seed).uniform(0, 1, (n, 2))
    return ImageFeatures(descriptors, xy, np.full(n, 16.0), (100, 80))


def clustered_vectors(n: int, n_dims: int, *, n_clusters: int = 20, seed: int = 0) -> NDArray[np.uint8]:
    """8-bit vectors around ``n_clusters`` centers; the centers do not depend on the seed."""
    centers = np.random.default_rng(12345).uniform(20, 200, (n_clusters, n_dims))
    rng = np.random.default_rng(seed)
    noisy = centers[rng.integers(0, n_clusters, n)] + rng.normal(0, 12.0, (n, n_dims))
    return np.clip(noisy, 0, 255).astype(np.uint8)

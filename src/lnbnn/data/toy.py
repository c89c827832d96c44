"""A small data set that needs no download: views of photographs from scikit-image's wheel, one class per photograph.

Every view is a rotated crop with other lighting; query views also have noise and clutter that covers part of them. A
seed determines every pixel.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lnbnn.errors import MissingExtraError
from lnbnn.files.images import read_gray

__all__ = ["PHOTOS", "load_photos", "make_views", "write_toy_set"]

PHOTOS = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "camera": "camera.png",
    "cat": "chelsea.png",
    "cell": "cell.png",
    "clock": "clock_motion.png",
    "coffee": "coffee.png",
    "coins": "coins.png",
    "galaxies": "hubble_deep_field.jpg",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "moon": "moon.png",
    "motorcycle": "motorcycle_left.png",
    "page": "page.png",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
    "text": "text.png",
    "tissue": "ihc.png",
}
"""Class names and the files they come from."""

_SIDE = 360  # longest side of the photographs the views are cut from


def load_photos() -> dict[str, NDArray[np.uint8]]:
    """The photographs, gray, by class name."""
    try:
        folder = resources.files("skimage") / "data"
    except ModuleNotFoundError as error:
        raise MissingExtraError("the demo's photographs need the extra: pip install 'lnbnn[demo]'.") from error
    with resources.as_file(folder) as place:
        return {name: read_gray(place / file, _SIDE) for name, file in PHOTOS.items()}


def make_views(
    photos: dict[str, NDArray[np.uint8]], n_views: int, *, seed: int, clutter: bool
) -> list[tuple[str, NDArray[np.uint8]]]:
    """``n_views`` changed views of each photograph, as (class, image)."""
    rng = np.random.default_rng(seed)
    views = []
    for name, photo in photos.items():
        for _ in range(n_views):
            view = _view(photo, rng)
            views.append((name, _cover(view, rng) if clutter else view))
    return views


def write_toy_set(folder: Path, *, n_reference: int = 8, n_query: int = 5, seed: int = 0) -> tuple[Path, Path]:
    """Write the set as ``reference/<class>/*.png`` and ``query/<class>/*.png``; returns the two folders."""
    photos = load_photos()
    places = []
    for part, n_views, part_seed in (("reference", n_reference, 2 * seed), ("query", n_query, 2 * seed + 1)):
        for number, (name, view) in enumerate(make_views(photos, n_views, seed=part_seed, clutter=part == "query")):
            place = folder / part / name
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(view).save(place / f"view_{number % n_views + 1}.png")
        places.append(folder / part)
    return places[0], places[1]


def _view(photo: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """A crop of 55 to 85 % of each side, tilted by up to 15 degrees, under other light."""
    height, width = photo.shape
    share = rng.uniform(0.55, 0.85)
    out_width, out_height = max(32, int(share * width)), max(32, int(share * height))
    center = (rng.uniform(0.42, 0.58) * width, rng.uniform(0.42, 0.58) * height)
    turn = cv2.getRotationMatrix2D(center, rng.uniform(-15, 15), rng.uniform(0.9, 1.15))
    turn[:, 2] += np.array([out_width / 2, out_height / 2]) - center
    crop = cv2.warpAffine(
        photo, turn, (out_width, out_height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
    )
    light = (crop / 255.0) ** rng.uniform(0.7, 1.5) * rng.uniform(0.75, 1.0)
    slope = np.linspace(1.0, rng.uniform(0.7, 1.0), out_width)
    return np.clip(255.0 * light * slope, 0, 255).astype(np.uint8)


def _cover(view: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """A textured strip over 15 to 35 % of the view, along one side, and noise over all."""
    turns = int(rng.integers(4))  # which side is hidden
    covered = np.rot90(view, turns).astype(np.float64)
    depth = int(rng.uniform(0.15, 0.35) * len(covered))
    covered[:depth] = _texture(covered[:depth].shape, rng)
    covered = np.rot90(covered, -turns)
    return np.clip(covered + rng.normal(0, 2.0, covered.shape), 0, 255).astype(np.uint8)


def _texture(shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Cloudy gray noise: blobs of several sizes."""
    total = np.zeros(shape)
    for cell_px, weight in ((4, 8.0), (12, 16.0), (36, 30.0)):
        coarse = rng.normal(0, 1, (shape[0] // cell_px + 2, shape[1] // cell_px + 2))
        total += weight * cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)
    return 128.0 + total

"""Many images to features: side by side on all cores, in order, bad files reported as values."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.files.images import open_bytes
from lnbnn.reading.store import FeatureStore

__all__ = ["ImageLike", "Progress", "features_of", "iter_features", "map_in_order", "name_of", "no_progress"]

ImageLike: TypeAlias = str | os.PathLike[str] | NDArray[np.generic] | ImageFeatures
"""A path, an image array, or features already extracted."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` while a long step runs."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress of who does not ask for any."""


def features_of(image: ImageLike, descriptor: Descriptor, store: FeatureStore | None = None) -> ImageFeatures:
    """The features of one image; read from the store, or extracted and put there."""
    if isinstance(image, ImageFeatures):
        return image
    if isinstance(image, np.ndarray):
        return descriptor.extract(image)
    if not isinstance(image, str | os.PathLike):
        raise InvalidInputError(f"an image must be a path, an array or ImageFeatures; got {type(image).__name__}.")
    with open_bytes(image) as data:
        key = store.key(data, descriptor) if store is not None else ""
        features = store.get(key) if store is not None else None
        picture = descriptor.decode(data, name=str(image)) if features is None else None
        del data  # the file is not needed any more
    if picture is None:
        assert features is not None
        return features
    features = descriptor.extract(picture)
    if store is not None:
        store.put(key, features)
    return features


def iter_features(
    images: Iterable[ImageLike],
    descriptor: Descriptor,
    *,
    n_jobs: int | None = None,
    store: FeatureStore | None = None,
) -> Iterator[ImageFeatures | ImageReadError]:
    """Features of many images, in order; a file that cannot be read gives its error as a value."""

    def work(image: ImageLike) -> ImageFeatures | ImageReadError:
        try:
            return features_of(image, descriptor, store)
        except ImageReadError as error:
            return error.with_traceback(None)  # which would keep the file's content

    return map_in_order(work, images, n_jobs)


def map_in_order(work: Callable[[_Item], _Result], items: Iterable[_Item], n_jobs: int | None) -> Iterator[_Result]:
    """Apply ``work`` to each item on ``n_jobs`` threads (None: all cores); yields in order, a few ahead at most."""
    if n_jobs is not None and (int(n_jobs) != n_jobs or n_jobs < 1):
        raise InvalidInputError(f"n_jobs must be a whole number, at least 1, or None for all cores; got {n_jobs}.")
    if isinstance(items, list) and len(items) <= 1:
        n_jobs = 1
    if n_jobs is None:
        from joblib import cpu_count  # respects affinity and the limits of containers

        n_jobs = cpu_count()
    n_threads = int(n_jobs)
    return map(work, items) if n_threads == 1 else _map_on_threads(work, items, n_threads)


def _map_on_threads(work: Callable[[_Item], _Result], items: Iterable[_Item], n_threads: int) -> Iterator[_Result]:
    waiting: deque[Future[_Result]] = deque()
    pool = ThreadPoolExecutor(n_threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # also when the reader stops early: nothing runs on behind its back
        pool.shutdown(wait=True, cancel_futures=True)


def name_of(image: ImageLike, position: int) -> str:
    """What an image is called in messages and in a model's list of images."""
    return os.fspath(image) if isinstance(image, str | os.PathLike) else f"image {position}"


@dataclass(frozen=True, eq=False)
class Read:
    """Temporary."""

    features: ImageFeatures
    digest: str


def iter_read(images, descriptor, *, n_jobs=None, store=None):  # type: ignore[no-untyped-def]
    """Temporary."""
    from lnbnn.model.image_table import content_digest

    def work(image):  # type: ignore[no-untyped-def]
        try:
            return Read(features_of(image, descriptor, store), content_digest(image))
        except ImageReadError as error:
            return error

    return map_in_order(work, images, n_jobs)

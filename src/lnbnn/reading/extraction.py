"""Many images to features: side by side on all cores, in order, bad files reported as values."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.features import ImageFeatures, JointFeatures
from lnbnn.files.images import open_bytes

if TYPE_CHECKING:
    from lnbnn.reading.store import FeatureStore

__all__ = [
    "ImageLike",
    "Progress",
    "content_digest",
    "features_of",
    "iter_features",
    "iter_read",
    "map_in_order",
    "name_of",
    "no_progress",
    "read_features",
]

ImageLike: TypeAlias = str | os.PathLike[str] | NDArray[np.generic] | ImageFeatures
"""A path, an image array, or features already extracted."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` while a long step runs."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def no_progress(stage: str, done: int, total: int) -> None:
    """No progress report: the default."""


def features_of(
    image: ImageLike, descriptor: Descriptor | Sequence[Descriptor], store: FeatureStore | None = None
) -> Any:
    """The features of one image; read from the store, or extracted and put there. As in :func:`read_features`."""
    return read_features(image, descriptor, store, needs_digest=False)[0]


def read_features(
    image: ImageLike,
    descriptor: Descriptor | Sequence[Descriptor],
    store: FeatureStore | None = None,
    *,
    needs_digest: bool = True,
) -> tuple[Any, str]:
    """The features of one image, and the SHA-256 of its content if needed; a file is read once for all.

    They are :class:`~lnbnn.features.ImageFeatures`; with several descriptors, even one in a list,
    :class:`~lnbnn.features.JointFeatures`.
    """
    descriptors = [descriptor] if isinstance(descriptor, Descriptor) else list(descriptor)
    if isinstance(image, ImageFeatures | np.ndarray):
        found = [image if isinstance(image, ImageFeatures) else one.extract(image) for one in descriptors]
        digest = content_digest(image) if needs_digest else ""
    elif isinstance(image, str | os.PathLike):
        found, digest = _read_file(image, descriptors, store, needs_digest)
    else:
        raise InvalidInputError(f"an image must be a path, an array or ImageFeatures; got {type(image).__name__}.")
    return found[0] if isinstance(descriptor, Descriptor) else JointFeatures(tuple(found)), digest


def _read_file(
    path: str | os.PathLike[str], descriptors: list[Descriptor], store: FeatureStore | None, needs_digest: bool
) -> tuple[list[ImageFeatures], str]:
    stored: list[ImageFeatures | None] = [None] * len(descriptors)
    pictures: list[Any] = [None] * len(descriptors)
    with open_bytes(path) as data:
        digest = hashlib.sha256(data).hexdigest() if needs_digest or store is not None else ""
        for place, descriptor in enumerate(descriptors):
            if store is not None:
                stored[place] = store.get(store.key(digest, descriptor))
            if stored[place] is None:
                pictures[place] = descriptor.decode(data, name=str(path))
        del data  # the file is not needed any more
    found = []
    for descriptor, known, picture in zip(descriptors, stored, pictures, strict=True):
        features = descriptor.extract(picture) if known is None else known
        if store is not None and known is None:
            store.put(store.key(digest, descriptor), features)
        found.append(features)
    return found, digest


def content_digest(image: NDArray[np.generic] | ImageFeatures) -> str:
    """SHA-256 of an image array, or of features."""
    digest = hashlib.sha256()
    for array in (image.descriptors, image.xy) if isinstance(image, ImageFeatures) else (image,):
        digest.update(f"{array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def iter_read(
    images: Iterable[ImageLike],
    descriptor: Descriptor | Sequence[Descriptor],
    *,
    n_jobs: int | None = None,
    store: FeatureStore | None = None,
) -> Iterator[tuple[Any, str] | ImageReadError]:
    """Features and digests of many images, in order; a file that cannot be read gives its error as a value."""

    def work(image: ImageLike) -> tuple[Any, str] | ImageReadError:
        try:
            return read_features(image, descriptor, store)
        except ImageReadError as error:
            return error.with_traceback(None)  # which would keep the file's content

    return map_in_order(work, images, n_jobs)


def iter_features(
    images: Iterable[ImageLike],
    descriptor: Descriptor,
    *,
    n_jobs: int | None = None,
    store: FeatureStore | None = None,
) -> Iterator[ImageFeatures | ImageReadError]:
    """As :func:`iter_read`, without the digests."""
    found = iter_read(images, descriptor, n_jobs=n_jobs, store=store)
    return (read if isinstance(read, ImageReadError) else read[0] for read in found)


def map_in_order(work: Callable[[_Item], _Result], items: Iterable[_Item], n_jobs: int | None) -> Iterator[_Result]:
    """Apply ``work`` to each item on ``n_jobs`` threads (None: all cores); yields in order, a few ahead at most."""
    if n_jobs is not None and (int(n_jobs) != n_jobs or n_jobs < 1):
        raise InvalidInputError(f"n_jobs must be a whole number, at least 1, or None for all cores; got {n_jobs}.")
    if isinstance(items, list) and len(items) <= 1:
        n_jobs = 1
    if n_jobs is None:
        from joblib import cpu_count  # respects affinity and the limits of containers

        n_jobs = cpu_count()
    return map(work, items) if n_jobs == 1 else _map_on_threads(work, items, int(n_jobs))


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

"""Many images to features: side by side on all cores or machines, in order, bad files reported as values."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lnbnn.cluster.tasks import RayCluster
from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError, LnbnnError
from lnbnn.features import ImageFeatures, JointFeatures
from lnbnn.files.images import open_bytes

if TYPE_CHECKING:
    from lnbnn.reading.store import FeatureStore

__all__ = [
    "ImageLike",
    "Jobs",
    "Progress",
    "content_digest",
    "features_of",
    "iter_features",
    "iter_read",
    "iter_stored",
    "map_anywhere",
    "map_in_order",
    "name_of",
    "no_progress",
    "read_features",
]

ImageLike: TypeAlias = str | os.PathLike[str] | NDArray[np.generic] | ImageFeatures
"""A path, an image array, or features already extracted."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` while a long step runs."""

Jobs: TypeAlias = int | RayCluster | None
"""A number of threads, None for all cores, or the machines that read images and answer questions."""

_SHARED_WITHIN_S = 60.0  # until what one machine wrote is seen by another

_logger = logging.getLogger(__name__)
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
    n_jobs: Jobs = None,
    store: FeatureStore | None = None,
    needs_digest: bool = True,
) -> Iterator[tuple[Any, str] | ImageReadError]:
    """Features and digests of many images, in order; a file that cannot be read gives its error as a value."""
    work = partial(_or_error, read_features, descriptor=descriptor, store=store, needs_digest=needs_digest)
    return map_anywhere(work, images, n_jobs)


def iter_features(
    images: Iterable[ImageLike],
    descriptor: Descriptor | Sequence[Descriptor],
    *,
    n_jobs: Jobs = None,
    store: FeatureStore | None = None,
) -> Iterator[Any | ImageReadError]:
    """As :func:`iter_read`, without the digests."""
    found = iter_read(images, descriptor, n_jobs=n_jobs, store=store, needs_digest=False)
    return (read if isinstance(read, ImageReadError) else read[0] for read in found)


def iter_stored(
    paths: Iterable[str], descriptor: Descriptor, store: FeatureStore, *, n_jobs: Jobs = None
) -> Iterator[int | ImageReadError]:
    """Put the features of many files into a store; yields how many descriptors each has, once they are there."""
    for found in map_anywhere(partial(_or_error, _store_features, descriptor=descriptor, store=store), paths, n_jobs):
        if not isinstance(found, ImageReadError):
            key, n_descriptors = found
            _await_entry(store, key)
            yield n_descriptors
        else:
            yield found


def _store_features(path: str, descriptor: Descriptor, store: FeatureStore) -> tuple[str, int]:
    features, digest = read_features(path, descriptor, store)
    return store.key(digest, descriptor), len(features)


def _await_entry(store: FeatureStore, key: str) -> None:
    """Wait until an entry that was written, maybe by another machine, is seen here."""
    until = time.monotonic() + _SHARED_WITHIN_S
    while key not in store:
        if time.monotonic() > until:
            raise LnbnnError(
                f"{store.folder}: what another machine put into this cache is not seen here; all machines must share "
                "the folder."
            )
        time.sleep(0.2)


def _or_error(work: Callable[..., Any], image: ImageLike, **kwargs: Any) -> Any:
    try:
        return work(image, **kwargs)
    except ImageReadError as error:
        return error.with_traceback(None)  # which would keep the file's content


def map_anywhere(work: Callable[[_Item], _Result], items: Iterable[_Item], n_jobs: Jobs) -> Iterator[_Result]:
    """As :func:`map_in_order`; with a cluster, on its machines. Then ``work`` and the items must pickle.

    A file that a worker cannot read is read here: it is bad only if this machine cannot read it either.
    """
    return _map_on_cluster(work, items, n_jobs) if isinstance(n_jobs, RayCluster) else map_in_order(work, items, n_jobs)


def _map_on_cluster(work: Callable[[_Item], _Result], items: Iterable[_Item], cluster: RayCluster) -> Iterator[_Result]:
    given = list(items)
    n_unseen = 0
    for item, found in zip(given, cluster.map(work, given), strict=True):
        if isinstance(found, ImageReadError):
            found = work(item)
            n_unseen += not isinstance(found, ImageReadError)
        yield found
    if n_unseen:
        _logger.warning(
            "%d of %d images were read here because a Ray worker could not; do all machines have the photos under the "
            "same path?",
            n_unseen,
            len(given),
        )


def map_in_order(work: Callable[[_Item], _Result], items: Iterable[_Item], n_jobs: Jobs) -> Iterator[_Result]:
    """Apply ``work`` to each item on ``n_jobs`` threads (None: all cores); yields in order, a few ahead at most.

    Work that belongs to this process stays here even if there is a cluster.
    """
    n_threads = n_jobs.n_jobs if isinstance(n_jobs, RayCluster) else n_jobs
    if n_threads is not None and (int(n_threads) != n_threads or n_threads < 1):
        raise InvalidInputError(f"n_jobs must be a whole number, at least 1, or None for all cores; got {n_threads}.")
    if isinstance(items, list) and len(items) <= 1:
        n_threads = 1
    if n_threads is None:
        from joblib import cpu_count  # respects affinity and the limits of containers

        n_threads = cpu_count()
    return map(work, items) if n_threads == 1 else _map_on_threads(work, items, int(n_threads))


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

"""Which labeled images the evidence for a class comes from: each descriptor's update is credited to the patch it
matched.

Arrays in, data out, one model at a time; :func:`photos_of` puts the members of a fusion together. Figures draw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.descriptors import Descriptor
from lnbnn.errors import ImageReadError
from lnbnn.features import ImageFeatures
from lnbnn.files.images import decode
from lnbnn.methods.matching import MatchingMethod, ids_of_image, image_of_id
from lnbnn.model.model import Model
from lnbnn.references import Reference, References
from lnbnn.scoring import Updates
from lnbnn.trust.photos import Folders, read_photo

__all__ = ["Matches", "Pair", "Patch", "Photo", "PhotoMatches", "find_matches", "match_photos", "photos_of"]

_APART = 1.2  # from center to center, in sides: patches that touch show the same thing twice
_PICTURE_SIDE = 500  # pixels of a labeled image that is drawn


@dataclass(frozen=True, eq=False)
class Matches:
    """The matches of an image's descriptors with patches of a model's labeled images.

    Parameters
    ----------
    features : ImageFeatures
        The descriptors that were asked for.
    descriptor : Descriptor
    references : References
    rows : ndarray of shape (n_matches,)
        The descriptor of each match.
    ids : ndarray of shape (n_matches,), int64
        The descriptor id of its nearest neighbor in the class; -1 where the index found none.
    support : ndarray of shape (n_matches,)
        What the match says; their sum is that of the evidence.
    sides : ndarray of shape (n_matches,)
        1 for matches with the class in question, -1 for those with the class it is compared with.
    """

    features: ImageFeatures
    descriptor: Descriptor
    references: References
    rows: NDArray[np.intp]
    ids: NDArray[np.int64]
    support: NDArray[np.float64]
    sides: NDArray[np.int8]


@dataclass(frozen=True)
class Photo:
    """A labeled image, and its contribution to the evidence."""

    image: Reference
    support: float
    """The sum over its matches; negative for those of the class that is compared with."""
    share: float
    """The share of all contributions, for and against."""
    n_patches: int
    """Descriptors of the query that matched it."""


@dataclass(frozen=True)
class Patch:
    """A patch, its center and its sides as fractions of the picture's width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Pair:
    """A patch of the query and the patch of a labeled image that it matched (None: the image is not available)."""

    support: float
    query: Patch
    match: Patch | None


@dataclass(frozen=True, eq=False)
class PhotoMatches:
    """A labeled image with its strongest pairs, and the picture itself; None if its file is missing or has changed."""

    photo: Photo
    pairs: tuple[Pair, ...]
    picture: NDArray[np.uint8] | None

    def as_json(self) -> list[dict[str, Any]]:
        """The pairs as plain values."""
        return [
            {
                "image_id": self.photo.image.id,
                "path": self.photo.image.name,
                "label": self.photo.image.label,
                "support": pair.support,
                "query": vars(pair.query),
                "match": None if pair.match is None else vars(pair.match),
            }
            for pair in self.pairs
        ]


def find_matches(
    model: Model,
    features: ImageFeatures,
    updates: Updates,
    place: int | None,
    against: int | None = None,
    share: float = 1.0,
) -> Matches:
    """The matches behind the updates of a model of the NBNN family, for the class at a place, or against another.

    ``share`` is what one unit of the model's scores adds to those of its fusion.
    """
    method = model.method
    assert isinstance(method, MatchingMethod)
    vectors = method.vectors(features)
    found = []
    for side, wanted in ((1, place), (-1, against)):
        if wanted is not None:
            support = -side * share * updates.of_class(wanted)
            rows = np.flatnonzero(support)
            ids = _nearest_of_class(method, vectors, wanted)[rows]
            found.append((rows, ids, support[rows], np.full(len(rows), side, np.int8)))
    if not found:  # the model has no image of the classes in question
        found.append((np.empty(0, np.intp), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int8)))
    rows, ids, support, sides = (np.concatenate(column) for column in zip(*found, strict=True))
    return Matches(features, model.descriptor, method.references, rows, ids, support, sides)


def _nearest_of_class(method: MatchingMethod, vectors: NDArray[np.generic], place: int) -> NDArray[np.int64]:
    """The descriptor id of each vector's nearest neighbor in a class, as the updates have it; -1 for none."""
    for index, of_class in method.indexes():
        if of_class == place:
            return index.search(vectors, 1)[1][:, 0]
        if of_class is None:  # one merged index: the first of the class among the k nearest
            n_neighbors = int(method.settings.n_neighbors)
            ids = index.search(vectors, n_neighbors + 1)[1][:, :n_neighbors]
            own = [
                image.id for image, at in zip(method.references, method.references.places, strict=True) if at == place
            ]
            is_own = np.isin(image_of_id(ids), own)
            first = np.take_along_axis(ids, np.argmax(is_own, axis=1)[:, None], axis=1)[:, 0]
            return np.where(is_own.any(axis=1), first, -1)
    return np.full(len(vectors), -1, np.int64)


def photos_of(members: Sequence[Matches]) -> tuple[Photo, ...]:
    """All labeled images that contribute to any of the members, largest contribution first.

    Their support adds up to that of the evidence but for matches that found no neighbor.
    """
    images: dict[_Key, Reference] = {}
    support: dict[_Key, float] = {}
    n_patches: dict[_Key, int] = {}
    for matches in members:
        by_id = {image.id: image for image in matches.references}
        numbers, places = np.unique(image_of_id(matches.ids), return_inverse=True)
        sums = np.bincount(places, weights=matches.support, minlength=len(numbers))
        counts = np.bincount(places, minlength=len(numbers))
        for at, number in enumerate(numbers.tolist()):
            if number in by_id:
                key = _key(by_id[number])
                images.setdefault(key, by_id[number])
                support[key] = support.get(key, 0.0) + float(sums[at])
                n_patches[key] = n_patches.get(key, 0) + int(counts[at])
    whole = sum(map(abs, support.values())) or 1.0
    found = [Photo(images[key], value, abs(value) / whole, n_patches[key]) for key, value in support.items()]
    return tuple(sorted(found, key=lambda photo: (-abs(photo.support), photo.image.id)))


_Key = tuple[Any, str, str | None]


def _key(image: Reference) -> _Key:
    """The same for an image in every member of a fusion, whatever its id there."""
    return image.label, image.name, image.digest


def match_photos(
    members: Sequence[Matches], photos: Sequence[Photo], *, n_pairs: int = 4, folders: Folders = ()
) -> list[PhotoMatches]:
    """The strongest pairs of each of these images, with its picture if its file is still there; see ``read_photo``."""
    return [_match_photo(members, photo, n_pairs, folders) for photo in photos]


def _match_photo(members: Sequence[Matches], photo: Photo, n_pairs: int, folders: Folders) -> PhotoMatches:
    data, name = read_photo(photo.image, folders), photo.image.name
    picture: NDArray[np.uint8] | None = None
    found: list[tuple[float, Pair]] = []
    try:
        picture = None if data is None else decode(data, _PICTURE_SIDE, color=True, name=name)
    except ImageReadError:
        data = None
    for matches in members:
        own = next((image for image in matches.references if _key(image) == _key(photo.image)), None)
        if own is None:
            continue
        theirs = None if data is None else matches.descriptor.extract(matches.descriptor.decode(data, name=name))
        if theirs is not None and len(theirs) != own.n_descriptors:
            theirs = None
        first = ids_of_image(own.id, own.n_descriptors).start
        at = np.flatnonzero(image_of_id(matches.ids) == own.id)
        strength = matches.sides[at] * matches.support[at]
        for place in at[np.argsort(-strength, kind="stable")]:
            query = _patch(matches.features, matches.rows[place])
            match = None if theirs is None else _patch(theirs, int(matches.ids[place]) - first)
            found.append((matches.sides[place] * matches.support[place], Pair(matches.support[place], query, match)))
    found.sort(key=lambda entry: -entry[0])
    return PhotoMatches(photo, tuple(_apart([pair for _, pair in found], n_pairs)), picture)


def _patch(features: ImageFeatures, row: int) -> Patch:
    width, height = features.size
    side = float(features.scale[row])
    return Patch(float(features.xy[row, 0]), float(features.xy[row, 1]), side / width, side / height)


def _apart(pairs: Sequence[Pair], n: int) -> list[Pair]:
    """The first n pairs whose patches in the query do not touch."""
    chosen: list[Pair] = []
    for pair in pairs:
        if len(chosen) == n:
            break
        if all(_sides_between(pair.query, other.query) >= _APART for other in chosen):
            chosen.append(pair)
    return chosen


def _sides_between(a: Patch, b: Patch) -> float:
    """How far the centers of two patches are apart, in mean sides: below 1 they overlap."""
    return max(2 * abs(a.x - b.x) / (a.width + b.width), 2 * abs(a.y - b.y) / (a.height + b.height))

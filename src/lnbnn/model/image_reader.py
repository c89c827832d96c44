"""Reads labeled images for a model, each once; lists unusable images and duplicates."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.model.answers import no_descriptors
from lnbnn.reading.extraction import ImageLike, Jobs, Progress, iter_read, name_of, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.references import MAX_IMAGES, Reference

__all__ = ["ImageReader", "NumberedPath", "ReadImage"]


@dataclass(frozen=True, eq=False)
class ReadImage(ImageFeatures):
    """Features in place of the image they were read from, with its name and the digest of its content."""

    name: str
    digest: str


@dataclass(frozen=True)
class NumberedPath(os.PathLike[str]):
    """A file whose image gets a given id instead of the next one, as when a model is refitted."""

    path: str
    id: int

    def __fspath__(self) -> str:
        return self.path


class ImageReader:
    """Reads labeled images for a model, and lists those it leaves out, with the reason.

    Parameters
    ----------
    descriptor : Descriptor, or a sequence of them, for joint features
    known : dict of content digest to id, optional
        Images with these contents are left out as duplicates, and so are repetitions. By default duplicates are
        not looked for.

    Attributes
    ----------
    skipped : list of (name, reason)
        Images left out: unreadable, without descriptors, or duplicates.
    duplicates : list of (name, id)
        The duplicates, with the id of the image that has the same content.
    """

    def __init__(self, descriptor: Descriptor | Sequence[Descriptor], known: dict[str, int] | None = None) -> None:
        self.descriptor = descriptor
        self.known = known
        self.skipped: list[tuple[str, str]] = []
        self.duplicates: list[tuple[str, int]] = []

    def read(
        self,
        images: list[ImageLike],
        labels: list[Any],
        *,
        first_id: int,
        on_error: str,
        n_jobs: Jobs = None,
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Iterator[tuple[Reference, Any]]:
        """Yield usable images with their features; ids count from ``first_id``, or are the images' own, ascending."""
        if on_error not in ("raise", "skip"):
            raise InvalidInputError(f"on_error must be 'raise' or 'skip'; got {on_error!r}.")
        next_id = first_id
        for position, found in enumerate(iter_read(images, self.descriptor, n_jobs=n_jobs, store=store)):
            image = images[position]
            name = name_of(image, position)
            if isinstance(image, NumberedPath):
                if image.id < next_id:
                    raise InvalidInputError(f"ids of images must ascend, from {next_id} on; got {image.id}.")
                next_id = image.id
            if isinstance(image, ReadImage):
                name, found = image.name, (image, image.digest)
            if isinstance(found, ImageReadError):
                if on_error == "raise":
                    raise found
                self.skipped.append((name, str(found)))
            elif not len(found[0]):
                self.skipped.append((name, no_descriptors(name)))
            elif self.known is not None and found[1] in self.known:
                same = self.known[found[1]]
                self.duplicates.append((name, same))
                self.skipped.append((name, f"{name}: the same image is in the model as image {same}."))
            elif next_id >= MAX_IMAGES:
                raise InvalidInputError(f"a model takes at most {MAX_IMAGES} images in its lifetime.")
            else:
                features, digest = found
                if self.known is not None:
                    self.known[digest] = next_id
                yield Reference(next_id, name, labels[position], len(features), digest), features
                next_id += 1
            progress("reading images", position + 1, len(images))

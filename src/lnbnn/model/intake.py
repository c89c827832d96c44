"""What goes into a model: images read, each once; those that cannot be used, and doubles, are noticed and named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.model.answers import no_descriptors
from lnbnn.reading.extraction import ImageLike, Progress, iter_read, name_of, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.references import MAX_IMAGES, Reference

__all__ = ["Intake", "NumberedPath", "ReadImage"]


@dataclass(frozen=True, eq=False)
class ReadImage(ImageFeatures):
    """Features that stand for the image they were read from: with its name, and the digest of its content."""

    name: str
    digest: str


@dataclass(frozen=True)
class NumberedPath(os.PathLike[str]):
    """A file whose image gets a certain id, not the next one: the id it has in the model that is fitted again."""

    path: str
    id: int

    def __fspath__(self) -> str:
        return self.path


class Intake:
    """Reads labeled images for a model, and remembers which of them it left out, and why.

    Parameters
    ----------
    descriptor : Descriptor, or several: the features are then joint
    known : dict of content digest to id, optional
        Images of these contents are left out as doubles, and so is a content that comes twice. By default
        doubles are not looked for.

    Attributes
    ----------
    skipped : list of (name, reason)
        Images left out: unreadable, without descriptors, or doubles.
    doubles : list of (name, id)
        Those whose content an image of the model has, by its id.
    """

    def __init__(self, descriptor: Descriptor | Sequence[Descriptor], known: dict[str, int] | None = None) -> None:
        self.descriptor = descriptor
        self.known = known
        self.skipped: list[tuple[str, str]] = []
        self.doubles: list[tuple[str, int]] = []

    def read(
        self,
        images: list[ImageLike],
        labels: list[Any],
        *,
        first_id: int,
        on_error: str,
        n_jobs: int | None = None,
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Iterator[tuple[Reference, Any]]:
        """The images that can be used, with ids from ``first_id`` on or ascending ones of their own; with features."""
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
                twin = self.known[found[1]]
                self.doubles.append((name, twin))
                self.skipped.append((name, f"{name}: the same image is in the model as image {twin}."))
            elif next_id >= MAX_IMAGES:
                raise InvalidInputError(f"a model takes at most {MAX_IMAGES} images in its life.")
            else:
                features, digest = found
                if self.known is not None:
                    self.known[digest] = next_id
                yield Reference(next_id, name, labels[position], len(features), digest), features
                next_id += 1
            progress("reading images", position + 1, len(images))

"""What a fit will take, before it starts; and the grid that keeps it within a limit of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lnbnn.descriptors import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.model.image_reader import ReadImage
from lnbnn.reading.extraction import ImageLike, iter_read, name_of
from lnbnn.reading.store import FeatureStore

__all__ = ["FitPlan", "plan_fit"]

_N_SAMPLED = 12  # images looked at
_PROGRAM_BYTES = 450 << 20  # libraries, and the images being worked on
_TRAINING_BYTES = 400 << 20  # the sample that lists and codes are made from, and the block being added, at most
_MAX_STEP_PX = 64


@dataclass(frozen=True)
class FitPlan:
    """An estimate from a few of the images.

    Parameters
    ----------
    n_images, n_descriptors : int
        Images, and descriptors to be indexed.
    index_bytes : int
        The index in memory once it is made; about what the model takes on disk.
    memory_bytes : int
        The most memory that the fit holds at once.
    step_px : int or None
        The grid that keeps the limit; None where the descriptor's own does.
    images : list
        The images to fit, those that were looked at read already: a fit of this list reads each file once.
    """

    n_images: int
    n_descriptors: int
    index_bytes: int
    memory_bytes: int
    step_px: int | None = None
    images: list[ImageLike] = field(default_factory=list, compare=False, repr=False)


def plan_fit(
    classifier: Any,
    images: Sequence[ImageLike],
    *,
    max_memory: int | None = None,
    store: FeatureStore | None = None,
) -> FitPlan | None:
    """How many descriptors and bytes ``classifier.fit`` of these images will take; None for methods without an index.

    With ``max_memory`` (bytes), the smallest ``step_px`` that keeps the limit is looked for: a coarser grid thins the
    descriptors evenly. The images looked at are read once per grid tried. The classifier is not changed.
    """
    if "index" not in classifier.param_names():
        return None
    classifier.check_settings()
    descriptor = classifier.make_descriptor()
    plan = _estimate(classifier, descriptor, images, store)
    if max_memory is None or plan.memory_bytes <= max_memory:
        return plan
    if not hasattr(descriptor, "step_px"):
        raise InvalidInputError(
            f"the fit takes about {plan.memory_bytes >> 20} MiB, more than the limit of {max_memory >> 20} MiB, and "
            f"descriptor {descriptor.name!r} has no grid to make coarser; use fewer images."
        )
    # descriptors go with the inverse square of the step: steps below the first cannot keep the limit
    first = max(descriptor.step_px + 1, math.floor(descriptor.step_px * math.sqrt(plan.memory_bytes / max_memory)))
    for step_px in range(min(first, _MAX_STEP_PX), _MAX_STEP_PX + 1):
        coarser = type(descriptor).from_params(descriptor.settings() | {"step_px": step_px})
        plan = replace(_estimate(classifier, coarser, images, store), step_px=step_px)
        if plan.memory_bytes <= max_memory:
            return plan
    raise InvalidInputError(
        f"even every {_MAX_STEP_PX} pixels the fit takes about {plan.memory_bytes >> 20} MiB, more than the limit of "
        f"{max_memory >> 20} MiB; use fewer images."
    )


def _estimate(
    classifier: Any, descriptor: Descriptor, images: Sequence[ImageLike], store: FeatureStore | None
) -> FitPlan:
    places = [int(place) for place in np.linspace(0, len(images) - 1, min(_N_SAMPLED, len(images)))]
    sampled = [images[place] for place in places]
    planned, found = list(images), []
    for place, read in zip(places, iter_read(sampled, descriptor, n_jobs=classifier.n_jobs, store=store), strict=True):
        if not isinstance(read, ImageReadError):
            features, digest = read
            name = name_of(images[place], place)
            image = ReadImage(features.descriptors, features.xy, features.scale, features.size, name, digest)
            planned[place] = image
            found.append(image)
    if not found:
        return FitPlan(len(images), 0, 0, _PROGRAM_BYTES, images=planned)
    n_descriptors = round(np.mean([len(image) for image in found]) * len(images))
    item_bytes, n_dims = found[0].descriptors.dtype.itemsize, found[0].n_dims
    normalization = descriptor.normalization
    if normalization is not None:
        item_bytes, n_dims = 1, min(n_dims, normalization.n_components or n_dims)
    n_dims += (2 if classifier.used_location_weight() else 0) + (1 if classifier.used_scale_weight() else 0)
    width = -(-n_dims // 8) * 8
    bytes_per_row = (
        n_dims * item_bytes + 8 + width // 8 + 8
    )  # the vector, its id, its 4-bit codes, its number in a list
    index_bytes = n_descriptors * bytes_per_row
    training = min(_TRAINING_BYTES, n_descriptors * width * 4)
    return FitPlan(len(images), n_descriptors, index_bytes, index_bytes + training + _PROGRAM_BYTES, images=planned)

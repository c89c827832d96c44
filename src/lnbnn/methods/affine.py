"""NBNN for unequal classes: an affine correction of each class's distance, learned from the training images."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import ModelFormatError
from lnbnn.files.arrays import load_array, save_array
from lnbnn.indexes import Index, LeaveOut
from lnbnn.methods.affine_correction import cross_fit_affine, fit_affine
from lnbnn.methods.base import Progress, no_progress
from lnbnn.methods.matching import MatchingMethod, ids_of_image, image_of_id
from lnbnn.methods.nbnn import ClassMatching
from lnbnn.references import References
from lnbnn.scoring import Updates, nbnn_updates

__all__ = ["AffineCorrection"]


class AffineCorrection(MatchingMethod):
    """NBNN, held as ``inner``, with its distances corrected per class (Behmo et al. 2010).

    The settings are ``regularization`` and ``balance``.

    Attributes
    ----------
    alpha, beta : ndarray of shape (n_classes,)
        The correction of each class; 1 and 0 for a class of one image.
    reference_distances : ndarray of shape (n_images, n_classes)
        The uncorrected mean distances of the labeled images, every class one image short.

    Notes
    -----
    A training image must be left out of its own class. With all other classes whole, its class would look smaller than
    it is to a new image, and the more so the fewer images it has: a correction learned from that goes wrong. So every
    class is one image short while an image is searched for: its own lacks the image itself, each other class one of
    its images in turn. A class of one image stays whole for the images of others.
    """

    is_incremental = False

    def __init__(self, settings: Any, inner: ClassMatching) -> None:
        super().__init__(settings, inner.location_weight, inner.scale_weight)
        self.inner = inner
        self.alpha = self.beta = np.empty(0)
        self.reference_distances = np.empty((0, 0))

    def updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> Updates:
        """What each descriptor adds to the corrected distance: (alpha_c d_c + beta_c) / n."""
        plain = self.inner.updates_of(vectors, leave_out)
        corrected = self.alpha[plain.labels] * plain.values + self.beta[plain.labels]
        return Updates(corrected / max(1, len(plain.values)), plain.labels)

    def class_distances(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> NDArray[np.float32]:
        """The uncorrected squared distance of each query vector to its nearest neighbor in every class."""
        return self.inner.class_distances(vectors, leave_out)

    def add_vectors(self, vectors: NDArray[np.generic], ids: NDArray[np.int64], label: Any) -> None:
        self.inner.add_vectors(vectors, ids, label)

    def reference_vectors(self, place: int) -> NDArray[np.generic]:
        return self.inner.reference_vectors(place)

    def indexes(self) -> list[tuple[Index, int | None]]:
        return self.inner.indexes()

    def finish(self, references: References, progress: Progress) -> None:
        self.references = references
        self.inner.finish(references, progress)
        self.reference_distances = self._one_short_distances(progress)
        self.alpha, self.beta = fit_affine(self.reference_distances, references.places, **self._learning())

    def _one_short_distances(self, progress: Progress) -> NDArray[np.float64]:
        """The mean distance of each labeled image to each class, every class one image short."""
        members: list[list[int]] = [[] for _ in self.references.classes]
        for number, place in enumerate(self.references.places):
            members[place].append(number)
        for images in members:  # in an order of their content, not of their coming
            images.sort(key=lambda number: hashlib.sha256(self.reference_vectors(number).tobytes()).digest())
        place_of = {number: place for images in members for place, number in enumerate(images)}

        def distances(vectors: NDArray[np.generic], own: range) -> NDArray[np.float64]:
            number = int(image_of_id(np.array([own.start]))[0])
            found = []
            for (index, _), images in zip(self.indexes(), members, strict=True):
                left_out = images[place_of[number] % len(images)]
                is_kept = len(images) == 1 and left_out != number
                ids = None if is_kept else ids_of_image(left_out, self.references[left_out].n_descriptors)
                found.append(index.search(vectors, 1, leave_out=ids)[0])
            return nbnn_updates(np.hstack(found)).totals(len(members)) / len(vectors)

        return self.leave_each_out(distances, progress)

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        """Each image corrected by an alpha and beta that were learned without it."""
        found = 0.0 - cross_fit_affine(self.reference_distances, self.references.places, **self._learning())
        return found if rows is None else found[list(rows)]

    def score_scale(self, n_descriptors: int) -> float:
        return 1.0  # the totals are means over the descriptors already

    def _learning(self) -> dict[str, Any]:
        return {"regularization": float(self.settings.regularization), "balance": float(self.settings.balance)}

    def save(self, folder: Path) -> None:
        self.inner.save(folder)
        for name in ("alpha", "beta", "reference_distances"):
            save_array(folder / f"{name}.npy", getattr(self, name))

    def load(self, folder: Path, references: References) -> None:
        self.references = references
        self.inner.load(folder, references)
        n_classes = len(references.classes)
        shapes = {"alpha": (n_classes,), "beta": (n_classes,), "reference_distances": (len(references), n_classes)}
        for name, shape in shapes.items():
            found = np.array(load_array(folder / f"{name}.npy", ndim=len(shape), dtypes=("float64",)))
            if found.shape != shape or not np.isfinite(found).all():
                raise ModelFormatError(
                    f"{folder}: {name}.npy does not fit the classes and images; fit the model again."
                )
            setattr(self, name, found)

    def describe(self) -> str:
        low, high = self.alpha.min(), self.alpha.max()
        return f"{self.inner.describe()}, corrected by alpha {low:.3g} to {high:.3g} and beta"

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes + self.alpha.nbytes + self.beta.nbytes + self.reference_distances.nbytes

"""NBNN for unequal classes: an affine correction of each class's distance, learnt from the training images."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.nbnn import NBNN
from lnbnn.classifiers.neighbors import ids_of_image, image_of_id
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.files.arrays import load_array, save_array
from lnbnn.indexes import LeaveOut
from lnbnn.methods.affine_correction import cross_fit_affine, fit_affine
from lnbnn.reading.extraction import Progress
from lnbnn.scoring import Updates, nbnn_updates
from lnbnn.settings import LARGEST

__all__ = ["AffineNBNN"]


class AffineNBNN(NBNN):
    """NBNN with per-class affine correction (Behmo, Marcombes, Dalalyan and Prinet 2010).

    Parameters
    ----------
    regularization : float, default=0.01
        How strongly alpha is held near 1 and beta near 0; see :func:`lnbnn.methods.affine_correction.fit_affine`.
    balance : float, default=0.5
        In learning, an image of a class of n counts n ** -balance: every image the same at 0, every class at 1.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    n_jobs, random_state
        As of :class:`~lnbnn.classifiers.nbnn.NBNN`.

    Attributes
    ----------
    alpha_, beta_ : ndarray of shape (n_classes,)
        The correction of each class; 1 and 0 for a class of one image.
    reference_distances_ : ndarray of shape (n_images, n_classes)
        The uncorrected mean distances of the labelled images, every class one image short: what alpha and beta are
        learnt from.
    classes_, images_, indexes_, skipped_
        As of :class:`~lnbnn.classifiers.nbnn.NBNN`.

    Notes
    -----
    The total of class c for an image with descriptors d_1 ... d_n is its corrected distance::

        alpha_c * (1 / n) * sum_i ||d_i - NN_c(d_i)||^2 + beta_c

    A class with more descriptors has nearer neighbours whatever the image, and plain NBNN leans to it. The correction
    takes that away. Fitting costs one search of every training image.

    A training image must be left out of its own class. With all other classes whole, its class would look smaller than
    it is to a new image, and the more so the fewer images it has: a correction learnt from that goes wrong. So every
    class is one image short while an image is searched for: its own lacks the image itself, each other class one of
    its images in turn. A class of one image stays whole for the images of others.

    References
    ----------
    Behmo, Marcombes, Dalalyan and Prinet, "Towards Optimal Naive Bayes Nearest Neighbor", ECCV 2010.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> images += [images[0][2:], images[1][:, 2:]]
    >>> AffineNBNN(query_budget=50).fit(images, [0, 1, 0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method = "nbnn-affine"
    is_incremental = False

    def __init__(
        self,
        *,
        regularization: float = 0.01,
        balance: float = 0.5,
        location_weight: float | None = None,
        scale_weight: float | None = None,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 500,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.regularization = regularization
        self.balance = balance
        super().__init__(
            location_weight=location_weight,
            scale_weight=scale_weight,
            descriptor=descriptor,
            descriptor_params=descriptor_params,
            index=index,
            index_params=index_params,
            query_budget=query_budget,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        del self.stop_confidence  # corrected distances are means over all query descriptors: none is stopped early

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        super().check_settings()
        if not _is_number(self.regularization) or not 0.0 < self.regularization <= LARGEST:
            raise InvalidInputError(f"regularization must be a number above 0; got {self.regularization!r}.")
        if not _is_number(self.balance) or not 0.0 <= self.balance <= 1.0:
            raise InvalidInputError(f"balance must be a number from 0 to 1; got {self.balance!r}.")

    def _updates_of(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> Updates:
        """What each descriptor adds to the corrected distance: (alpha_c d_c + beta_c) / n."""
        plain = super()._updates_of(vectors, leave_out)
        corrected = self.alpha_[plain.labels] * plain.values + self.beta_[plain.labels]
        return Updates(corrected / max(1, len(plain.values)), plain.labels)

    def _end_fit(self, progress: Progress) -> None:
        super()._end_fit(progress)
        n_classes = len(self.classes_)
        self.alpha_, self.beta_ = np.ones(n_classes), np.zeros(n_classes)  # until learnt, totals are plain distances
        self.reference_distances_ = self._one_short_distances(progress)
        self.alpha_, self.beta_ = fit_affine(self.reference_distances_, self._labels(), **self._learning())

    def _one_short_distances(self, progress: Progress) -> NDArray[np.float64]:
        """The mean distance of each labelled image to each class, every class one image short."""
        members, place_of = self._members()

        def distances(vectors: NDArray[np.generic], own: range) -> NDArray[np.float64]:
            number = int(image_of_id(np.array([own.start]))[0])
            found = []
            for index, images in zip(self.indexes_, members, strict=True):
                left_out = images[place_of[number] % len(images)]
                is_kept = len(images) == 1 and left_out != number
                ids = None if is_kept else ids_of_image(left_out, self.images_[left_out].n_descriptors)
                found.append(index.search(vectors, 1, leave_out=ids)[0])
            return nbnn_updates(np.hstack(found)).totals(len(members)) / len(vectors)

        return self._leave_each_out(distances, progress)

    def _members(self) -> tuple[list[list[int]], dict[int, int]]:
        """The images of each class in an order of their content, not of their coming, and the place of each in it."""
        members: list[list[int]] = [[] for _ in self.classes_]
        for number, image in enumerate(self.images_):
            members[image.label].append(number)
        for images in members:
            images.sort(key=lambda number: hashlib.sha256(self.reference_vectors(number).tobytes()).digest())
        return members, {number: place for images in members for place, number in enumerate(images)}

    def _held_out_scores(self, progress: Progress) -> NDArray[np.float64]:
        """Each image corrected by an alpha and beta that were learnt without it."""
        return 0.0 - cross_fit_affine(self.reference_distances_, self._labels(), **self._learning())

    def _score_scale(self, n_descriptors: int) -> float:
        return 1.0  # the totals are means over the descriptors already

    def _labels(self) -> NDArray[np.int64]:
        return np.array([image.label for image in self.images_], dtype=np.int64)

    def _learning(self) -> dict[str, Any]:
        return {"regularization": float(self.regularization), "balance": float(self.balance)}

    def _save_parts(self, folder: Path) -> None:
        super()._save_parts(folder)
        for name in ("alpha", "beta", "reference_distances"):
            save_array(folder / f"{name}.npy", getattr(self, f"{name}_"))

    def _load_parts(self, folder: Path) -> None:
        super()._load_parts(folder)
        n_classes = len(self.classes_)
        shapes = {"alpha": (n_classes,), "beta": (n_classes,), "reference_distances": (len(self.images_), n_classes)}
        for name, shape in shapes.items():
            found = np.array(load_array(folder / f"{name}.npy", ndim=len(shape), dtypes=("float64",)))
            if found.shape != shape or not np.isfinite(found).all():
                raise ModelFormatError(
                    f"{folder}: {name}.npy does not fit the classes and images; fit the model again."
                )
            setattr(self, f"{name}_", found)

    def describe(self) -> str:
        """One line that says how the answer is found."""
        low, high = self.alpha_.min(), self.alpha_.max()
        return f"{super().describe()}, corrected by alpha {low:.3g} to {high:.3g} and beta"

    @property
    def nbytes_(self) -> int:
        """Bytes of all indexes and of the correction in memory, memory-mapped parts included."""
        own = self.alpha_.nbytes + self.beta_.nbytes + self.reference_distances_.nbytes
        return super().nbytes_ + own


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)

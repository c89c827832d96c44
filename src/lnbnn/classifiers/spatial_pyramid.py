"""Spatial pyramids of visual words and the histogram intersection kernel: hard, or local soft assignment."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import ImageClassifier
from lnbnn.classifiers.kernel_svm import KernelMachines, fit_one_vs_all
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.files.arrays import load_array, save_array
from lnbnn.methods.pyramid.codebook import Codebook, make_codebook
from lnbnn.methods.pyramid.coding import Codes, hard_codes, local_soft_codes
from lnbnn.methods.pyramid.kernels import intersection_kernel
from lnbnn.methods.pyramid.pooling import NORMS, POOLINGS, level_weights, n_cells, normalize, pool
from lnbnn.reading.extraction import Progress, map_in_order
from lnbnn.settings import LARGEST, check_whole

__all__ = ["HardSpatialPyramid", "SoftSpatialPyramid", "SpatialPyramid"]


class SpatialPyramid(ImageClassifier):
    """Base of the two pyramids: codebook, codes, pyramid, kernel, machines. A subclass writes :meth:`_codes`.

    The training images are put in the order of their contents, so that the order they are given in changes nothing.
    """

    n_words: int
    pooling: str
    n_levels: int
    norm: str
    n_samples: int
    C: float

    @abstractmethod
    def _codes(self, features: ImageFeatures) -> Codes:
        """The codes of an image's descriptors."""

    def pyramid(self, features: ImageFeatures) -> NDArray[np.float32]:
        """The pyramid of an image that has descriptors.

        Returns
        -------
        ndarray of shape (n_cells * n_words,)
        """
        weights = level_weights(int(self.n_levels)) if self.pooling == "average" else None
        pooled = pool(
            self._codes(features), features.xy, pooling=self.pooling, n_levels=int(self.n_levels), weights=weights
        )
        return normalize(pooled, self.norm)

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        super().check_settings()
        check_whole("n_words", self.n_words, 1, 1 << 20)
        check_whole("n_levels", self.n_levels, 1, 8)
        check_whole("n_samples", self.n_samples, 1, 1 << 30)
        for name, choices in (("pooling", POOLINGS), ("norm", NORMS)):
            if getattr(self, name) not in choices:
                raise InvalidInputError(f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}.")
        check_positive("C", self.C)

    def _start_fit(self) -> None:
        self._training: list[tuple[bytes, Any, ImageFeatures]] = []

    def _add_image(self, features: ImageFeatures, number: int, label: Any) -> None:
        digest = hashlib.blake2b(features.descriptors.tobytes())
        digest.update(features.xy.tobytes())
        self._training.append((digest.digest(), label, features))

    def _end_fit(self, progress: Progress) -> None:
        training = sorted(self._training, key=lambda entry: entry[:2])
        del self._training
        images = [features for _, _, features in training]
        labels = np.searchsorted(self.classes_, np.asarray([label for _, label, _ in training]))
        progress("making the codebook", 0, 1)
        self.codebook_ = make_codebook(
            images, int(self.n_words), n_samples=int(self.n_samples), seed=int(self.random_state)
        )
        progress("making the codebook", 1, 1)
        self.pyramids_ = np.empty((len(images), n_cells(int(self.n_levels)) * len(self.codebook_)), np.float32)
        for number, pyramid in enumerate(map_in_order(self.pyramid, images, self.n_jobs)):
            self.pyramids_[number] = pyramid
            progress("coding images", number + 1, len(images))
        kernel = intersection_kernel(self.pyramids_, n_jobs=self.n_jobs)
        self.machines_ = fit_one_vs_all(
            kernel, labels, len(self.classes_), C=float(self.C), n_jobs=self.n_jobs, progress=progress
        )

    def _scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        return self.machines_.scores(intersection_kernel(self.pyramid(features)[None], self.pyramids_)[0])

    def _save_parts(self, folder: Path) -> None:
        save_array(folder / "words.npy", self.codebook_.words.astype(self.codebook_.dtype))
        save_array(folder / "pyramids.npy", self.pyramids_)
        self.machines_.save(folder)

    def _load_parts(self, folder: Path) -> None:
        words = load_array(folder / "words.npy", ndim=2, dtypes=("uint8", "float32"))
        pyramids = load_array(folder / "pyramids.npy", ndim=2, dtypes=("float32",))
        if pyramids.shape != (len(self.images_), n_cells(int(self.n_levels)) * len(words)):
            raise ModelFormatError(f"{folder}: the pyramids do not fit the images and words; fit the model again.")
        self.codebook_ = Codebook(words.astype(np.float32), words.dtype)
        self.pyramids_ = np.asarray(pyramids, np.float32)
        self.machines_ = KernelMachines.load(folder, len(self.classes_), len(self.images_))

    def describe(self) -> str:
        """One line that says how the answer is found."""
        return (
            f"pyramids of {len(self.codebook_)} words in {n_cells(int(self.n_levels))} cells, {self.pooling} pooling, "
            f"one intersection-kernel machine a class over {len(self.pyramids_)} images"
        )

    @property
    def nbytes_(self) -> int:
        """Bytes of codebook, pyramids and machines in memory, memory-mapped ones included."""
        return int(self.codebook_.words.nbytes + self.pyramids_.nbytes + self.machines_.nbytes)


def check_positive(name: str, value: object) -> None:
    """Raise unless a setting is a finite number above 0."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (number and 0 < value <= LARGEST):  # type: ignore[operator]
        raise InvalidInputError(f"{name} must be a number above 0; got {value!r}.")


class HardSpatialPyramid(SpatialPyramid):
    """Spatial pyramid with hard assignment and average pooling (Lazebnik et al. 2006).

    Parameters
    ----------
    n_words : int, default=1024
        Size of the codebook.
    pooling : {"average", "max"}, default="average"
        How the codes in a cell are gathered; "average" weights the levels 1/4, 1/4, 1/2.
    n_levels : int, default=3
        Levels of 1 x 1, 2 x 2, 4 x 4, ... cells.
    norm : {"l1", "l2", "none"}, default="none"
        Scale of a pyramid; average-pooled ones sum to 1 as they are.
    n_samples : int, default=200000
        Training descriptors that the codebook is made from, as many from each image.
    C : float, default=10.0
        Price of a training image on the wrong side of a machine's margin.
    descriptor : str or Descriptor, default="dense-sift"
        A registered name, or a descriptor object.
    descriptor_params : dict, optional
        Settings of the named descriptor.
    n_jobs : int, optional
        Threads; by default all cores. The answers do not depend on it.
    random_state : int, default=0
        Seed of the codebook.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    images_ : list of ReferenceImage
        The labelled images, in the order given.
    codebook_ : Codebook
    pyramids_ : ndarray of shape (n_images, n_cells * n_words)
        Pyramids of the labelled images, in the order of their contents.
    machines_ : KernelMachines
        One machine a class, over ``pyramids_``.
    skipped_ : list of (name, reason)
        Files left out by ``fit(..., on_error="skip")``.

    References
    ----------
    Lazebnik, Schmid and Ponce, "Beyond Bags of Features: Spatial Pyramid Matching for Recognizing Natural Scene
    Categories", CVPR 2006.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = HardSpatialPyramid(n_words=8).fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method = "spm-hard"

    def __init__(
        self,
        n_words: int = 1024,
        *,
        pooling: str = "average",
        n_levels: int = 3,
        norm: str = "none",
        n_samples: int = 200_000,
        C: float = 10.0,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_words = n_words
        self.pooling = pooling
        self.n_levels = n_levels
        self.norm = norm
        self.n_samples = n_samples
        self.C = C
        self.descriptor = descriptor
        self.descriptor_params = descriptor_params
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _codes(self, features: ImageFeatures) -> Codes:
        return hard_codes(features.descriptors, self.codebook_)


class SoftSpatialPyramid(SpatialPyramid):
    """Spatial pyramid with local soft assignment and max pooling (Liu et al. 2011).

    Parameters
    ----------
    n_words : int, default=1024
        Size of the codebook.
    n_nearest_words : int, default=10
        Words that share a descriptor.
    beta : float, default=20.0
        How fast a word's share falls with its squared distance, of unit vectors.
    pooling : {"average", "max"}, default="max"
        How the codes in a cell are gathered; "average" weights the levels 1/4, 1/4, 1/2.
    n_levels : int, default=3
        Levels of 1 x 1, 2 x 2, 4 x 4, ... cells.
    norm : {"l1", "l2", "none"}, default="l2"
        Scale of a pyramid.
    n_samples : int, default=200000
        Training descriptors that the codebook is made from, as many from each image.
    C : float, default=10.0
        Price of a training image on the wrong side of a machine's margin.
    descriptor : str or Descriptor, default="dense-sift"
        A registered name, or a descriptor object.
    descriptor_params : dict, optional
        Settings of the named descriptor.
    n_jobs : int, optional
        Threads; by default all cores. The answers do not depend on it.
    random_state : int, default=0
        Seed of the codebook.

    Attributes
    ----------
    classes_, images_, codebook_, pyramids_, machines_, skipped_
        As those of :class:`HardSpatialPyramid`.

    References
    ----------
    Liu, Wang and Liu, "In Defense of Soft-assignment Coding", ICCV 2011.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> classifier = SoftSpatialPyramid(n_words=8).fit(images, ["rows", "columns"])
    >>> classifier.predict([images[1][4:, 4:]]).tolist()
    ['columns']
    """

    method = "spm-soft"

    def __init__(
        self,
        n_words: int = 1024,
        *,
        n_nearest_words: int = 10,
        beta: float = 20.0,
        pooling: str = "max",
        n_levels: int = 3,
        norm: str = "l2",
        n_samples: int = 200_000,
        C: float = 10.0,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_words = n_words
        self.n_nearest_words = n_nearest_words
        self.beta = beta
        self.pooling = pooling
        self.n_levels = n_levels
        self.norm = norm
        self.n_samples = n_samples
        self.C = C
        self.descriptor = descriptor
        self.descriptor_params = descriptor_params
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_settings(self) -> None:
        super().check_settings()
        check_whole("n_nearest_words", self.n_nearest_words, 1, 1 << 20)
        check_positive("beta", self.beta)

    def _codes(self, features: ImageFeatures) -> Codes:
        return local_soft_codes(
            features.descriptors, self.codebook_, n_nearest=int(self.n_nearest_words), beta=float(self.beta)
        )

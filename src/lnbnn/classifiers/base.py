"""What every classifier of images shares: from images to features, from scores to answers, and to a model folder."""

from __future__ import annotations

import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.classifiers.answers import AnswerMixin
from lnbnn.classifiers.estimator import check_is_fitted
from lnbnn.classifiers.living import LivingMixin
from lnbnn.descriptors import Descriptor, make_descriptor, network_fields, open_descriptor, write_network
from lnbnn.descriptors.normalization import Normalizer
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.model.folder import Snapshot
from lnbnn.model.image_table import StoredImage, read_table, table_fields, write_table
from lnbnn.model.intake import Intake, check_labels
from lnbnn.model.writer import write_model
from lnbnn.reading.extraction import ImageLike, Progress, features_of, map_in_order, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.settings import check_whole, plain
from lnbnn.version import __version__

__all__ = ["ImageClassifier", "ReferenceImage"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReferenceImage:
    """One labelled image of a fitted model.

    ``label`` is the place of its class in ``classes_``; the ``id`` stays with the image for as long as the model lives;
    ``digest`` is the SHA-256 of its content.
    """

    name: str
    label: int
    n_descriptors: int
    id: int
    digest: str | None = None


class ImageClassifier(LivingMixin, AnswerMixin):
    """Base of all classifiers: images in, local descriptors between, scores out.

    A subclass stores its settings in a constructor of its own, as scikit-learn asks, and writes the methods under
    "what a method writes": how it takes in the features of labelled images, and how it scores those of a new one.
    """

    method: ClassVar[str]
    """The registry name."""

    normalizer_: Normalizer | None
    descriptor: str | Descriptor
    descriptor_params: dict[str, Any] | None
    n_jobs: int | None
    random_state: int

    # ---- fitting ------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Sequence[ImageLike],
        y: ArrayLike,
        *,
        on_error: str = "raise",
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Self:
        """Learn from labelled images.

        Parameters
        ----------
        X : sequence of path, image array or ImageFeatures
            One entry an image.
        y : sequence of str or int
            The class of each image.
        on_error : {"raise", "skip"}, default="raise"
            What to do about a file that cannot be read. Skipped ones are listed in ``skipped_``, and so are images
            without descriptors, which are never an error.
        store : FeatureStore, optional
            Where features are looked up and kept.
        progress : callable, optional
            Called as ``progress(stage, done, total)``.
        """
        self.check_settings()
        images = list(X)
        given = check_labels(y, len(images))
        self.__dict__.pop("classes_", None)  # a fit that fails leaves no half-new model
        self.__dict__.pop("temperature_", None)
        self.descriptor_ = self._make_descriptor()
        self.normalizer_ = None
        self._start_fit()
        intake = Intake(self.descriptor_)
        self.skipped_: list[tuple[str, str]] = intake.skipped
        kept: list[StoredImage] = []
        found = intake.read(
            images, given, first_id=0, on_error=on_error, n_jobs=self.n_jobs, store=store, progress=progress
        )
        for image, features in self._normalized(found):
            self._add_image(features, image.id, image.label)
            kept.append(image)
        if not kept:
            raise InvalidInputError(f"none of the {len(intake.skipped)} images can be used: {intake.skipped[0][1]}")
        for label in sorted(set(given) - {image.label for image in kept}):
            _logger.warning("class %r is left out: none of its images can be used", label)
        self._set_images(kept)
        self.next_id_, self.n_changes_, self._snapshot = len(kept), 0, None
        self._end_fit(progress)
        return self

    def _normalized(
        self, found: Iterator[tuple[StoredImage, ImageFeatures]]
    ) -> Iterator[tuple[StoredImage, ImageFeatures]]:
        """The same images with normalised descriptors; where that must be learnt, all of them are read first."""
        normalization = self.descriptor_.normalization
        images = found if normalization is None else list(found)
        if normalization is not None and isinstance(images, list):
            learnt_from = [features for _, features in images if features.descriptors.dtype != np.uint8]
            self.normalizer_ = normalization.learn(learnt_from) if learnt_from else None
        for image, features in images:
            self._feature_kind = (features.n_dims, features.descriptors.dtype.name)
            yield image, self.normalize(features)

    def normalize(self, features: ImageFeatures) -> ImageFeatures:
        """Features as the model compares them: float descriptors by what it learnt about them, others as they are."""
        return features if self.normalizer_ is None else self.normalizer_.apply(features)

    def image_features(self, image: ImageLike, store: FeatureStore | None = None) -> ImageFeatures:
        """The features of an image, read from the store if they are there, as the model compares them."""
        return self.normalize(features_of(image, self.descriptor_, store))

    def _set_images(self, images: list[StoredImage]) -> None:
        self.classes_, places = np.unique(np.asarray([image.label for image in images]), return_inverse=True)
        self.images_ = [
            ReferenceImage(image.name, int(place), image.n_descriptors, image.id, image.digest)
            for image, place in zip(images, places, strict=True)
        ]

    # ---- answering ----------------------------------------------------------------------------------------------

    def _iter_scores(
        self,
        images: Sequence[ImageLike],
        store: FeatureStore | None = None,
        *,
        score: Callable[[ImageFeatures], NDArray[np.float64]] | None = None,
    ) -> Iterator[NDArray[np.float64] | ImageReadError | None]:
        """The scores of each image; None for one without descriptors, the error for one that cannot be read."""
        self.fitted_classes()
        score = self._scores if score is None else score

        def work(image: ImageLike) -> NDArray[np.float64] | ImageReadError | None:
            try:
                features = self.image_features(image, store)
            except ImageReadError as error:
                return error
            return score(features) if len(features) else None

        return map_in_order(work, images, self.n_jobs)

    # ---- what a method writes -----------------------------------------------------------------------------------

    def _start_fit(self) -> None:
        """Make ready for the first image."""

    def _resume_fit(self, keeps_structure: bool = False) -> None:
        """Make ready for changes after a fit; only of methods that are incremental, as the three below.

        With ``keeps_structure`` the indexes are known to bear the changes as they are.
        """

    def _remove_image(self, image: StoredImage) -> None:
        """Forget one labelled image."""

    def _relabel_image(self, image: StoredImage, label: Any) -> None:
        """Give one labelled image another label."""

    def _compact(self, *, full: bool, progress: Progress) -> None:
        """Make what is outgrown anew; with ``full`` also drop what is left of removed images."""

    def inconsistencies(self) -> list[str]:
        """What does not fit together in a model whose files are whole, one line each; every row is looked at."""
        return []

    def absorb(self, other: ImageClassifier, *, progress: Progress = no_progress) -> list[tuple[int, int]]:
        """Take in the images of another model of the same method and settings, under new ids.

        Returns
        -------
        list of (id in the other, id in this one)
            The images left out because their content is here already.
        """
        raise InvalidInputError(f"models of method {self.method!r} cannot be merged; fit one on the images of both.")

    def _min_descriptors(self) -> int:
        """How many descriptors a model must hold for a search."""
        return 1

    @abstractmethod
    def _add_image(self, features: ImageFeatures, number: int, label: Any) -> None:
        """Take in one labelled image that has descriptors; ``number`` is its id."""

    @abstractmethod
    def _end_fit(self, progress: Progress) -> None:
        """All images are in, ``classes_`` and ``images_`` are set: finish."""

    @abstractmethod
    def _scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        """The score of each class for an image that has descriptors, higher is better; called from many threads."""

    @abstractmethod
    def _save_parts(self, folder: Path) -> None:
        """Write what was fitted as files into the folder."""

    @abstractmethod
    def _load_parts(self, folder: Path) -> None:
        """Read what :meth:`_save_parts` wrote; settings, ``classes_`` and ``images_`` are set already."""

    @abstractmethod
    def describe(self) -> str:
        """One line that says how the answer is found."""

    @property
    @abstractmethod
    def nbytes_(self) -> int:
        """Bytes of memory that the fitted parts take, memory-mapped ones included."""

    # ---- storing ------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model as a folder; see ``docs/model-format.md``. Opened again by :func:`lnbnn.load`."""
        images = self.stored_images()
        write_model(path, self._manifest(images), lambda folder: self._save_all(folder, images), overwrite=overwrite)

    def _manifest(self, images: list[StoredImage]) -> dict[str, Any]:
        return {
            "lnbnn_version": __version__,
            "method": self.method,
            "params": self.plain_params(),
            "is_incremental": self.is_incremental,
            "min_descriptors": self._min_descriptors(),
            "features": list(self._feature_kind),
            **table_fields(images),
            "next_id": self.next_id_,
            "n_indexed": sum(image.n_descriptors for image in images),
            "n_changes": self.n_changes_,
            **network_fields(self.descriptor_),
            **self._calibration_fields(),
        }

    def _save_all(self, folder: Path, images: list[StoredImage]) -> None:
        self._save_parts(folder)
        write_table(folder, images)
        write_network(self.descriptor_, folder)
        if self.normalizer_ is not None:
            self.normalizer_.save(folder)

    @classmethod
    def _from_snapshot(cls, snapshot: Snapshot) -> Self:
        """The fitted classifier that :meth:`save` wrote; the manifest's fields are checked as they are taken."""
        folder, manifest = snapshot.folder, snapshot.manifest
        try:
            params = cls._stored_params(manifest)
            descriptor = open_descriptor(manifest, snapshot.data, trust_network=snapshot.trust_network)
            if "network" in manifest:
                params = {**params, "descriptor": descriptor, "descriptor_params": None}
            classifier = cls(**params)
            classifier.check_settings()
            classifier.descriptor_ = classifier._make_descriptor()
            n_dims, dtype = manifest["features"]
            classifier._feature_kind = (int(n_dims), str(dtype))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(f"{folder}: the manifest is damaged ({error}); fit the model again.") from error
        classifier.skipped_, classifier.next_id_, classifier.n_changes_ = [], 0, 0
        warm_up = threading.Thread(target=classifier.descriptor_.warm_up)  # while the files are read
        warm_up.start()
        try:
            classifier.normalizer_ = Normalizer.load(snapshot.data)
            classifier._set_images(read_table(snapshot.data))
            classifier._load_parts(snapshot.data)
            classifier._follow(snapshot)
        finally:
            warm_up.join()
        return classifier

    @classmethod
    def _stored_params(cls, manifest: dict[str, Any]) -> dict[str, Any]:
        """The constructor's keywords that a manifest holds."""
        params: dict[str, Any] = manifest["params"]
        return params

    def _reopen(self, snapshot: Snapshot) -> None:
        n_jobs = self.n_jobs
        self.__dict__ = type(self)._from_snapshot(snapshot).__dict__
        self.n_jobs = n_jobs

    def plain_params(self) -> dict[str, Any]:
        """The settings as plain values; the number of threads is left out, a descriptor object becomes its name."""
        params = plain(self.get_params(deep=False) | {"descriptor": None})
        del params["n_jobs"]
        descriptor = self.descriptor_ if hasattr(self, "descriptor_") else self._make_descriptor()
        params["descriptor"] = descriptor.name
        params["descriptor_params"] = descriptor.settings()
        return params

    # ---- checks -------------------------------------------------------------------------------------------------

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        self._make_descriptor()
        check_whole("random_state", self.random_state, 0, (1 << 32) - 1)

    def _make_descriptor(self) -> Descriptor:
        if isinstance(self.descriptor, Descriptor):
            if self.descriptor_params:
                raise InvalidInputError("descriptor_params goes with a descriptor's name, not with an object.")
            self.descriptor.check_params()
            return self.descriptor
        return make_descriptor(self.descriptor, self.descriptor_params)

    def fitted_classes(self) -> NDArray[np.generic]:
        """``classes_``, or scikit-learn's NotFittedError before :meth:`fit`."""
        check_is_fitted(self, "classes_")
        return self.classes_

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

from lnbnn.classifiers.estimator import check_is_fitted
from lnbnn.classifiers.probabilities import ProbabilityMixin
from lnbnn.descriptors import Descriptor, make_descriptor
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.extraction import ImageLike, Progress, features_of, iter_features, map_in_order, name_of, no_progress
from lnbnn.features import ImageFeatures
from lnbnn.model_folder import write_model
from lnbnn.settings import check_whole, plain
from lnbnn.store import FeatureStore
from lnbnn.version import __version__

__all__ = ["Answer", "ImageClassifier", "ReferenceImage"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReferenceImage:
    """One labelled image of a fitted model; ``label`` is the place of its class in ``classes_``."""

    name: str
    label: int
    n_descriptors: int


@dataclass(frozen=True)
class Answer:
    """What a classifier says of one image.

    ``ranking`` holds (label, score) for every class, best first. An image that cannot be read, or has no descriptors,
    gets no label, an empty ranking and the reason; ``unreadable`` tells the two apart.
    """

    name: str
    label: Any
    ranking: tuple[tuple[Any, float], ...]
    reason: str | None = None
    unreadable: bool = False


class ImageClassifier(ProbabilityMixin):
    """Base of all classifiers: images in, local descriptors between, scores out.

    A subclass stores its settings in a constructor of its own, as scikit-learn asks, and writes the methods under
    "what a method writes": how it takes in the features of labelled images, and how it scores those of a new one.
    """

    method: ClassVar[str]
    """The registry name."""
    is_incremental: ClassVar[bool] = False
    """Whether images can be added to a fitted model, by :meth:`partial_fit`."""

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
        given = _check_labels(y, len(images))
        self.__dict__.pop("classes_", None)  # a fit that fails leaves no half-new model
        self.__dict__.pop("temperature_", None)
        self.descriptor_ = self._make_descriptor()
        self._start_fit()
        kept: list[tuple[str, Any, int]] = []
        for name, label, features in self._usable(images, given, on_error, store, progress):
            self._add_image(features, len(kept), label)
            kept.append((name, label, len(features)))
        self._set_images(given, kept)
        self._end_fit(progress)
        return self

    def partial_fit(
        self,
        X: Sequence[ImageLike],
        y: ArrayLike,
        *,
        on_error: str = "raise",
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Self:
        """Add labelled images, of known or new classes, to a fitted model; parameters as of :meth:`fit`.

        Only methods that learn nothing across images can do this; the others say so. The features are read before
        anything is changed.
        """
        if not self.is_incremental:
            raise InvalidInputError(f"method {self.method!r} learns from all images together; fit it again with all.")
        if not hasattr(self, "classes_"):
            return self.fit(X, y, on_error=on_error, store=store, progress=progress)
        images = list(X)
        given = _check_labels(y, len(images))
        classes = self.classes_.tolist()
        if type(given[0]) is not type(classes[0]):
            raise InvalidInputError(f"labels must be of the kind of {classes[0]!r}, as before; got {given[0]!r}.")
        added = list(self._usable(images, given, on_error, store, progress))
        if not added:
            raise InvalidInputError(f"none of the {len(images)} images can be used: {self.skipped_[0][1]}")
        kept = [(image.name, classes[image.label], image.n_descriptors) for image in self.images_]
        self._resume_fit()
        for name, label, features in added:
            self._add_image(features, len(kept), label)
            kept.append((name, label, len(features)))
        self.__dict__.pop("temperature_", None)
        self._set_images(given, kept)
        self._end_fit(progress)
        return self

    def _usable(
        self,
        images: list[ImageLike],
        given: list[Any],
        on_error: str,
        store: FeatureStore | None,
        progress: Progress,
    ) -> Iterator[tuple[str, Any, ImageFeatures]]:
        """Name, label and features of the images that have descriptors; the others go to ``skipped_``."""
        if on_error not in ("raise", "skip"):
            raise InvalidInputError(f"on_error must be 'raise' or 'skip'; got {on_error!r}.")
        self.skipped_: list[tuple[str, str]] = []
        found = iter_features(images, self.descriptor_, n_jobs=self.n_jobs, store=store)
        for position, features in enumerate(found):
            name = name_of(images[position], position)
            if isinstance(features, ImageReadError):
                if on_error == "raise":
                    raise features
                self.skipped_.append((name, str(features)))
            elif len(features) == 0:
                self.skipped_.append((name, _no_descriptors(name)))
            else:
                yield name, given[position], features
            progress("reading images", position + 1, len(images))

    def _set_images(self, given: list[Any], kept: list[tuple[str, Any, int]]) -> None:
        if not kept:
            raise InvalidInputError(f"none of the {len(self.skipped_)} images can be used: {self.skipped_[0][1]}")
        labels = np.asarray([label for _, label, _ in kept])
        self.classes_, places = np.unique(labels, return_inverse=True)
        for label in sorted(set(given) - set(self.classes_.tolist())):
            _logger.warning("class %r is left out: none of its images can be used", label)
        self.images_ = [ReferenceImage(name, int(place), n) for (name, _, n), place in zip(kept, places, strict=True)]

    # ---- answering ----------------------------------------------------------------------------------------------

    def decision_function(
        self, X: Sequence[ImageLike], *, store: FeatureStore | None = None, progress: Progress = no_progress
    ) -> NDArray[np.float64]:
        """A score for each image and class, higher is better; zeros for an image without descriptors.

        Returns
        -------
        ndarray of shape (n_images, n_classes)
        """
        images = list(X)
        result = np.zeros((len(images), len(self.fitted_classes())))
        for row, found in enumerate(self._iter_scores(images, store)):
            if isinstance(found, ImageReadError):
                raise found
            if found is not None:
                result[row] = found
            progress("classifying", row + 1, len(images))
        return result

    def predict(self, X: Sequence[ImageLike]) -> NDArray[np.generic]:
        """The class with the highest score; of equal ones the first in ``classes_``."""
        return self.fitted_classes()[np.argmax(self.decision_function(X), axis=1)]

    def iter_answers(self, X: Sequence[ImageLike], *, store: FeatureStore | None = None) -> Iterator[Answer]:
        """An :class:`Answer` an image, in order, each as soon as it is known; a bad file does not stop the rest."""
        images = list(X)
        for position, found in enumerate(self._iter_scores(images, store)):
            name = name_of(images[position], position)
            if isinstance(found, ImageReadError):
                yield Answer(name, None, (), str(found), unreadable=True)
            elif found is None:
                yield Answer(name, None, (), _no_descriptors(name))
            else:
                ranking = self.ranking(found)
                yield Answer(name, ranking[0][0], ranking)

    def ranking(self, scores: NDArray[np.float64]) -> tuple[tuple[Any, float], ...]:
        """All classes with their scores, best first; equal ones in the order of ``classes_``."""
        classes = self.fitted_classes().tolist()
        return tuple((classes[place], float(scores[place])) for place in np.argsort(-scores, kind="stable"))

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
                features = features_of(image, self.descriptor_, store)
            except ImageReadError as error:
                return error
            return score(features) if len(features) else None

        return map_in_order(work, images, self.n_jobs)

    # ---- what a method writes -----------------------------------------------------------------------------------

    def _start_fit(self) -> None:
        """Make ready for the first image."""

    def _resume_fit(self) -> None:
        """Make ready for more images after a fit; only of methods that are incremental."""

    @abstractmethod
    def _add_image(self, features: ImageFeatures, number: int, label: Any) -> None:
        """Take in one labelled image that has descriptors; ``number`` counts them from 0."""

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
        classes = self.fitted_classes()
        manifest = {
            "lnbnn_version": __version__,
            "method": self.method,
            "params": self.plain_params(),
            "classes": classes.tolist(),
            "images": [[image.name, image.label, image.n_descriptors] for image in self.images_],
        }
        if hasattr(self, "temperature_"):
            manifest["temperature"] = self.temperature_
        write_model(path, manifest, self._save_parts, overwrite=overwrite)

    @classmethod
    def _from_manifest(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        """The fitted classifier that :meth:`save` wrote; the manifest's fields are checked as they are taken."""
        try:
            classifier = cls(**manifest["params"])
            classifier.check_settings()
            classifier.descriptor_ = classifier._make_descriptor()
            classes = manifest["classes"]
            if not classes or len({type(label) for label in classes}) != 1 or not isinstance(classes[0], str | int):
                raise ValueError("classes must be all strings or all whole numbers")
            classifier.classes_ = np.asarray(classes)
            classifier.images_ = [
                ReferenceImage(str(name), int(label), int(n_descriptors))
                for name, label, n_descriptors in manifest["images"]
            ]
            if not all(0 <= image.label < len(classes) for image in classifier.images_):
                raise ValueError("an image's class is not in the list of classes")
            if "temperature" in manifest:
                classifier.temperature_ = float(manifest["temperature"])
                if not 0.0 < classifier.temperature_ < np.inf:
                    raise ValueError(f"temperature {classifier.temperature_}")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(f"{folder}: the manifest is damaged ({error}); fit the model again.") from error
        classifier.skipped_ = []
        warm_up = threading.Thread(target=classifier.descriptor_.warm_up)  # while the files are read
        warm_up.start()
        try:
            classifier._load_parts(folder)
        finally:
            warm_up.join()
        return classifier

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


def _no_descriptors(name: str) -> str:
    return f"{name}: no descriptors; the picture is flat or too small."


def _check_labels(y: ArrayLike, n_images: int) -> list[Any]:
    labels = np.asarray(y)
    if labels.shape != (n_images,):
        raise InvalidInputError(f"y must hold one label an image ({n_images}); got shape {labels.shape}.")
    if n_images == 0:
        raise InvalidInputError("fit needs at least one image; got none.")
    given: list[Any] = y.tolist() if isinstance(y, np.ndarray) else list(y)  # type: ignore[arg-type]
    all_text = all(isinstance(label, str) for label in given)
    all_whole = all(isinstance(label, int | np.integer) and not isinstance(label, bool) for label in given)
    if not (all_text or all_whole):
        raise InvalidInputError(f"labels must be all strings or all whole numbers; got dtype {labels.dtype}.")
    return [label if all_text else int(label) for label in given]

"""What every classifier of images shares: from images to features, from updates to answers, and to a model folder."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from lnbnn.descriptors import Descriptor, make_descriptor
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.extraction import ImageLike, Progress, features_of, iter_features, map_in_order, name_of, no_progress
from lnbnn.features import ImageFeatures
from lnbnn.indexes import make_index
from lnbnn.location import append_location, check_location_weight
from lnbnn.model_folder import write_model
from lnbnn.scoring import Updates
from lnbnn.settings import check_whole, plain
from lnbnn.store import FeatureStore
from lnbnn.version import __version__

__all__ = ["Answer", "ImageClassifier", "ReferenceImage", "descriptor_ids", "image_of_descriptor"]

_logger = logging.getLogger(__name__)

_DESCRIPTOR_BITS = 20  # of a descriptor's id; the bits above are the number of its image
_MAX_DESCRIPTORS = 1 << _DESCRIPTOR_BITS


def descriptor_ids(image_id: int, n_descriptors: int) -> NDArray[np.int64]:
    """Stable ids of an image's descriptors: the image's number, then the descriptor's own."""
    if n_descriptors > _MAX_DESCRIPTORS:
        raise InvalidInputError(
            f"an image may have at most {_MAX_DESCRIPTORS} descriptors; got {n_descriptors}. Use a coarser grid."
        )
    return (np.int64(image_id) << _DESCRIPTOR_BITS) + np.arange(n_descriptors, dtype=np.int64)


def image_of_descriptor(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The image each descriptor id belongs to; -1 stays -1."""
    return ids >> _DESCRIPTOR_BITS


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


class ImageClassifier(ClassifierMixin, BaseEstimator):
    """Base of the classifiers over nearest-neighbour indexes of local descriptors.

    A subclass gives :meth:`_start_reference`, :meth:`_add_reference` and :meth:`updates`; it stores its settings in a
    constructor of its own, as scikit-learn asks.
    """

    method: ClassVar[str]
    """The registry name."""

    location_weight: float
    descriptor: str | Descriptor
    descriptor_params: dict[str, Any] | None
    index: str
    index_params: dict[str, Any] | None
    query_budget: int | float | None
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
        """Take the descriptors of labelled images into the index.

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
        if on_error not in ("raise", "skip"):
            raise InvalidInputError(f"on_error must be 'raise' or 'skip'; got {on_error!r}.")
        self.__dict__.pop("classes_", None)  # a fit that fails leaves no half-new model
        self.descriptor_ = self._make_descriptor()
        kept: list[tuple[str, Any, int]] = []
        self.skipped_: list[tuple[str, str]] = []
        self._start_reference()
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
                vectors = self._vectors(features)
                self._add_reference(vectors, descriptor_ids(len(kept), len(vectors)), given[position])
                kept.append((name, given[position], len(vectors)))
            progress("reading images", position + 1, len(images))
        self._finish_fit(given, kept, progress)
        return self

    def _finish_fit(self, given: list[Any], kept: list[tuple[str, Any, int]], progress: Progress) -> None:
        if not kept:
            raise InvalidInputError(f"none of the {len(self.skipped_)} images can be used: {self.skipped_[0][1]}")
        self.classes_ = np.unique(np.asarray([label for _, label, _ in kept]))
        for label in sorted(set(given) - set(self.classes_.tolist())):
            _logger.warning("class %r is left out: none of its images can be used", label)
        places = np.searchsorted(self.classes_, np.asarray([label for _, label, _ in kept]))
        self.images_ = [ReferenceImage(name, int(place), n) for (name, _, n), place in zip(kept, places, strict=True)]
        self._set_image_labels()
        self._build_reference(progress)

    def _set_image_labels(self) -> None:
        self._image_labels = np.array([image.label for image in self.images_] + [-1], dtype=np.int64)

    # ---- answering ----------------------------------------------------------------------------------------------

    def totals(self, X: Sequence[ImageLike], *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """One total for each image and class; the lowest of a row is the answer.

        Returns
        -------
        ndarray of shape (n_images, n_classes)
        """
        images = list(X)
        result = np.zeros((len(images), len(self.fitted_classes())))
        for row, found in enumerate(self._iter_totals(images)):
            if isinstance(found, ImageReadError):
                raise found
            result[row] = found[0]
            progress("classifying", row + 1, len(images))
        return result

    def decision_function(self, X: Sequence[ImageLike]) -> NDArray[np.float64]:
        """The evidence for each class: the totals with their sign turned, so that higher is better.

        Returns
        -------
        ndarray of shape (n_images, n_classes)
        """
        return 0.0 - self.totals(X)

    def predict(self, X: Sequence[ImageLike]) -> NDArray[np.generic]:
        """The class with the lowest total; of equal ones the first in ``classes_``."""
        return self.fitted_classes()[np.argmin(self.totals(X), axis=1)]

    def iter_answers(self, X: Sequence[ImageLike], *, store: FeatureStore | None = None) -> Iterator[Answer]:
        """An :class:`Answer` an image, in order, each as soon as it is known; a bad file does not stop the rest."""
        classes = self.fitted_classes().tolist()
        images = list(X)
        for position, found in enumerate(self._iter_totals(images, store)):
            name = name_of(images[position], position)
            if isinstance(found, ImageReadError):
                yield Answer(name, None, (), str(found), unreadable=True)
            elif found[1] == 0:
                yield Answer(name, None, (), _no_descriptors(name))
            else:
                order = np.argsort(found[0], kind="stable")
                ranking = tuple((classes[place], float(0.0 - found[0][place])) for place in order)
                yield Answer(name, ranking[0][0], ranking)

    def _iter_totals(
        self, images: Sequence[ImageLike], store: FeatureStore | None = None
    ) -> Iterator[tuple[NDArray[np.float64], int] | ImageReadError]:
        n_classes = len(self.fitted_classes())

        def work(image: ImageLike) -> tuple[NDArray[np.float64], int] | ImageReadError:
            try:
                features = features_of(image, self.descriptor_, store)
            except ImageReadError as error:
                return error
            return self.updates(features).totals(n_classes), len(features)

        return map_in_order(work, images, self.n_jobs)

    def query_features(self, image: ImageLike) -> ImageFeatures:
        """The features of a query image that are searched for: all of them, or a seeded choice within the budget."""
        self.fitted_classes()
        features = features_of(image, self.descriptor_)
        n = len(features)
        budget = self.query_budget
        if budget is None:
            return features
        n_kept = min(n, int(budget) if isinstance(budget, int | np.integer) else -int(-budget * n // 1))
        if n_kept == n:
            return features
        rows = np.random.default_rng(self.random_state).choice(n, n_kept, replace=False)
        return features.take(np.sort(rows))

    @abstractmethod
    def updates(self, image: ImageLike) -> Updates:
        """What each descriptor of :meth:`query_features` adds to the total of each class."""

    # ---- the reference descriptors: what a subclass keeps them in ------------------------------------------------

    @abstractmethod
    def _start_reference(self) -> None: ...

    @abstractmethod
    def _add_reference(self, vectors: NDArray[np.generic], ids: NDArray[np.int64], label: Any) -> None: ...

    @abstractmethod
    def _build_reference(self, progress: Progress) -> None: ...

    @abstractmethod
    def _save_reference(self, folder: Path) -> None: ...

    @abstractmethod
    def _load_reference(self, folder: Path) -> None: ...

    @abstractmethod
    def describe_index(self) -> str:
        """One line that says how the search is done."""

    @property
    @abstractmethod
    def nbytes_(self) -> int:
        """Bytes of memory the fitted reference takes, memory-mapped parts included."""

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
        write_model(path, manifest, self._save_reference, overwrite=overwrite)

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
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(f"{folder}: the manifest is damaged ({error}); fit the model again.") from error
        classifier.skipped_ = []
        classifier._set_image_labels()
        classifier._load_reference(folder)
        return classifier

    def plain_params(self) -> dict[str, Any]:
        """The settings as plain values; the number of threads is left out, a descriptor object becomes its name."""
        params = plain(self.get_params(deep=False) | {"descriptor": None})
        del params["n_jobs"]
        params["descriptor"] = self.descriptor_.name
        params["descriptor_params"] = self.descriptor_.settings()
        return params

    # ---- checks and small steps ---------------------------------------------------------------------------------

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        self._make_descriptor()
        check_location_weight(self.location_weight)
        budget = self.query_budget
        if budget is not None:
            is_count = isinstance(budget, int | np.integer) and not isinstance(budget, bool) and budget >= 1
            is_share = isinstance(budget, float) and 0.0 < budget <= 1.0
            if not (is_count or is_share):
                raise InvalidInputError(
                    "query_budget must be None (all), a number of descriptors (int, at least 1) or a share "
                    f"(float, above 0 up to 1.0); got {budget!r}."
                )
        check_whole("random_state", self.random_state, 0, (1 << 32) - 1)
        make_index(self.index, self.index_params)

    def _make_descriptor(self) -> Descriptor:
        if isinstance(self.descriptor, Descriptor):
            if self.descriptor_params:
                raise InvalidInputError("descriptor_params goes with a descriptor's name, not with an object.")
            self.descriptor.check_params()
            return self.descriptor
        return make_descriptor(self.descriptor, self.descriptor_params)

    def _vectors(self, features: ImageFeatures) -> NDArray[np.generic]:
        return append_location(features, self.location_weight)

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

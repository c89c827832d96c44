"""scikit-learn's estimator interface in front of a model.

Importing ``sklearn.base`` loads SciPy's statistics and takes longer than opening a model and answering. An estimator
needs little of it; scikit-learn itself is imported when one of its functions needs the rest.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.descriptors import Descriptor, make_descriptor
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.methods.base import Method
from lnbnn.model.answers import Answer, no_descriptors
from lnbnn.model.folder import open_model
from lnbnn.model.model import Model
from lnbnn.model.opening import open_snapshot
from lnbnn.params import check_whole, plain, renamed_params
from lnbnn.reading.extraction import ImageLike, Jobs, Progress, name_of, no_progress
from lnbnn.references import Reference, check_labels

if TYPE_CHECKING:
    from lnbnn.model.references_editor import ReferenceEditor
    from lnbnn.reading.store import FeatureStore

__all__ = ["Classifier", "check_rate", "settings_class"]

_Kind = TypeVar("_Kind")
_MAX_NAMED = 10  # images in one warning


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def settings_class(kind: type[_Kind]) -> type[_Kind]:
    """Give a class a constructor of its annotated settings and those of its bases."""
    made = dataclasses.dataclass(kw_only=True, eq=False, repr=False)(kind)
    if renamed := getattr(made, "params_renamed", None):
        take: Callable[..., None] = made.__init__

        @functools.wraps(take)
        def init(self: _Kind, **params: Any) -> None:
            take(self, **renamed_params(renamed, params))

        made.__init__ = init  # type: ignore[assignment,method-assign]
    return made


@settings_class
class Classifier:
    """Base of all classifiers: the settings, and the model that :meth:`fit` makes.

    A subclass adds its settings as annotated attributes and implements :meth:`make_method`.
    """

    method: ClassVar[str]
    """The registry name."""
    params_before: ClassVar[dict[str, Any]] = {}
    """Values of newer settings for models saved before they existed."""
    params_gone: ClassVar[dict[str, Any]] = {}
    """Removed settings, each with the value that had no effect: models saved with it still open."""
    params_renamed: ClassVar[dict[str, str]] = {}
    """New names of settings by their old ones, which work for one more version."""
    _estimator_type: ClassVar[str] = "classifier"

    # The model is beside the settings, not among them: it shares them, and must not hold itself. An unused model is
    # freed at once, and its files are closed.
    __slots__ = ("__dict__", "__weakref__", "model_")

    descriptor: str | Descriptor = "dense-sift"
    descriptor_params: dict[str, Any] | None = None
    n_jobs: Jobs = None
    random_state: int = 0

    def __post_init__(self) -> None:
        self.model_: Model | None = None

    # ---- settings -----------------------------------------------------------------------------------------------

    def with_model(self, model: Model | None) -> Self:
        """A classifier in front of a model that shares these settings: changing one changes the other."""
        other = object.__new__(type(self))
        other.__dict__, other.model_ = self.__dict__, model
        return other

    def make_method(self, descriptor: Descriptor) -> Method:
        """The method, not yet fitted."""
        raise InvalidInputError(f"{type(self).__name__} has no method of its own.")

    def make_descriptor(self) -> Descriptor:
        """The descriptor in the settings, by name or as an object."""
        if isinstance(self.descriptor, Descriptor):
            if self.descriptor_params:
                raise InvalidInputError("descriptor_params goes with a descriptor's name, not with an object.")
            self.descriptor.check_params()
            return self.descriptor
        return make_descriptor(self.descriptor, self.descriptor_params)

    def check_settings(self) -> None:
        """Raise if a setting is invalid; ``fit`` calls it before it reads any image."""
        self.make_descriptor()
        check_whole("random_state", self.random_state, 0, (1 << 32) - 1)

    def plain_params(self, descriptor: Descriptor | None = None) -> dict[str, Any]:
        """The settings as plain values; the number of threads is left out, a descriptor object becomes its name."""
        params = plain(self.get_params(deep=False) | {"descriptor": None})
        del params["n_jobs"]
        if descriptor is None:
            descriptor = self.make_descriptor() if self.model_ is None else self.model_.descriptor
        return {**params, "descriptor": descriptor.name, "descriptor_params": descriptor.settings()}

    @classmethod
    def param_names(cls) -> list[str]:
        """Names of the settings, sorted."""
        return sorted(field.name for field in dataclasses.fields(cls) if field.init)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name."""
        return {name: getattr(self, name) for name in self.param_names()}

    def set_params(self, **params: Any) -> Self:
        """Change settings by name."""
        for name, value in renamed_params(self.params_renamed, params).items():
            if name not in self.param_names():
                raise InvalidInputError(
                    f"Invalid parameter {name!r} for {type(self).__name__}; its parameters: "
                    f"{', '.join(self.param_names())}."
                )
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator, ClassifierMixin

        return type("Tags", (ClassifierMixin, BaseEstimator), {})().__sklearn_tags__()

    def __sklearn_is_fitted__(self) -> bool:
        return self.model_ is not None

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in sorted(dataclasses.fields(self), key=lambda field: field.name)
            if field.init and getattr(self, field.name) is not field.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

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
        """Fit the model to labeled images; any previous fit is discarded.

        Parameters
        ----------
        X : sequence of path, image array or ImageFeatures
            One entry per image.
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
        labels = check_labels(y, len(images))
        self.model_ = None  # a failed fit leaves no model
        settings = self.with_model(None)
        self.model_ = Model.fit(settings, images, labels, on_error=on_error, store=store, progress=progress)
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
        """Add labeled images, of known or new classes, to a fitted model; parameters as in :meth:`fit`.

        The images get new ids, at the end of ``images_``. Duplicates of images in the model are left out and listed in
        ``skipped_``. The features are read before anything is changed.
        """
        if self.model_ is None:
            return self.fit(X, y, on_error=on_error, store=store, progress=progress)

        def add(editor: ReferenceEditor) -> None:
            added = editor.add(X, y, on_error=on_error, n_jobs=self.n_jobs, store=store, progress=progress)
            if not added and len(editor.duplicates) < len(editor.skipped):
                raise InvalidInputError(f"none of the {len(X)} images can be used: {editor.skipped[0][1]}")
            self.fitted().skipped = editor.skipped

        return self._edit(add, progress)

    def remove(self, ids: int | Iterable[int], *, progress: Progress = no_progress) -> Self:
        """Remove labeled images by their ids (those of ``images_``); a class disappears with its last image."""
        return self._edit(lambda editor: editor.remove(ids), progress)

    def relabel(self, ids: int | Iterable[int], label: Any, *, progress: Progress = no_progress) -> Self:
        """Give labeled images another label, known or new, by their ids."""
        return self._edit(lambda editor: editor.relabel(ids, label), progress)

    def _edit(self, change: Callable[[ReferenceEditor], object], progress: Progress) -> Self:
        from lnbnn.model.references_editor import ReferenceEditor  # an answer needs none

        model = self.fitted()
        model.check_incremental()
        editor = ReferenceEditor(
            model.references,
            model.next_id,
            min_descriptors=model.min_descriptors,
            descriptor=lambda: model.reads_with,
        )
        change(editor)
        if editor.n_changes:
            model.apply(editor.change(), progress=progress)
            model.next_id = max(model.next_id, editor.next_id)
        return self

    # ---- what was fitted ----------------------------------------------------------------------------------------

    def fitted(self) -> Model:
        """The model, or scikit-learn's NotFittedError before :meth:`fit`."""
        if self.model_ is None:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before "
                "using this estimator."
            )
        return self.model_

    def fitted_classes(self) -> NDArray[np.generic]:
        """``classes_``, or scikit-learn's NotFittedError before :meth:`fit`."""
        return self.fitted().references.classes

    @property
    def classes_(self) -> NDArray[np.generic]:
        """The labels, sorted."""
        return self._own("classes_").references.classes

    @property
    def images_(self) -> list[Reference]:
        """The labeled images, ids ascending."""
        return list(self._own("images_").references)

    @property
    def places_(self) -> NDArray[np.int64]:
        """The place of each image's label in ``classes_``."""
        return self._own("places_").references.places

    @property
    def skipped_(self) -> list[tuple[str, str]]:
        """(name, reason) of each image left out by the last fit or change."""
        return self._own("skipped_").skipped

    @property
    def descriptor_(self) -> Descriptor:
        """The descriptor in use."""
        return self._own("descriptor_").descriptor

    @property
    def method_(self) -> Method:
        """The fitted method."""
        return self._own("method_").method

    def _own(self, name: str) -> Model:
        if self.model_ is None:  # as of an attribute that is not there: scikit-learn looks for them
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r} before fit")
        return self.model_

    def image_features(self, image: ImageLike, store: FeatureStore | None = None) -> ImageFeatures:
        """The features of an image as the model compares them, from the store if they are there."""
        return self.fitted().features(image, store)

    def describe(self) -> str:
        """A one-line description of the method."""
        return self.fitted().describe()

    @property
    def nbytes_(self) -> int:
        """Bytes of memory that the model takes, memory-mapped parts included."""
        return self._own("nbytes_").nbytes

    # ---- answering ----------------------------------------------------------------------------------------------

    def decision_function(
        self, X: Sequence[ImageLike], *, store: FeatureStore | None = None, progress: Progress = no_progress
    ) -> NDArray[np.float64]:
        """Scores of each image for each class; higher is better, zeros for an image without descriptors.

        Returns
        -------
        ndarray of shape (n_images, n_classes)
        """
        return self._rows(X, 0.0, self.fitted().iter_scores(list(X), store), progress)[0]

    def predict_proba(self, X: Sequence[ImageLike], *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """A probability for each image and class; all equal for an image without descriptors.

        Returns
        -------
        ndarray of shape (n_images, n_classes)
            Columns in the order of ``classes_``; each row sums to 1.
        """
        model = self.fitted()
        if not model.is_calibrated:
            self._not_yet("is not calibrated yet; call calibrate() before predict_proba.")
        found = (
            np.exp(row[-1]) if isinstance(row, np.ndarray) else row
            for row in model.iter_scores(list(X), log_proba=True)
        )
        return self._rows(X, 1.0 / len(model.references.classes), found, progress)[0]

    def _rows(
        self,
        X: Sequence[ImageLike],
        empty: float,
        found: Iterable[NDArray[np.float64] | ImageReadError | None],
        progress: Progress,
    ) -> tuple[NDArray[np.float64], list[int]]:
        """What was found for each image, ``empty`` for one without descriptors; and which those are."""
        result = np.full((len(X), len(self.fitted_classes())), empty)
        without = []
        for row, entry in enumerate(found):
            if isinstance(entry, ImageReadError):
                raise entry
            if entry is None:
                without.append(row)
            else:
                result[row] = entry
            progress("classifying", row + 1, len(X))
        return result, without

    def predict(self, X: Sequence[ImageLike], *, reject: float | None = None) -> NDArray[np.generic]:
        """The class with the highest score; on ties the first in ``classes_``.

        An image without descriptors (flat, or too small) gets None, with a ``UserWarning``. The array then has dtype
        object, and otherwise that of ``classes_``. For :meth:`score`, None is a wrong label.

        Parameters
        ----------
        reject : float, optional
            The share of images of unknown classes to accept, at most; rejected images get None, in an array of objects.
            The model must be calibrated for it: ``calibrate(unknown=True)``.
        """
        check_rate(reject)
        images = list(X)
        scores, without = self._rows(images, 0.0, self.fitted().iter_scores(images), no_progress)
        labels = self.fitted_classes()[np.argmax(scores, axis=1)]
        if reject is not None or without:
            labels = labels.astype(object)
        if reject is not None:
            labels[self.false_accept_rates(scores) > reject] = None
        if without:
            labels[without] = None
            names = ", ".join(name_of(images[row], row) for row in without[:_MAX_NAMED])
            more = f" and {len(without) - _MAX_NAMED} more" if len(without) > _MAX_NAMED else ""
            warnings.warn(
                f"{len(without)} of {len(images)} images get no label (None): {no_descriptors(names + more)}",
                stacklevel=2,
            )
        return labels

    def iter_answers(
        self, X: Sequence[ImageLike], *, store: FeatureStore | None = None, reject: float | None = None
    ) -> Iterator[Answer]:
        """Yield an :class:`~lnbnn.model.answers.Answer` per image, in order, as soon as it is ready.

        A bad file does not stop the others. ``reject`` is as in :meth:`predict`.
        """
        check_rate(reject)
        model = self.fitted()
        if reject is not None and not model.can_reject:
            self._not_yet(_CANNOT_REJECT)
        return model.iter_answers(list(X), store=store, reject=reject)

    def ranking(self, scores: NDArray[np.float64]) -> tuple[tuple[Any, float], ...]:
        """All classes with their scores, best first; ties in the order of ``classes_``."""
        classes = self.fitted_classes().tolist()
        return tuple((classes[place], float(scores[place])) for place in np.argsort(-scores, kind="stable"))

    def score(self, X: Sequence[Any], y: ArrayLike) -> float:
        """The accuracy on these images."""
        return float(np.mean(np.asarray(self.predict(X)) == np.asarray(y)))

    # ---- calibration --------------------------------------------------------------------------------------------

    def calibrate(
        self, held_out: ArrayLike | None = None, *, unknown: bool = False, progress: Progress = no_progress
    ) -> Self:
        """Fit the temperature of :meth:`predict_proba` on leave-one-out scores of the labeled images.

        The probability of class c is ``softmax(score / (scale * T))``: the scale depends on the image, the temperature
        T on the model, so the ranking is that of the scores.

        Parameters
        ----------
        held_out : array of shape (n_images, n_classes), optional
            Scores of ``images_`` by models that had not seen them, as
            :func:`~lnbnn.classifiers.cross_fitting.cross_fitted_scores` gives. By default the method's own
            leave-one-out scores. Images that are alone in their class are ignored.
        unknown : bool, default=False
            Also score each image with its whole class left out, which :meth:`predict` needs for ``reject``. It takes as
            long again, and needs at least three classes.
        """
        self.fitted().calibrate(held_out, unknown=unknown, progress=progress)
        return self

    def held_out_scores(self, progress: Progress = no_progress) -> NDArray[np.float64] | None:
        """Leave-one-out scores of ``images_``, or None if the method cannot compute them."""
        return self.fitted().held_out_scores(progress)

    def false_accept_rates(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest rate at which ``predict(..., reject=rate)`` would accept images with these scores.

        Parameters
        ----------
        scores : ndarray of shape (n_images, n_classes), of :meth:`decision_function`
        """
        model = self.fitted()
        if not model.can_reject:
            self._not_yet(_CANNOT_REJECT)
        return model.false_accept_rates(scores)

    def _not_yet(self, what: str) -> None:
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"This {type(self).__name__} {what}")

    # ---- the folder ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model as a folder; :func:`lnbnn.load` opens it. See ``docs/model-format.md``."""
        self.fitted().save(path, overwrite=overwrite)

    def refresh(self, *, progress: Progress = no_progress) -> bool:
        """Update the model from the folder it was opened from; returns whether anything had changed.

        Do not call it while other threads use the model. A model changed in memory cannot be updated.
        """
        model = self.fitted()
        if model.snapshot is None:
            raise InvalidInputError("only a model opened from a folder, and not changed since, can be refreshed.")
        snapshot = open_model(model.snapshot.folder, trust_network=model.snapshot.trust_network)
        if snapshot.manifest["generation"] == model.snapshot.manifest["generation"]:
            return False
        if snapshot.manifest["data"] == model.snapshot.manifest["data"]:
            model.follow(snapshot, progress)
            return True
        new = open_snapshot(snapshot)
        new.settings.n_jobs = self.n_jobs
        self.__dict__, self.model_ = new.settings.__dict__, new
        return True


_CANNOT_REJECT = "cannot reject yet; call calibrate(unknown=True) first."


def check_rate(rate: float | None) -> None:
    """Raise unless a rejection rate is a number between 0 and 1."""
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.0 < rate < 1.0):
        raise InvalidInputError(f"reject must be the share of unknown images to accept, between 0 and 1; got {rate!r}.")

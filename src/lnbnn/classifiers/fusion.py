"""Late fusion: the calibrated log-probabilities of several methods, added with weights learnt on held-out images."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from lnbnn.classifiers import load
from lnbnn.classifiers.base import ImageClassifier, ReferenceImage
from lnbnn.classifiers.probabilities import ProbabilityMixin, can_be_held_out, cross_fitted_scores
from lnbnn.descriptors import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.model.folder import Snapshot, read_manifest
from lnbnn.model.writer import write_model
from lnbnn.reading.extraction import ImageLike, Progress, features_of, map_in_order, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.settings import check_whole, plain
from lnbnn.trust.calibration import fit_fusion_weights, fuse, log_probabilities
from lnbnn.version import __version__

__all__ = ["LateFusion"]


class LateFusion(ImageClassifier):
    """Late fusion of the calibrated scores of two or more methods.

    Parameters
    ----------
    estimators : list of (str, ImageClassifier)
        The methods with a name each, as scikit-learn's ``VotingClassifier`` takes them. ``fit`` works on clones.
    n_folds : int, default=5
        Parts for the methods that cannot leave one labelled image out; they are fitted once more for each.
    n_jobs : int, optional
        Threads of answering; by default all cores. The answers do not depend on it.

    Attributes
    ----------
    estimators_ : list of ImageClassifier
        The fitted and calibrated methods, in the order of ``estimators``.
    weights_ : ndarray of shape (n_methods,)
    classes_, images_, skipped_, descriptor_
        Those of the first method.

    Notes
    -----
    With p_m the calibrated probabilities of method m::

        log p(c | image) = log softmax_c( sum_m w_m log p_m(c | image) )

    The weights w >= 0 minimise the negative log-likelihood of the labelled images, each scored by every method as if
    it was not known. The fused probabilities need no temperature of their own.

    Examples
    --------
    >>> import numpy as np
    >>> from lnbnn import NBNN, LocalNBNN
    >>> rows, columns = np.mgrid[0:64, 0:64]
    >>> images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    >>> images += [images[0][2:], images[1][:, 2:]]
    >>> fusion = LateFusion([("a", NBNN(index="exact", query_budget=50)), ("b", LocalNBNN(query_budget=50))])
    >>> fusion.fit(images, [0, 1, 0, 1]).predict([images[1][4:, 4:]]).tolist()
    [1]
    """

    method = "fusion"

    def __init__(
        self, estimators: list[tuple[str, ImageClassifier]], *, n_folds: int = 5, n_jobs: int | None = None
    ) -> None:
        self.estimators = estimators
        self.n_folds = n_folds
        self.n_jobs = n_jobs

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings; with ``deep`` also the methods by name, and their settings as ``name__setting``."""
        params: dict[str, Any] = super().get_params(deep=False)
        for name, member in self.estimators if deep else []:
            params[name] = member
            params |= {f"{name}__{key}": value for key, value in member.get_params(deep=True).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change settings: those of the methods as ``name__setting``, a whole method by its name."""
        replaced = {name: params.pop(name) for name, _ in self.estimators if name in params}
        if replaced:
            self.estimators = [(name, replaced.get(name, member)) for name, member in self.estimators]
        super().set_params(**params)
        return self

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
        """Fit and calibrate every method on labelled images, then learn the weights; parameters as of the methods."""
        self.check_settings()
        images = list(X)
        self.__dict__.pop("classes_", None)
        members = [clone(member) for _, member in self.estimators]
        held_out = []
        with _shared_features(members, store) as shared:
            for member in members:
                member.fit(images, y, on_error=on_error, store=shared, progress=progress)
                scores = member._held_out_scores(progress)
                if scores is None:
                    labels = list(y)  # type: ignore[arg-type]
                    scores = cross_fitted_scores(
                        member, images, labels, n_folds=self.n_folds, store=shared, progress=progress
                    )
                held_out.append(scores)
                member.calibrate(scores)
        self._set_members(members)
        self.weights_ = _learn_weights(members, held_out)
        return self

    @classmethod
    def of_fitted(
        cls,
        estimators: list[tuple[str, ImageClassifier]],
        *,
        held_out: dict[str, NDArray[np.float64]] | None = None,
        progress: Progress = no_progress,
        n_jobs: int | None = None,
    ) -> Self:
        """Fuse methods that are fitted already, on the same images; they are calibrated, and not cloned.

        Parameters
        ----------
        held_out : dict of name to ndarray, optional
            Scores of a method's ``images_`` by models that had not seen them; needed for a method that cannot leave
            one image out (:func:`~lnbnn.classifiers.probabilities.cross_fitted_scores` makes them).
        """
        fusion = cls(estimators, n_jobs=n_jobs)
        fusion.check_settings()
        scores = []
        for name, member in estimators:
            member.fitted_classes()
            given = (held_out or {}).get(name)
            found = member._held_out_scores(progress) if given is None else given
            member.calibrate(found, progress=progress)
            scores.append(np.asarray(found))
        fusion._set_members([member for _, member in estimators])
        fusion.weights_ = _learn_weights(fusion.estimators_, scores)
        return fusion

    def _set_members(self, members: list[ImageClassifier]) -> None:
        first = members[0]
        for member in members[1:]:
            if member.classes_.tolist() != first.classes_.tolist():
                raise InvalidInputError(
                    f"methods to fuse must know the same classes; {first.method!r} knows {len(first.classes_)}, "
                    f"{member.method!r} {len(member.classes_)}."
                )
        self.estimators_ = members
        self.descriptor_ = first.descriptor_
        self.classes_, self.images_, self.skipped_ = first.classes_, first.images_, first.skipped_

    # ---- answering ----------------------------------------------------------------------------------------------

    def _iter_scores(
        self,
        images: Sequence[ImageLike],
        store: FeatureStore | None = None,
        *,
        score: Callable[[ImageFeatures], NDArray[np.float64]] | None = None,
    ) -> Iterator[NDArray[np.float64] | ImageReadError | None]:
        """The fused log-probabilities of each image; methods with the same descriptor share its features."""
        n_classes = len(self.fitted_classes())
        keys = [_descriptor_key(member.descriptor_) for member in self.estimators_]

        def work(image: ImageLike) -> NDArray[np.float64] | ImageReadError | None:
            features: dict[str, ImageFeatures] = {}
            try:
                for key, member in zip(keys, self.estimators_, strict=True):
                    if key not in features:
                        features[key] = features_of(image, member.descriptor_, store)
            except ImageReadError as error:
                return error
            if not any(map(len, features.values())):
                return None
            found = [
                member._log_proba(member.normalize(features[key]))
                if len(features[key])
                else np.full(n_classes, -np.log(n_classes))
                for key, member in zip(keys, self.estimators_, strict=True)
            ]
            return fuse(found, self.weights_)

        return map_in_order(work, images, self.n_jobs)

    def shares(self, image: ImageLike) -> list[tuple[float, ImageClassifier]]:
        """The methods with what one unit of each's scores for this image adds to the fused log-probabilities."""
        self.fitted_classes()
        result: list[tuple[float, ImageClassifier]] = []
        for weight, member in zip(self.weights_, self.estimators_, strict=True):
            scale = member._score_scale(len(member.image_features(image)))
            result.append((float(weight / (max(scale, 1.0) * member.temperature_)), member))
        return result

    def calibrate(
        self, held_out: ArrayLike | None = None, *, unknown: bool = False, progress: Progress = no_progress
    ) -> Self:
        """Nothing to do but for ``unknown``: ``fit`` has calibrated the methods and their sum."""
        self.fitted_classes()
        if unknown:
            self._calibrate_unknown(progress)
        return self

    def _held_out_scores(self, progress: Progress) -> NDArray[np.float64] | None:
        """The fused log-probabilities of each image as if it was not known, where every method can tell."""
        found = [member._held_out_scores(progress) for member in self.estimators_]
        return None if any(scores is None for scores in found) else self.fused_scores(found)  # type: ignore[arg-type]

    def _unknown_scores(self, progress: Progress) -> NDArray[np.float64] | None:
        found = [member._unknown_scores(progress) for member in self.estimators_]
        if any(scores is None for scores in found):
            return None
        result = self.fused_scores(found)  # type: ignore[arg-type]
        result[np.arange(len(result)), [image.label for image in self.images_]] = -np.inf
        return result

    def fused_scores(self, found: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The fused log-probabilities of ``images_``, from scores of each method's own ``images_``."""
        n_classes = len(self.classes_)
        keys = _numbered(self.images_)
        log_probas, weights = [], []
        for weight, member, scores in zip(self.weights_, self.estimators_, found, strict=True):
            if weight > 0.0:
                places = _numbered(member.images_)
                known = log_probabilities(scores / _scales(member)[:, None], member.temperature_)
                unsure = np.full(n_classes, -np.log(n_classes))
                log_probas.append(np.stack([known[places[key]] if key in places else unsure for key in keys]))
                weights.append(weight)
        return fuse(log_probas, np.array(weights))

    def inconsistencies(self) -> list[str]:
        """What does not fit together in the models of the methods, one line each."""
        return [text for member in self.estimators_ for text in member.inconsistencies()]

    def _is_calibrated(self) -> bool:
        return True

    def _check_calibrated(self) -> None:
        """The fused scores are log-probabilities from the start."""

    def describe(self) -> str:
        """One line that says how the answer is found."""
        self.fitted_classes()
        named = [f"{member.method} on {member.descriptor_.name}" for member in self.estimators_]
        parts = [f"{weight:.3g} x {name}" for weight, name in zip(self.weights_, named, strict=True)]
        return f"log-probabilities of {' + '.join(parts)}"

    @property
    def nbytes_(self) -> int:
        """Bytes of all methods in memory, memory-mapped parts included."""
        return sum(member.nbytes_ for member in self.estimators_)

    # ---- storing ------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a model folder with one model folder a method in it. Opened again by :func:`lnbnn.load`."""
        classes = self.fitted_classes()
        names = [name for name, _ in self.estimators]
        manifest = {
            "lnbnn_version": __version__,
            "method": self.method,
            "params": self.plain_params(),
            "is_incremental": False,
            "classes": classes.tolist(),
            "members": names,
            "weights": self.weights_.tolist(),
            "n_changes": 0,
            **self._calibration_fields(),
        }

        def write_members(folder: Path) -> None:
            for place, member in enumerate(self.estimators_):
                member.save(folder / f"member{place}")

        write_model(path, manifest, write_members, overwrite=overwrite)

    @classmethod
    def _from_snapshot(cls, snapshot: Snapshot) -> Self:
        folder, manifest = snapshot.data, snapshot.manifest
        try:
            names = [str(name) for name in manifest["members"]]
            weights = np.array(manifest["weights"], dtype=np.float64)
            params = dict(manifest["params"])
            if weights.shape != (len(names),) or not np.isfinite(weights).all() or weights.min() < 0.0:
                raise ValueError(f"weights {manifest['weights']}")
            members = [_load_member(folder / f"member{place}", snapshot) for place in range(len(names))]
            fusion = cls(list(zip(names, members, strict=True)), **params)
            fusion.check_settings()
            for member in members:
                ProbabilityMixin._check_calibrated(member)
            fusion._set_members(members)
        except ModelFormatError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(f"{folder}: the manifest is damaged ({error}); fit the model again.") from error
        fusion.weights_ = weights
        fusion._set_calibration({"n_changes": 0, **manifest})
        fusion._snapshot = snapshot
        return fusion

    def plain_params(self) -> dict[str, Any]:
        """The settings as plain values, without the methods and the number of threads."""
        return {"n_folds": plain(self.n_folds)}

    # ---- checks -------------------------------------------------------------------------------------------------

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        check_whole("n_folds", self.n_folds, 2, 1 << 30)
        given = self.estimators
        if not isinstance(given, list) or len(given) < 2 or any(len(pair) != 2 for pair in given):
            raise InvalidInputError("estimators must be a list of at least two (name, classifier) pairs.")
        names = [str(name) for name, _ in given]
        if len({*names, *self._get_param_names()}) < len(names) + len(self._get_param_names()) or "__" in "".join(
            names
        ):
            raise InvalidInputError(f"names of estimators must differ, have no '__' and be no setting; got {names}.")
        for name, member in given:
            if not isinstance(member, ImageClassifier) or isinstance(member, LateFusion):
                raise InvalidInputError(f"{name!r} must be one of this package's methods; got {type(member).__name__}.")
            member.check_settings()


def _load_member(folder: Path, snapshot: Snapshot) -> ImageClassifier:
    method = read_manifest(folder).get("method")
    if method == LateFusion.method:  # refused before it is opened: it could hold others, and so on
        raise ModelFormatError(f"{folder}: a part of a fusion must be one method; got {method!r}; fit the model again.")
    return load(folder, trust_network=snapshot.trust_network)


def _descriptor_key(descriptor: Descriptor) -> str:
    """The same for descriptors that give the same features."""
    return repr((descriptor.name, descriptor.settings()))


@contextmanager
def _shared_features(members: Sequence[ImageClassifier], store: FeatureStore | None) -> Iterator[FeatureStore | None]:
    """The store; where there is none and methods have a descriptor in common, one that is deleted afterwards."""
    keys = {_descriptor_key(member._make_descriptor()) for member in members}
    if store is not None or len(keys) == len(members):
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="lnbnn-") as folder:
        yield FeatureStore(folder)


def _learn_weights(members: Sequence[ImageClassifier], held_out: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Weights from the held-out scores of the images that every method was fitted on."""
    rows = [_numbered(member.images_) for member in members]
    common = [key for key in rows[0] if all(key in found for found in rows[1:])]
    labels = np.array([members[0].images_[rows[0][key]].label for key in common], dtype=np.int64)
    for member, found in zip(members, rows, strict=True):
        if not common or [member.images_[found[key]].label for key in common] != labels.tolist():
            raise InvalidInputError("methods to fuse must be fitted on the same labelled images.")
    used = can_be_held_out(labels)
    log_probas = []
    for member, found, scores in zip(members, rows, held_out, strict=True):
        places = [found[key] for key, use in zip(common, used, strict=True) if use]
        log_probas.append(log_probabilities((scores / _scales(member)[:, None])[places], member.temperature_))
    return fit_fusion_weights(log_probas, labels[used])


def _scales(member: ImageClassifier) -> NDArray[np.float64]:
    """What the scores of each of a method's images are divided by."""
    return np.array([member._score_scale(image.n_descriptors) for image in member.images_])


def _numbered(images: Sequence[ReferenceImage]) -> dict[tuple[str, int], int]:
    """The row of each image, under its name and how often the name came before."""
    seen: dict[str, int] = {}
    result = {}
    for row, image in enumerate(images):
        number = seen[image.name] = seen.get(image.name, -1) + 1
        result[image.name, number] = row
    return result

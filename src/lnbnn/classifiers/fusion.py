"""Late fusion: the calibrated log-probabilities of several methods, added with weights learned on held-out images."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.classifiers.cross_fitting import cross_fitted_scores
from lnbnn.cluster.tasks import RayCluster
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.methods import FUSION
from lnbnn.methods.base import Progress, no_progress
from lnbnn.model.fusion import FusionModel, check_alike
from lnbnn.model.model import Model
from lnbnn.params import check_whole, plain
from lnbnn.reading.extraction import ImageLike, Jobs
from lnbnn.reading.store import FeatureStore
from lnbnn.references import check_labels

__all__ = ["LateFusion"]


@settings_class
class LateFusion(Classifier):
    """Late fusion of the calibrated scores of two or more methods.

    Parameters
    ----------
    estimators : list of (str, Classifier)
        The methods and their names, as for scikit-learn's ``VotingClassifier``. ``fit`` works on clones.
    n_folds : int, default=5
        Folds for the methods that cannot leave one labeled image out; they are fitted once more per fold.
    n_jobs : int, optional
        Threads; by default all cores. The answers do not depend on it.

    Attributes
    ----------
    estimators_ : list of Classifier
        The fitted and calibrated methods, in the order of ``estimators``.
    weights_ : ndarray of shape (n_methods,)
    classes_, images_, skipped_, descriptor_
        Those of the first method.

    Notes
    -----
    With p_m the calibrated probabilities of method m::

        log p(c | image) = log softmax_c( sum_m w_m log p_m(c | image) )

    The weights w >= 0 minimize the negative log-likelihood of the labeled images, each scored by every method without
    itself. The fused probabilities need no temperature of their own.

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

    method: ClassVar[str] = FUSION
    descriptor: ClassVar[None] = None  # type: ignore[assignment,misc]  # each of its methods has one
    descriptor_params: ClassVar[None] = None  # type: ignore[misc]
    random_state: ClassVar[int] = 0  # type: ignore[misc]

    estimators: list[tuple[str, Classifier]] = dataclasses.field(kw_only=False)
    n_folds: int = 5

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings; with ``deep`` also the methods by name, and their settings as ``name__setting``."""
        params = super().get_params()
        for name, member in self.estimators if deep else []:
            params[name] = member
            params |= {f"{name}__{key}": value for key, value in member.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change settings: those of the methods as ``name__setting``, a whole method by its name."""
        replaced = {name: params.pop(name) for name, _ in self.estimators if name in params}
        if replaced:
            self.estimators = [(name, replaced.get(name, member)) for name, member in self.estimators]
        members = dict(self.estimators)
        for key in [key for key in params if key.partition("__")[0] in members and "__" in key]:
            name, _, setting = key.partition("__")
            members[name].set_params(**{setting: params.pop(key)})
        return super().set_params(**params)

    @property
    def estimators_(self) -> list[Classifier]:
        """The fitted methods."""
        return [member.settings.with_model(member) for member in self._fusion().members]

    @property
    def weights_(self) -> NDArray[np.float64]:
        """The weight of each method's log-probabilities."""
        return self._fusion().weights

    def with_estimators(self, estimators: list[tuple[str, Classifier]]) -> Self:
        """The same settings, not fitted, with other methods."""
        return type(self)(estimators, n_folds=self.n_folds, n_jobs=self.n_jobs)

    def _fusion(self) -> FusionModel:
        return cast(FusionModel, self.fitted())

    def fit(
        self,
        X: Sequence[ImageLike],
        y: ArrayLike,
        *,
        on_error: str = "raise",
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Self:
        """Fit and calibrate every method on labeled images, then learn the weights; parameters as for the methods."""
        from sklearn.base import clone

        self.check_settings()
        images = list(X)
        labels = check_labels(y, len(images))
        self.model_ = None
        members: list[Classifier] = [clone(member) for _, member in self.estimators]
        models = [Model(member.with_model(None), member.make_descriptor()) for member in members]
        fusion = FusionModel(self.with_model(None), models)
        with _store_for(models, store, self.n_jobs) as kept:
            fusion.take_all(images, labels, on_error=on_error, store=kept, progress=progress)
            fusion.learn(self._held_out(models, images, labels, kept, progress), progress)
        self.model_ = fusion
        return self

    def _held_out(
        self,
        models: list[Model],
        images: list[ImageLike],
        labels: list[Any],
        store: FeatureStore | None,
        progress: Progress,
    ) -> list[NDArray[np.float64]] | None:
        """The scores of each model's images by others that had not seen them; None if all can leave an image out."""
        if all(model.method.is_incremental for model in models):
            return None
        result = []
        for model in models:
            scores = model.held_out_scores(progress)
            if scores is None:
                member = model.settings.with_model(model)
                scores = cross_fitted_scores(
                    member, images, labels, n_folds=self.n_folds, store=store, progress=progress
                )
            result.append(scores)
        return result

    @classmethod
    def of_fitted(
        cls,
        estimators: list[tuple[str, Classifier]],
        *,
        held_out: dict[str, NDArray[np.float64]] | None = None,
        progress: Progress = no_progress,
        n_jobs: int | None = None,
    ) -> Self:
        """Fuse methods that are already fitted on the same images; they are calibrated, not cloned.

        Parameters
        ----------
        held_out : dict of name to ndarray, optional
            Scores of a method's ``images_`` by models that had not seen them; needed for a method that cannot leave one
            image out (see :func:`~lnbnn.classifiers.cross_fitting.cross_fitted_scores`).
        """
        fusion = cls(estimators, n_jobs=n_jobs)
        fusion.check_settings()
        models = [member.fitted() for _, member in estimators]
        shares_ids = check_alike(models)
        scores = []
        for name, member in estimators:
            given = (held_out or {}).get(name)
            found = member.held_out_scores(progress) if given is None else given
            if found is None:
                member.calibrate(None)  # says what it takes
            scores.append(np.asarray(found))
        model = FusionModel(fusion.with_model(None), models)
        model.shares_ids = shares_ids
        model.learn(scores, progress)
        fusion.model_ = model
        return fusion

    def plain_params(self, descriptor: Descriptor | None = None) -> dict[str, Any]:
        """The settings as plain values, without the methods and the number of threads."""
        return {"n_folds": plain(self.n_folds)}

    def check_settings(self) -> None:
        """Raise if a setting is invalid; ``fit`` calls it before it reads any image."""
        check_whole("n_folds", self.n_folds, 2, 1 << 30)
        given = self.estimators
        if not isinstance(given, list) or len(given) < 2 or any(len(pair) != 2 for pair in given):
            raise InvalidInputError("estimators must be a list of at least two (name, classifier) pairs.")
        names = [str(name) for name, _ in given]
        taken = {*names, *self.param_names()}
        if len(taken) < len(names) + len(self.param_names()) or "__" in "".join(names):
            raise InvalidInputError(f"names of estimators must differ, have no '__' and be no setting; got {names}.")
        for name, member in given:
            if not isinstance(member, Classifier) or isinstance(member, LateFusion):
                raise InvalidInputError(f"{name!r} must be one of this package's methods; got {type(member).__name__}.")
            member.check_settings()


@contextmanager
def _store_for(models: Sequence[Model], store: FeatureStore | None, n_jobs: Jobs) -> Iterator[FeatureStore | None]:
    """The store; if there is none and a method may be fitted more than once, a temporary one.

    A temporary one is on this machine: those of a cluster extract again.
    """
    is_cluster = isinstance(n_jobs, RayCluster)
    if store is not None or is_cluster or all(model.method.is_incremental for model in models):
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="lnbnn-") as folder:
        yield FeatureStore(folder)

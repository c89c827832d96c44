"""The classifier that chooses its own methods and settings on the labeled images, each left out in turn."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from lnbnn.classifiers.base import Classifier, settings_class
from lnbnn.classifiers.fisher import FisherVectors
from lnbnn.classifiers.fusion import LateFusion
from lnbnn.classifiers.local_coding import SpatiallyLocalCoding
from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.classifiers.trials import Choice, Trials, expected, pruned, sample
from lnbnn.descriptors import Descriptor, make_descriptor
from lnbnn.errors import LnbnnError
from lnbnn.features import ImageFeatures
from lnbnn.model.fusion import FusionModel
from lnbnn.model.planning import plan_fit
from lnbnn.params import check_positive
from lnbnn.reading.extraction import ImageLike, Progress, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.references import check_labels

__all__ = ["Auto"]

_logger = logging.getLogger(__name__)

_SECONDS = {"deep": 0.06, "dense-sift": 0.06}  # of CPU that trials take per image, about
_OTHER_SECONDS = 0.13
_N_GAUSSIANS, _N_GAUSSIANS_ALONE = 128, 512  # of Fisher vectors beside a network, and where there is none
_LAST_RESORT = "keypoint-sift"  # expensive, and useful for individuals only: tried where the others do badly
_BADLY = 0.75  # accuracy


@settings_class
class Auto(Classifier):
    """Chooses among methods, descriptors and settings, and fuses those that help.

    Each candidate is tried on the labeled images, or on a sample of the classes, with each image left out: Local NBNN
    on the cells of a network, on dense SIFT and on keypoint SIFT, with several weights of a patch's place; ridge
    regression on the mean of the network's cells; Fisher vectors of dense SIFT; without a network, Spatially Local
    Coding too. Those that make the others better are fused; the fitted model is that :class:`~lnbnn.LateFusion` or,
    where one is enough, that classifier. The choice depends on the images and the settings alone, not on the time that
    anything takes.

    Parameters
    ----------
    descriptors : list of str, optional
        The descriptors to try; by default ``deep`` (where its packages are installed), ``dense-sift`` and
        ``keypoint-sift``.
    budget : float, default=30.0
        About how many seconds the trials may take on two cores; it determines how many images they use.
    max_memory : int, optional
        Memory limit of the fit, in bytes; grids are made coarser if necessary.
    n_jobs, random_state
        As in :class:`~lnbnn.LocalNBNN`.

    Attributes
    ----------
    choice_ : Choice
        What was tried and chosen.
    """

    method: ClassVar[str] = "auto"
    descriptor: ClassVar[None] = None  # type: ignore[assignment,misc]  # it has several
    descriptor_params: ClassVar[None] = None  # type: ignore[misc]

    descriptors: list[str] | None = None
    budget: float = 30.0
    max_memory: int | None = None

    @property
    def choice_(self) -> Choice:
        """What was tried and taken."""
        return self._choice

    def check_settings(self) -> None:
        check_positive("budget", self.budget)
        if self.descriptors is not None:
            for name in self.descriptors:
                make_descriptor(name)

    def fit(
        self,
        X: Sequence[ImageLike],
        y: ArrayLike,
        *,
        on_error: str = "raise",
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Self:
        """Choose and fit; parameters as for the other classifiers."""
        self.check_settings()
        images = list(X)
        labels = check_labels(y, len(images))
        self.model_ = None
        names = self._descriptor_names()
        tried = sample(labels, self._n_tried(names), self.random_state)
        if not tried:
            self._fit_safely(images, labels, names, on_error=on_error, store=store, progress=progress)
            return self
        kept = _KeptFeatures(store)
        trials = Trials(
            self.candidates,
            [images[i] for i in tried],
            [labels[i] for i in tried],
            on_error=on_error,
            store=kept,
            n_jobs=self.n_jobs,
        )
        trials.run([name for name in names if name != _LAST_RESORT or len(names) == 1], progress)
        if _LAST_RESORT in names and len(names) > 1 and trials.accuracy_of(trials.chosen()) < _BADLY:
            trials.run([_LAST_RESORT], progress)
        taken = trials.chosen()
        chosen = self._made([trials.candidates[name] for name in taken])
        self._keep_within_memory(chosen, images, kept)
        chosen.fit(images, labels, on_error=on_error, store=kept, progress=progress)
        self.model_ = pruned(chosen.fitted())
        if not isinstance(self.model_, FusionModel) and not self.fitted().is_calibrated:
            self.fitted().calibrate(progress=progress)
        self._choice = expected(self.fitted(), trials.choice(taken, chosen.fitted(), self.fitted()))
        self.fitted().choice = self._choice.as_json()
        return self

    def _descriptor_names(self) -> list[str]:
        if self.descriptors is not None:
            return list(self.descriptors)
        try:
            make_descriptor("deep")
        except LnbnnError as error:
            _logger.warning("the network is not available (%s); only SIFT is tried", error)
            return ["dense-sift", "keypoint-sift"]
        return ["deep", "dense-sift", "keypoint-sift"]

    def _n_tried(self, names: Iterable[str]) -> int:
        seconds = [_SECONDS.get(name, _OTHER_SECONDS) for name in names if name != _LAST_RESORT]
        return max(20, int(2.0 * self.budget / (sum(seconds) or _OTHER_SECONDS)))

    def candidates(self, name: str, *, has_network: bool) -> list[tuple[str, str, Classifier]]:
        """The candidates on a descriptor: (kind, name, classifier); the best of each kind may be chosen."""
        descriptor = make_descriptor(name)
        usual = descriptor.location_weight
        shared: dict[str, Any] = {"descriptor": name, "n_jobs": self.n_jobs, "random_state": self.random_state}
        is_network = descriptor.normalization is not None
        weights = (usual, usual / 2.0, 0.0) if usual else (usual,)
        found: list[tuple[str, str, Classifier]] = []
        for weight in weights:
            matching = LocalNBNN(20 if is_network else 10, location_weight=weight, **shared)
            found.append((f"local-nbnn on {name}", f"local-nbnn on {name}, location weight {weight:g}", matching))
        if is_network:
            kind = f"pooled-ridge on {name}"
            found.append((kind, kind, PooledRidge(**shared)))
            found.append((kind, f"{kind}, the mean alone", PooledRidge(spatial=False, **shared)))
        elif usual:
            kind = f"fisher on {name}"
            size = _N_GAUSSIANS if has_network else _N_GAUSSIANS_ALONE
            found.append((kind, kind, FisherVectors(size, **shared)))
            found.append((kind, f"{kind}, without places", FisherVectors(size, spatial=False, **shared)))
        if not is_network and not has_network and usual:
            codes = SpatiallyLocalCoding(**shared)
            pyramid = SpatiallyLocalCoding(n_words=512, location_weights=(0.0,), n_levels=3, **shared)
            found.append((f"slc on {name}", f"slc on {name}", codes))
            found.append((f"pyramid on {name}", f"slc on {name}, a pyramid of 3 levels", pyramid))
        return found

    def _made(self, members: list[Classifier]) -> Classifier:
        """The classifier of the chosen candidates."""
        if len(members) == 1:
            return members[0]
        named = [(f"member{number}", member) for number, member in enumerate(members, start=1)]
        return LateFusion(named, n_jobs=self.n_jobs)

    def _keep_within_memory(self, chosen: Classifier, images: Sequence[ImageLike], store: FeatureStore) -> None:
        """Make the grids of the members coarser to stay within the limit."""
        if self.max_memory is None:
            return
        members = [member for _, member in chosen.estimators] if isinstance(chosen, LateFusion) else [chosen]
        left = self.max_memory
        for member in members:
            plan = plan_fit(member, images, max_memory=left, store=store)
            if plan is not None:
                left -= plan.index_bytes
                if plan.step_px is not None:
                    _logger.warning("%s: descriptors every %d pixels, to keep within memory", member, plan.step_px)
                    member.set_params(descriptor_params={"step_px": plan.step_px})

    def _fit_safely(self, images: list[ImageLike], labels: list[Any], names: list[str], **how: Any) -> None:
        """If no image can be left out: Local NBNN on the first descriptor, with its defaults."""
        _logger.warning(
            "no class has two images, or there is only one class: nothing can be tried, and the accuracy is unknown; "
            "using local-nbnn on %s",
            names[0],
        )
        _, _, chosen = self.candidates(names[0], has_network=True)[0]
        self._keep_within_memory(chosen, images, how["store"])
        self.model_ = chosen.fit(images, labels, **how).model_
        self._choice = Choice((), 0, len(set(labels)))
        self.fitted().choice = self._choice.as_json()

    def plain_params(self, descriptor: Descriptor | None = None) -> dict[str, Any]:
        """The settings as plain values."""
        return {"descriptors": self.descriptors, "budget": self.budget, "random_state": self.random_state}


class _KeptFeatures(FeatureStore):
    """The features of the images that were tried, in memory; others are looked for in the user's store, if any."""

    def __init__(self, store: FeatureStore | None) -> None:
        self._store = store
        self._kept: dict[str, ImageFeatures] = {}

    def get(self, key: str) -> ImageFeatures | None:
        if key in self._kept:
            return self._kept.pop(key)
        return None if self._store is None else self._store.get(key)

    def put(self, key: str, features: ImageFeatures) -> None:
        self._kept[key] = features
        if self._store is not None:
            self._store.put(key, features)

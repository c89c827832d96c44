"""Trials of classifiers on labeled images, each left out in turn: which of them to fuse, and the accuracy to expect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import Classifier
from lnbnn.classifiers.fusion import LateFusion
from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.descriptors import make_descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.model.calibration import fit_fusion_weights, fuse, negative_log_likelihood
from lnbnn.model.fusion import FusionModel
from lnbnn.model.image_reader import ImageReader
from lnbnn.model.model import Model
from lnbnn.reading.extraction import ImageLike, Jobs, Progress, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.references import Reference, References, can_be_held_out

__all__ = ["Choice", "Trial", "Trials", "expected", "pruned", "sample", "worthwhile"]

_N_DESCRIPTORS = 800  # descriptors per image in a trial, evenly chosen
_MAX_PER_CLASS = 30  # images of a class that are tried
_WORTH = 0.001  # a descriptor stays if without it the loss of the model grows by more than this share of it
_INDEX_WORTH = 0.01  # the same of an index of many descriptors per image, where another member sees them
_EQUAL = 1e-4


@dataclass(frozen=True)
class Trial:
    """One classifier that was tried: its leave-one-out accuracy, and its weight in the chosen model."""

    name: str
    accuracy: float
    loss: float
    weight: float = 0.0


@dataclass(frozen=True)
class Choice:
    """What was tried, what was chosen, and what accuracy to expect.

    Parameters
    ----------
    trials : tuple of Trial
    n_images, n_classes : int
        Of the trials.
    accuracy : float or None
        Expected mean per-class accuracy on new images like these; None if unknown.
    interval : (float, float) or None
        Its 95 % confidence interval.
    """

    trials: tuple[Trial, ...]
    n_images: int
    n_classes: int
    accuracy: float | None = None
    interval: tuple[float, float] | None = None

    def as_json(self) -> dict[str, Any]:
        """The choice as plain values."""
        trials = [[one.name, round(one.accuracy, 4), round(one.loss, 4), round(one.weight, 4)] for one in self.trials]
        interval = None if self.interval is None else [round(value, 4) for value in self.interval]
        accuracy = None if self.accuracy is None else round(self.accuracy, 4)
        counts = {"n_images": self.n_images, "n_classes": self.n_classes}
        return {"trials": trials, **counts, "accuracy": accuracy, "interval": interval}


class Trials:
    """Candidates, fitted on the same sample of images, and their leave-one-out log-probabilities.

    Parameters
    ----------
    candidates_on : callable
        Name of a descriptor, and ``has_network``, to the candidates on it: (kind, name, classifier).
    images, labels : list
        The sample.
    on_error, store, n_jobs
        As for the classifiers.
    """

    def __init__(
        self,
        candidates_on: Callable[..., list[tuple[str, str, Classifier]]],
        images: list[ImageLike],
        labels: list[Any],
        *,
        on_error: str = "raise",
        store: FeatureStore | None = None,
        n_jobs: Jobs = None,
    ) -> None:
        self.candidates_on, self.images, self.labels = candidates_on, images, labels
        self.on_error, self.store, self.n_jobs = on_error, store, n_jobs
        self.candidates: dict[str, Classifier] = {}
        self.kind_of: dict[str, str] = {}
        self.models: dict[str, Model] = {}
        self.log_probas: dict[str, NDArray[np.float64]] = {}
        self.trials: dict[str, Trial] = {}
        self.references = References()
        self.skipped: list[tuple[str, str]] = []

    def run(self, names: list[str], progress: Progress) -> None:
        """Try all candidates on these descriptors."""
        descriptors = [make_descriptor(name) for name in names]
        reader = ImageReader(descriptors)
        read = reader.read(
            self.images,
            self.labels,
            first_id=0,
            on_error=self.on_error,
            n_jobs=self.n_jobs,
            store=self.store,
            progress=progress,
        )
        found = list(read)
        if not found:
            raise InvalidInputError(f"none of the {len(self.images)} images can be used: {reader.skipped[0][1]}")
        if not self.references:
            self.references, self.skipped = References(image for image, _ in found), reader.skipped
        has_network = any(descriptor.normalization is not None for descriptor in descriptors)
        tried = [
            (part, one) for part, name in enumerate(names) for one in self.candidates_on(name, has_network=has_network)
        ]
        for number, (part, (kind, name, classifier)) in enumerate(tried):
            progress("trying", number, len(tried))
            self.candidates[name], self.kind_of[name] = classifier, kind
            self._try(name, [(image, joint.parts[part]) for image, joint in found if len(joint.parts[part])])
        progress("trying", len(tried), len(tried))

    def _try(self, name: str, found: list[tuple[Reference, ImageFeatures]]) -> None:
        """Fit a candidate and classify each image without itself; skip a candidate that sees nothing in some class."""
        settings = self.candidates[name]
        model = Model(settings.with_model(None), settings.make_descriptor())
        alike = (other for key, other in self.models.items() if self.kind_of[key] == self.kind_of[name])
        model.normalizer = next((other.normalizer for other in alike), None)
        found = [(image, _thinned(features)) for image, features in found]
        own = [replace(image, n_descriptors=len(features)) for image, features in found]
        n_classes = len(self.references.classes)
        if len({image.label for image in own}) < n_classes or sum(map(len, (f for _, f in found))) < 100:
            return
        for image, (_, features) in zip(own, found, strict=True):
            model.take(image, features)
        model.finish(own, [], no_progress)
        fusion = FusionModel(LateFusion([]), [model])
        fusion.references = self.references
        fusion.learn()
        self.models[name] = model
        self.log_probas[name] = fusion.held_out_log_probas()[0]
        (log_proba,), places = self._used([name])
        loss = negative_log_likelihood(log_proba, places)
        self.trials[name] = Trial(name, float(_accuracies(log_proba, places).mean()), loss)

    def _used(self, names: Iterable[str]) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
        """The log-probabilities and classes of the images that are not alone in their class."""
        used = can_be_held_out(self.references.places)
        return [self.log_probas[name][used] for name in names], self.references.places[used]

    def chosen(self) -> list[str]:
        """Names of the candidates that are taken: the best of each kind, indexes only where they are worth it."""
        best: dict[str, str] = {}
        for name, trial in self.trials.items():
            kind = self.kind_of[name]
            if kind not in best or trial.loss < self.trials[best[kind]].loss:
                best[kind] = name
        if not best:
            raise InvalidInputError("no descriptor finds anything in some class; take its images out, or use another.")
        log_probas, places = self._used(best.values())
        return _without_indexes(
            {name: self.models[name] for name in best.values()},
            dict(zip(best.values(), log_probas, strict=True)),
            places,
        )

    def accuracy_of(self, names: list[str]) -> float:
        """Of the fusion of candidates."""
        log_probas, places = self._used(names)
        return float(_accuracies(fuse(log_probas, fit_fusion_weights(log_probas, places)), places).mean())

    def choice(self, taken: list[str], fitted: Model, model: Model) -> Choice:
        """What was tried, with the weights of those that are in the model."""
        members = fitted.members if isinstance(fitted, FusionModel) else [fitted]
        weights = zip(model.members, model.weights, strict=True) if isinstance(model, FusionModel) else [(model, 1.0)]
        given = {id(member): float(weight) for member, weight in weights}
        own = {name: given.get(id(member), 0.0) for name, member in zip(taken, members, strict=True)}
        trials = tuple(replace(trial, weight=own.get(name, 0.0)) for name, trial in self.trials.items())
        return Choice(trials, len(self.references), len(self.references.classes))


def pruned(model: Model) -> Model:
    """The model without members that do not help on all images and classes."""
    if not isinstance(model, FusionModel):
        return model
    places, used = model.places_of(model.held_out.ids)
    members = {str(number): member for number, member in enumerate(model.members)}
    log_probas = {name: one[used] for name, one in zip(members, model.held_out_log_probas(), strict=True)}
    names = _without_indexes(members, log_probas, places[used])
    descriptors = {name: members[name].descriptor.name for name in names}
    return model.of_members([int(name) for name in worthwhile(descriptors, log_probas, places[used], _WORTH)])


def _without_indexes(
    models: dict[str, Model], log_probas: dict[str, NDArray[np.float64]], places: NDArray[np.int64]
) -> list[str]:
    """Names of the models that stay if an index of many descriptors per image, which takes most of the memory and of
    the time of an answer, must be worth it; the only one on its descriptor is not asked."""
    names = list(models)
    for name, model in models.items():
        others = [other for other in names if other != name]
        has_company = any(models[other].descriptor.name == model.descriptor.name for other in others)
        is_large = isinstance(model.settings, LocalNBNN) and model.descriptor.normalization is None
        if not (is_large and has_company):
            continue
        if _fused_loss(others, log_probas, places) <= (1.0 + _INDEX_WORTH) * _fused_loss(names, log_probas, places):
            names = others
    return names


def _fused_loss(names: Iterable[str], log_probas: dict[str, NDArray[np.float64]], places: NDArray[np.int64]) -> float:
    given = [log_probas[name] for name in names]
    return negative_log_likelihood(fuse(given, fit_fusion_weights(given, places)), places)


def worthwhile(
    descriptor_of: dict[str, str], log_probas: dict[str, NDArray[np.float64]], places: NDArray[np.int64], worth: float
) -> list[str]:
    """Those of the candidates that improve their fusion, by name.

    A descriptor is dropped with all its candidates, the least useful first, if the loss grows by at most the share
    ``worth`` without it; then single candidates, at a sixth of that share.
    """

    def loss(groups: Iterable[list[str]]) -> float:
        return _fused_loss([name for group in groups for name in group], log_probas, places)

    def without(groups: list[list[str]], worth: float) -> list[str]:
        best = loss(groups)
        while len(groups) > 1:
            rest = [loss(one for one in groups if one is not group) for group in groups]
            least = int(np.argmin(rest))
            if rest[least] > best * (1.0 + max(worth, _EQUAL)):
                break
            groups = [group for group in groups if group is not groups[least]]
            best = min(best, rest[least])
        return [name for group in groups for name in group]

    names = list(descriptor_of)
    of_each = dict.fromkeys(descriptor_of.values())
    names = without([[name for name in names if descriptor_of[name] == one] for one in of_each], worth)
    return without([[name] for name in names], worth / 6.0)


def _thinned(features: ImageFeatures) -> ImageFeatures:
    n = len(features)
    return features if n <= _N_DESCRIPTORS else features.take(np.arange(_N_DESCRIPTORS) * n // _N_DESCRIPTORS)


def sample(labels: list[Any], n_most: int, seed: int) -> list[int]:
    """Places of the images to try on: whole classes drawn at random, those that have two images at least.

    Empty where nothing can be tried: fewer than two such classes.
    """
    by_class: dict[Any, list[int]] = {}
    for place, label in enumerate(labels):
        by_class.setdefault(label, []).append(place)
    usable = sorted(label for label, places in by_class.items() if len(places) > 1)
    if len(by_class) < 2 or not usable:
        return []
    if len(labels) <= n_most and all(len(places) <= _MAX_PER_CLASS for places in by_class.values()):
        return list(range(len(labels)))
    rng = np.random.default_rng(seed)
    found: list[int] = []
    for label in [usable[i] for i in rng.permutation(len(usable))]:
        places = by_class[label]
        drawn = rng.permutation(len(places))[:_MAX_PER_CLASS]
        if len(found) + len(drawn) > n_most and len({labels[i] for i in found}) >= 2:
            break
        found += [places[i] for i in drawn]
    return sorted(found)


def _accuracies(log_proba: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each class that is there."""
    right = (log_proba.argmax(axis=1) == places).astype(np.float64)
    counts = np.bincount(places)
    return np.bincount(places, right)[counts > 0] / counts[counts > 0]


def expected(model: Model, choice: Choice) -> Choice:
    """The choice with the accuracy to expect: of images left out, by weights learned without them."""
    if isinstance(model, FusionModel):
        places, used = model.places_of(model.held_out.ids)
        fused, places = model.cross_fitted()[used], places[used]
    else:
        scores = model.held_out_scores()
        assert scores is not None
        used = can_be_held_out(model.references.places)
        fused, places = scores[used], model.references.places[used]
    accuracies = _accuracies(fused, places)
    mean, n = float(accuracies.mean()), len(places)
    z = NormalDist().inv_cdf(0.975)
    spread = z * float(accuracies.std(ddof=1)) / np.sqrt(len(accuracies)) if len(accuracies) > 1 else 1.0
    center = (mean + z * z / (2 * n)) / (1 + z * z / n)  # Wilson's, of all images together
    half = z / (1 + z * z / n) * np.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    low, high = min(center - half, mean - spread), max(center + half, mean + spread)
    return replace(choice, accuracy=mean, interval=(max(0.0, float(low)), min(1.0, float(high))))

"""A fusion: several models of the same images, their calibrated log-probabilities added with learned weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.descriptors import Descriptor
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.methods import FUSION
from lnbnn.methods.base import Progress, no_progress
from lnbnn.model.calibration import Calibration, fit_fusion_weights, fuse
from lnbnn.model.folder import Snapshot
from lnbnn.model.manifest import calibration_fields, calibration_of
from lnbnn.model.model import Model
from lnbnn.reading.extraction import ImageLike, features_of, map_in_order
from lnbnn.reading.store import FeatureStore
from lnbnn.references import References, can_be_held_out
from lnbnn.version import __version__

__all__ = ["FusionModel", "descriptor_key", "learn_weights"]


class FusionModel(Model):
    """Models of several methods or descriptors, each calibrated, and the weights of their log-probabilities."""

    def __init__(self, settings: Any, members: list[Model], weights: NDArray[np.float64]) -> None:
        first = members[0]
        for member in members[1:]:
            if member.references.classes.tolist() != first.references.classes.tolist():
                raise InvalidInputError(
                    f"methods to fuse must know the same classes; {first.settings.method!r} knows "
                    f"{len(first.references.classes)}, {member.settings.method!r} {len(member.references.classes)}."
                )
        self.settings, self.members, self.weights = settings, members, weights
        self.descriptor, self.references, self.skipped = first.descriptor, first.references, first.skipped
        self.calibration: Calibration | None = None
        self.snapshot: Snapshot | None = None
        self.next_id = self.n_changes = 0

    def check_incremental(self) -> None:
        raise InvalidInputError(f"method {FUSION!r} learns from all images together; fit it again with all.")

    def absorb(self, other: Model, *, progress: Progress = no_progress) -> list[tuple[int, int]]:
        raise InvalidInputError(f"models of method {FUSION!r} cannot be merged; fit one on the images of both.")

    # ---- scoring ------------------------------------------------------------------------------------------------

    def iter_scores(
        self, images: Sequence[ImageLike], store: FeatureStore | None = None, *, log_proba: bool = False
    ) -> Iterator[NDArray[np.float64] | ImageReadError | None]:
        """The fused log-probabilities of each image; methods with the same descriptor share its features."""
        n_classes = len(self.references.classes)
        keys = [descriptor_key(member.descriptor) for member in self.members]

        def work(image: ImageLike) -> NDArray[np.float64] | ImageReadError | None:
            features: dict[str, ImageFeatures] = {}
            try:
                for key, member in zip(keys, self.members, strict=True):
                    if key not in features:
                        features[key] = features_of(image, member.descriptor, store)
            except ImageReadError as error:
                return error
            if not any(map(len, features.values())):
                return None
            found = [
                _log_proba(member, features[key]) if len(features[key]) else np.full(n_classes, -np.log(n_classes))
                for key, member in zip(keys, self.members, strict=True)
            ]
            fused = fuse(found, self.weights)
            return fused[None] if log_proba else fused

        return map_in_order(work, images, self.settings.n_jobs)

    def shares(self, image: ImageLike) -> list[tuple[float, Model]]:
        """The models with what one unit of each's scores for this image adds to the fused log-probabilities."""
        result: list[tuple[float, Model]] = []
        for weight, member in zip(self.weights, self.members, strict=True):
            assert member.calibration is not None
            assert member.calibration.temperature is not None
            scale = member.method.score_scale(len(member.features(image)))
            result.append((float(weight / (max(scale, 1.0) * member.calibration.temperature)), member))
        return result

    # ---- calibration --------------------------------------------------------------------------------------------

    @property
    def is_calibrated(self) -> bool:
        """Always: the fused scores are log-probabilities."""
        return True

    def calibrate(
        self, held_out: ArrayLike | None = None, *, unknown: bool = False, progress: Progress = no_progress
    ) -> None:
        """Nothing to do but for ``unknown``: the fit has calibrated the methods and their sum."""
        if unknown:
            self.calibration = Calibration(None, self.unknown_by_class(progress))

    def held_out_scores(self, progress: Progress = no_progress) -> NDArray[np.float64] | None:
        found = [member.held_out_scores(progress) for member in self.members]
        return None if any(scores is None for scores in found) else self.fused_scores(found)  # type: ignore[arg-type]

    def unknown_scores(self, progress: Progress = no_progress) -> NDArray[np.float64] | None:
        found = [member.unknown_scores(progress) for member in self.members]
        if any(scores is None for scores in found):
            return None
        result = self.fused_scores(found)  # type: ignore[arg-type]
        result[np.arange(len(result)), self.references.places] = -np.inf
        return result

    def fused_scores(self, found: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The fused log-probabilities of the references, from scores of each model's own references."""
        n_classes = len(self.references.classes)
        keys = _numbered(self.references)
        log_probas, weights = [], []
        for weight, member, scores in zip(self.weights, self.members, found, strict=True):
            if weight > 0.0:
                rows, known = _numbered(member.references), _held_out_log_proba(member, scores)
                unsure = np.full(n_classes, -np.log(n_classes))
                log_probas.append(np.stack([known[rows[key]] if key in rows else unsure for key in keys]))
                weights.append(weight)
        return fuse(log_probas, np.array(weights))

    def score_scales(self) -> NDArray[np.float64]:
        return np.ones(len(self.references))

    # ---- the folder ---------------------------------------------------------------------------------------------

    def plain_params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.settings.plain_params()
        return params

    def manifest(self) -> dict[str, Any]:
        """What the manifest says of the fusion; each of its models has a manifest of its own."""
        return {
            "lnbnn_version": __version__,
            "method": FUSION,
            "params": self.plain_params(),
            "is_incremental": False,
            "classes": self.references.classes.tolist(),
            "members": [name for name, _ in self.settings.estimators],
            "weights": self.weights.tolist(),
            "n_changes": 0,
            **calibration_fields(self.calibration),
        }

    def save_files(self, folder: Path) -> None:
        for place, member in enumerate(self.members):
            member.save(folder / f"member{place}")

    @classmethod
    def open_members(cls, settings: Any, members: list[Model], snapshot: Snapshot) -> Self:
        """The fusion of open models, with the weights and the calibration of its folder."""
        weights = np.array(snapshot.manifest["weights"], dtype=np.float64)
        if weights.shape != (len(members),) or not np.isfinite(weights).all() or weights.min() < 0.0:
            raise ValueError(f"weights {snapshot.manifest['weights']}")
        fusion = cls(settings, members, weights)
        fusion.follow(snapshot)
        return fusion

    def follow(self, snapshot: Snapshot, progress: Progress = no_progress) -> None:
        self.calibration, self.snapshot = calibration_of(snapshot.manifest), snapshot

    def inconsistencies(self) -> list[str]:
        return [text for member in self.members for text in member.inconsistencies()]

    def describe(self) -> str:
        named = [f"{member.settings.method} on {member.descriptor.name}" for member in self.members]
        parts = [f"{weight:.3g} x {name}" for weight, name in zip(self.weights, named, strict=True)]
        return f"log-probabilities of {' + '.join(parts)}"

    @property
    def nbytes(self) -> int:
        return sum(member.nbytes for member in self.members)


def _log_proba(member: Model, features: ImageFeatures) -> NDArray[np.float64]:
    assert member.calibration is not None
    prepared = member.method.prepare(features, member.normalizer)
    scaled = member.method.scores(prepared) / member.method.score_scale(len(prepared))
    return member.calibration.log_softmax(scaled)


def _held_out_log_proba(member: Model, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    assert member.calibration is not None
    return member.calibration.log_softmax(scores / member.score_scales()[:, None])


def descriptor_key(descriptor: Descriptor) -> str:
    """The same for descriptors that give the same features."""
    return repr((descriptor.name, descriptor.settings()))


def learn_weights(members: Sequence[Model], held_out: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Weights from the held-out scores of the images that every method was fitted on."""
    rows = [_numbered(member.references) for member in members]
    common = [key for key in rows[0] if all(key in found for found in rows[1:])]
    labels = members[0].references.places[[rows[0][key] for key in common]]
    for member, found in zip(members, rows, strict=True):
        own = member.references.places[[found[key] for key in common]]
        if not common or not np.array_equal(own, labels):
            raise InvalidInputError("methods to fuse must be fitted on the same labeled images.")
    used = can_be_held_out(labels)
    log_probas = []
    for member, found, scores in zip(members, rows, held_out, strict=True):
        places = [found[key] for key, use in zip(common, used, strict=True) if use]
        log_probas.append(_held_out_log_proba(member, np.asarray(scores))[places])
    return fit_fusion_weights(log_probas, labels[used])


def _numbered(images: References) -> dict[tuple[str, int], int]:
    """The row of each image, under its name and how often the name came before."""
    seen: dict[str, int] = {}
    result = {}
    for row, image in enumerate(images):
        number = seen[image.name] = seen.get(image.name, -1) + 1
        result[image.name, number] = row
    return result

"""A fusion: several models of the same images, their calibrated log-probabilities added with learned weights."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.descriptors import Descriptor, distinct
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures, JointFeatures
from lnbnn.methods import FUSION
from lnbnn.methods.base import Progress, no_progress
from lnbnn.model.batches import TABLE, features_of_batches, read_joint_batch, write_batch
from lnbnn.model.calibration import Calibration, fit_confidence, fit_fusion_weights, fit_temperature, fuse
from lnbnn.model.folder import Snapshot, batch_folder, read_json
from lnbnn.model.held_out import HeldOut, weights_are_due
from lnbnn.model.image_reader import ImageReader
from lnbnn.model.manifest import calibration_fields, calibration_of, image_fields, next_id_of, parse_images
from lnbnn.model.model import Model, check_used
from lnbnn.reading.extraction import ImageLike
from lnbnn.reading.store import FeatureStore
from lnbnn.references import Change, Reference, References, can_be_held_out
from lnbnn.version import __version__

__all__ = ["FusionModel", "check_alike"]

_FOLDS = 5
_MAX_HELD_OUT = 2000  # images that the weights are learned from, at most


class FusionModel(Model):
    """Models of several methods or descriptors, each calibrated, and the weights of their log-probabilities.

    Its references are the images that any of the models can use; a model has those that its descriptor sees something
    in, under the same ids. What changes the references changes those of each model.
    """

    def __init__(self, settings: Any, members: list[Model]) -> None:
        first = members[0]
        self.settings, self.members, self.weights = settings, members, np.ones(len(members))
        self.descriptors, self.part_of = distinct([member.descriptor for member in members])
        self.descriptor, self.references, self.skipped = first.descriptor, first.references, first.skipped
        self.calibration: Calibration | None = None
        self.snapshot: Snapshot | None = None
        self.next_id, self.n_changes = first.next_id, 0
        self.n_since_weights = 0  # changes since the weights were learned
        self.choice: dict[str, Any] | None = None
        self.shares_ids = True
        self._held_out: HeldOut | Snapshot | None = None
        self._looked_up: HeldOut | None = None  # since the fusion was opened

    # ---- learning -----------------------------------------------------------------------------------------------

    def take_all(
        self,
        images: list[ImageLike],
        labels: list[Any],
        *,
        on_error: str,
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> None:
        """Fit the models, which are new; each file is read once, and each descriptor extracted once."""
        reader = ImageReader(self.descriptors)
        read = reader.read(
            images, labels, first_id=0, on_error=on_error, n_jobs=self.settings.n_jobs, store=store, progress=progress
        )
        kept: list[Reference] = []
        taken: list[list[Reference]] = [[] for _ in self.members]
        for image, joint in read:
            for member, part, own in zip(self.members, self.part_of, taken, strict=True):
                if len(joint.parts[part]):
                    own.append(replace(image, n_descriptors=len(joint.parts[part])))
                    member.take(own[-1], joint.parts[part])
            kept.append(image)
        check_used(kept, labels, reader.skipped)
        for member, own in zip(self.members, taken, strict=True):
            if not own:
                raise InvalidInputError(f"{member.descriptor.name} finds no descriptors in any image; leave it out.")
            seen = {image.id for image in own}
            blind = [(image.name, f"{image.name}: no descriptors") for image in kept if image.id not in seen]
            member.finish(own, reader.skipped + blind, progress)
        self.references, self.next_id, self.skipped = References(kept), kept[-1].id + 1, reader.skipped

    @property
    def min_descriptors(self) -> int:
        """At least one; how many each model must hold is looked at when a change is made."""
        return 1

    @property
    def reads_with(self) -> Descriptor | list[Descriptor]:
        return self.descriptors

    @property
    def is_incremental(self) -> bool:
        """Whether every model is, and their ids are those of the fusion."""
        return self.shares_ids and all(member.method.is_incremental for member in self.members)

    def check_incremental(self) -> None:
        for member in self.members:
            member.check_incremental()
        if not self.shares_ids:
            raise InvalidInputError("this fusion was made of models fitted one by one; fit it again with all images.")

    def apply(self, change: Change, *, keeps_structure: bool = False, progress: Progress = no_progress) -> None:
        """Make a change to the references, and learn the weights again once that is due."""
        self._change_members(change, keeps_structure=keeps_structure, progress=progress)
        self.snapshot = None
        self.next_id = max(self.next_id, change.after[-1].id + 1)
        self.n_changes += len(change)
        self.n_since_weights += len(change)
        if weights_are_due(self.n_since_weights, len(self.references)):
            self._learn_weights_again()

    def _change_members(self, change: Change, *, keeps_structure: bool, progress: Progress = no_progress) -> None:
        added = {image.id: joint for image, joint in change.added}
        changes = []
        for member, part in zip(self.members, self.part_of, strict=True):
            own = {image.id: image for image in member.references}
            after = [
                replace(own[image.id], label=image.label)
                if image.id in own
                else replace(image, n_descriptors=len(added[image.id].parts[part]))
                for image in change.after
                if image.id in own or (image.id in added and len(added[image.id].parts[part]))
            ]
            n_left, least = sum(image.n_descriptors for image in after), member.method.min_descriptors()
            if n_left < least:
                raise InvalidInputError(
                    f"{member.settings.method} on {member.descriptor.name} needs at least {least} descriptors to "
                    f"search; {n_left} would be left; add others first."
                )
            changes.append(Change.between(member.references, after, partial(_part_of, added, part)))
        for member, own_change in zip(self.members, changes, strict=True):
            if len(own_change):
                member.apply(own_change, keeps_structure=keeps_structure, progress=progress)
        self.references = change.after

    def _learn_weights_again(self) -> None:
        """After changes: score the new images; the others keep their scores."""
        ids, last = [image.id for image in self.references], max(self.held_out.ids, default=-1)
        known = self.held_out.of(ids, self.references.classes.tolist())
        room = max(0, _MAX_HELD_OUT + len(ids) // 10 - len(known.ids))
        self._looked_up = self._look_up([number for number in ids if number > last][:room], no_progress)
        self._held_out = known.joined(self._looked_up)
        self.weights, self.n_since_weights = self._learned_weights(), 0

    @property
    def held_out(self) -> HeldOut:
        """What the weights are learned from; read from the folder when it is first asked for."""
        if isinstance(self._held_out, Snapshot):
            self._held_out = self._read_held_out(self._held_out)
        assert self._held_out is not None
        return self._held_out

    def _look_up(self, ids: list[int], progress: Progress) -> HeldOut:
        """The scores of labeled images by ids, each as if it was not known."""
        classes = self.references.classes.tolist()
        scores = np.full((len(self.members), len(ids), len(classes)), np.nan)
        for place, member in enumerate(self.members):
            rows = {image.id: row for row, image in enumerate(member.references)}
            there = [number for number, image in enumerate(ids) if image in rows]
            if there:
                wanted = [rows[ids[number]] for number in there]
                found = member.held_out_scores(progress, None if len(wanted) == len(rows) else wanted)
                assert found is not None
                scales = member.score_scales()[wanted, None]
                scores[place, there] = self.widened(member, found / scales)
        return HeldOut(ids, classes, scores)

    def widened(self, member: Model, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of a model's classes as scores of all; a class that it has no image of is the last."""
        own, classes = member.references.classes.tolist(), self.references.classes.tolist()
        if own == classes:
            return scores
        places = {label: place for place, label in enumerate(own)}
        lowest = scores.min(axis=-1)
        return np.stack([scores[..., places[c]] if c in places else lowest for c in classes], axis=-1)

    def learn(self, held_out: Sequence[NDArray[np.float64]] | None = None, progress: Progress = no_progress) -> None:
        """Calibrate the models and learn the weights, from scores of their references that they had not seen.

        Parameters
        ----------
        held_out : sequence of ndarray of shape (n_images, n_classes), optional
            Of each model's references; by default the models' own, of an even choice of the images.
        """
        if held_out is None:
            n = len(self.references)
            rows = np.linspace(0, n - 1, min(n, _MAX_HELD_OUT)).round().astype(np.intp)
            self._held_out = self._look_up([self.references[row].id for row in rows], progress)
        else:
            self._held_out = self._given(held_out)
        self.learn_from_held_out()

    def learn_from_held_out(self) -> None:
        """Calibrate the models and learn the weights from the current scores."""
        places, used = self.places_of(self.held_out.ids)
        if not used.any():
            raise InvalidInputError("calibration needs a class with at least two images; every class has one.")
        for member, scores in zip(self.members, self.held_out.scores, strict=True):
            there = used & ~np.isnan(scores[:, 0])
            member.calibration = Calibration(fit_temperature(scores[there], places[there]))
        self.weights = self._learned_weights()
        self.calibration = Calibration(None, confidence=fit_confidence(self.cross_fitted()[used], places[used]))
        self.n_changes = self.n_since_weights = 0

    def cross_fitted(self) -> NDArray[np.float64]:
        """The fused log-probabilities of the images of ``held_out``, by weights learned without the image."""
        places, used = self.places_of(self.held_out.ids)
        log_probas = self.held_out_log_probas()
        result = fuse(log_probas, self.weights)
        folds = np.arange(len(places)) % _FOLDS
        for fold in range(_FOLDS):
            held, rest = folds == fold, (folds != fold) & used
            if held.any() and rest.any():
                weights = fit_fusion_weights([one[rest] for one in log_probas], places[rest])
                result[held] = fuse([one[held] for one in log_probas], weights)
        return result

    def _given(self, held_out: Sequence[NDArray[np.float64]]) -> HeldOut:
        rows = _numbered(self.references)
        scores = np.full((len(self.members), len(rows), len(self.references.classes)), np.nan)
        for place, (member, found) in enumerate(zip(self.members, held_out, strict=True)):
            scaled = self.widened(member, np.asarray(found) / member.score_scales()[:, None])
            for key, own in _numbered(member.references).items():
                if key in rows:
                    scores[place, rows[key]] = scaled[own]
        return HeldOut([image.id for image in self.references], self.references.classes.tolist(), scores)

    def places_of(self, ids: list[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The classes of images, and which have another of their class."""
        rows = {image.id: row for row, image in enumerate(self.references)}
        wanted = [rows[number] for number in ids]
        return self.references.places[wanted], can_be_held_out(self.references.places)[wanted]

    def held_out_log_probas(self) -> list[NDArray[np.float64]]:
        """The log-probabilities of each model for the images of ``held_out``; all equal where it has no descriptors."""
        return self._log_probas_of(self.held_out)

    def _log_probas_of(self, held_out: HeldOut) -> list[NDArray[np.float64]]:
        unsure = -np.log(len(self.references.classes))
        return [
            np.where(np.isnan(scores), unsure, member.calibrated(np.nan_to_num(scores)))
            for member, scores in zip(self.members, held_out.scores, strict=True)
        ]

    def _learned_weights(self) -> NDArray[np.float64]:
        """From the images that every model has, if their class has others."""
        places, used = self.places_of(self.held_out.ids)
        used = used & ~np.isnan(self.held_out.scores[:, :, 0]).any(axis=0)
        if not used.any():
            return np.full(len(self.members), 1.0 / len(self.members))
        labels = places[used]
        log_probas = [
            member.calibrated(scores[used]) for member, scores in zip(self.members, self.held_out.scores, strict=True)
        ]
        return fit_fusion_weights(log_probas, labels)

    def compact(self, *, full: bool, progress: Progress) -> None:
        for member in self.members:
            member.compact(full=full, progress=progress)

    def absorb(self, other: Model, *, progress: Progress = no_progress) -> list[tuple[int, int]]:
        self.check_incremental()
        others = getattr(other, "members", [])
        if len(others) != len(self.members):
            raise InvalidInputError(
                "models to merge must be fusions of the same methods; fit one on the images of both."
            )
        other.check_incremental()
        for mine, theirs in zip(self.members, others, strict=True):
            mine.check_same(theirs)
        fresh, duplicates = self.new_references(other)
        for mine, theirs in zip(self.members, others, strict=True):
            mine.absorb_as(theirs, fresh, progress)
        after = References([*self.references, *fresh.values()])
        self.references, self.snapshot = after, None
        self.n_changes += len(fresh)
        self._learn_weights_again()
        return duplicates

    def of_members(self, places: list[int]) -> Model:
        """The fusion of some of the models, with weights of their own; of one, that model."""
        if len(places) == len(self.members):
            return self
        if len(places) == 1:
            self.members[places[0]].skipped = self.skipped
            return self.members[places[0]]
        settings = self.settings.with_estimators([self.settings.estimators[place] for place in places])
        fusion = FusionModel(settings, [self.members[place] for place in places])
        counts: Counter[int] = Counter()  # of the descriptors that the fusion still has
        for part in range(len(fusion.descriptors)):
            member = fusion.members[fusion.part_of.index(part)]
            counts.update({image.id: image.n_descriptors for image in member.references})
        fusion.references = References(
            replace(image, n_descriptors=counts[image.id] or image.n_descriptors) for image in self.references
        )
        fusion.next_id, fusion.skipped = self.next_id, self.skipped
        known = self.held_out
        fusion._held_out = HeldOut(known.ids, known.classes, known.scores[places])
        fusion.learn_from_held_out()
        return fusion

    # ---- scoring ------------------------------------------------------------------------------------------------

    def _scores_of(self, read: Any, log_proba: bool) -> NDArray[np.float64] | ImageReadError | None:
        """The fused log-probabilities of an image; methods with the same descriptor share its features."""
        if isinstance(read, ImageReadError) or not len(read):
            return read if isinstance(read, ImageReadError) else None
        fused = self.fused(self.member_log_probas(read))
        if not log_proba:
            return fused
        return fused[None] if self.calibration is None else np.stack([fused, self.calibration.log_proba(fused)])

    def is_saved(self) -> bool:
        return super().is_saved() and all(member.is_saved() for member in self.members)

    def searches_elsewhere(self) -> bool:
        return any(member.searches_elsewhere() for member in self.members)

    def fused(self, log_probas: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The weighted sum of the models' log-probabilities, as log-probabilities."""
        return fuse(log_probas, self.weights)

    def member_log_probas(self, joint: JointFeatures) -> list[NDArray[np.float64]]:
        """What each model says of an image; all classes are as likely where it has no descriptors."""
        parts = [joint.parts[part] for part in self.part_of]
        return [self._log_proba(*pair) for pair in zip(self.members, parts, strict=True)]

    def _log_proba(self, member: Model, features: ImageFeatures) -> NDArray[np.float64]:
        if not len(features):
            n_classes = len(self.references.classes)
            return np.full(n_classes, -np.log(n_classes))
        prepared = member.method.prepare(features, member.normalizer)
        scaled = member.method.scores(prepared) / member.method.score_scale(len(prepared))
        return member.calibrated(self.widened(member, scaled))

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
        """Learn temperatures and weights again if anything has changed since the fit, and what ``unknown`` asks for."""
        if self.n_changes and self.is_incremental:
            self.learn(progress=progress)
        if unknown:
            known = self.calibration or Calibration(None)
            self.calibration = replace(known, unknown_by_class=self.unknown_by_class(progress))

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        if rows is not None and all(member.method.is_incremental for member in self.members):
            known = self._look_up([self.references[row].id for row in rows], progress)
            return self.fused(self._log_probas_of(known))
        found = [member.held_out_scores(progress) for member in self.members]
        if any(scores is None for scores in found):
            return None
        fused = self.fused_scores(found)  # type: ignore[arg-type]
        return fused if rows is None else fused[list(rows)]

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
                rows, scaled = _numbered(member.references), scores / member.score_scales()[:, None]
                known = member.calibrated(self.widened(member, scaled))
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
        """What the manifest says of the fusion; each model has one of its own, of when it was written."""
        return {
            "lnbnn_version": __version__,
            "method": FUSION,
            "params": self.plain_params(),
            "is_incremental": self.is_incremental,
            "min_descriptors": self.min_descriptors,
            "features": [self.members[self.part_of.index(p)].feature_kind for p in range(len(self.descriptors))],
            **image_fields(self._indexed()),
            "next_id": self.next_id,
            "n_indexed": self.references.n_descriptors,
            "members": [name for name, _ in self.settings.estimators],
            **self.learned_fields(),
            "n_changes": self.n_changes,
            **({} if self.choice is None else {"choice": self.choice}),
        }

    def learned_fields(self) -> dict[str, Any]:
        """What the manifest says of the weights, and of the calibration that goes with them."""
        calibrations = [calibration_fields(member.calibration) for member in self.members]
        own = calibration_fields(self.calibration)
        weights = {"weights": self.weights.tolist(), "n_since_weights": self.n_since_weights}
        return {**weights, "member_calibrations": calibrations, **own}

    def save_files(self, folder: Path) -> None:
        for place, member in enumerate(self.members):
            member.save(folder / f"member{place}")
        table = json.dumps(image_fields(self._indexed()), separators=(",", ":"))
        (folder / TABLE).write_text(table, encoding="ascii")
        if self.is_incremental:
            self.held_out.save(folder)

    def write_added(self, folder: Path, added: dict[int, JointFeatures]) -> None:
        """The batch of images that were just added: their features, and the scores that were looked up on the way."""
        write_batch(folder, added.items())
        if self._looked_up is not None:
            self._looked_up.save(folder)
            (folder / TABLE).write_text(json.dumps(self._looked_up.classes, separators=(",", ":")), encoding="ascii")

    @classmethod
    def open_members(cls, settings: Any, members: list[Model], snapshot: Snapshot) -> Self:
        """The fusion of open models, with the weights and the calibration of its folder."""
        fusion = cls(settings, members)
        if "images" in snapshot.manifest:
            table = snapshot.data / TABLE
            fusion.references = References(parse_images(read_json(table), table))
            known = {image.id: image for image in fusion.references}
            for member in members:
                if any(image.id not in known or known[image.id].label != image.label for image in member.references):
                    raise ModelFormatError(f"{snapshot.data}: its members have different images; fit the model again.")
        else:
            fusion.shares_ids = False  # as fusions were written before they could be changed
            if any(member.references.classes.tolist() != fusion.references.classes.tolist() for member in members):
                raise ModelFormatError(f"{snapshot.data}: its members have different classes; fit the model again.")
        fusion.follow(snapshot)
        return fusion

    def follow(self, snapshot: Snapshot, progress: Progress = no_progress) -> None:
        manifest = snapshot.manifest
        weights = np.array(manifest["weights"], dtype=np.float64)
        if weights.shape != (len(self.members),) or not np.isfinite(weights).all() or weights.min() < 0.0:
            raise ValueError(f"weights {manifest['weights']}")
        if "images" in manifest:
            self._follow_images(snapshot, progress)
        self.choice = manifest.get("choice")
        self.weights, self.n_changes = weights, manifest.get("n_changes", 0)
        self.n_since_weights = manifest.get("n_since_weights", 0)
        for member, fields in zip(self.members, manifest.get("member_calibrations", []), strict=False):
            member.calibration = calibration_of(fields)
        self.calibration, self.snapshot = calibration_of(manifest), snapshot

    def _follow_images(self, snapshot: Snapshot, progress: Progress) -> None:
        where = snapshot.folder
        after = parse_images(snapshot.manifest, where)
        if after != list(self.references):
            read = partial(read_joint_batch, n_parts=len(self.descriptors))
            change = Change.between(self.references, after, features_of_batches(snapshot, read))
            self._change_members(change, keeps_structure=True, progress=progress)
        self.next_id = next_id_of(snapshot.manifest, self.references[-1].id, where)
        if snapshot.manifest.get("is_incremental") is True:
            self._held_out = snapshot

    def _read_held_out(self, snapshot: Snapshot) -> HeldOut:
        """The scores in the folder: those written with the models, and those of each batch that was added."""
        table = snapshot.data / TABLE
        ids, classes = [image.id for image in self.references], self.references.classes.tolist()
        first = References(parse_images(read_json(table), table)).classes.tolist()
        held_out = HeldOut.load(snapshot.data, first, len(self.members)).of(ids, classes)
        for number in sorted({image.batch for image in self.references} - {0}):
            folder = batch_folder(snapshot.data, number)
            if not HeldOut.is_in(folder):
                continue
            own = read_json(folder / TABLE)
            if not isinstance(own, list):
                raise ModelFormatError(f"{folder / TABLE}: expected a list of classes; fit the model again.")
            held_out = held_out.joined(HeldOut.load(folder, own, len(self.members)).of(ids, classes))
        return held_out

    def inconsistencies(self) -> list[str]:
        return [text for member in self.members for text in member.inconsistencies()]

    def describe(self) -> str:
        named = [f"{member.settings.method} on {member.descriptor.name}" for member in self.members]
        parts = [f"{weight:.3g} x {name}" for weight, name in zip(self.weights, named, strict=True)]
        return f"log-probabilities of {' + '.join(parts)}"

    @property
    def nbytes(self) -> int:
        return sum(member.nbytes for member in self.members)


def check_alike(members: Sequence[Model]) -> bool:
    """Raise unless models that were fitted one by one know the same classes and images; whether ids agree as well."""
    first = members[0].references
    for member in members[1:]:
        if member.references.classes.tolist() != first.classes.tolist():
            raise InvalidInputError(
                f"methods to fuse must know the same classes; {members[0].settings.method!r} knows "
                f"{len(first.classes)}, {member.settings.method!r} {len(member.references.classes)}."
            )
        rows, own = _numbered(first), _numbered(member.references)
        common = [key for key in rows if key in own]
        if not common or any(first[rows[key]].label != member.references[own[key]].label for key in common):
            raise InvalidInputError("methods to fuse must be fitted on the same labeled images.")
    return all([(i.id, i.name) for i in member.references] == [(i.id, i.name) for i in first] for member in members)


def _part_of(added: dict[int, JointFeatures], part: int, image: Reference) -> ImageFeatures:
    return added[image.id].parts[part]


def _numbered(images: References) -> dict[tuple[str, int], int]:
    """The row of each image, under its name and how often the name came before."""
    seen: dict[str, int] = {}
    result = {}
    for row, image in enumerate(images):
        number = seen[image.name] = seen.get(image.name, -1) + 1
        result[image.name, number] = row
    return result

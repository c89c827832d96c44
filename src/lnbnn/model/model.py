"""A model: references, a method and a calibration."""

from __future__ import annotations

import json
import logging
import os
import pickle
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.cluster.tasks import RayCluster
from lnbnn.descriptors import Descriptor, network_fields, write_network
from lnbnn.errors import ImageReadError, InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.indexes import INDEXES
from lnbnn.methods.base import Method, Progress, no_progress
from lnbnn.model.answers import Answer, no_descriptors
from lnbnn.model.batches import TABLE, features_of_batches, read_batch
from lnbnn.model.folder import Snapshot, digest_of_manifest, read_json
from lnbnn.model.manifest import MAX_UNKNOWN, calibration_fields, calibration_of, image_fields, next_id_of, parse_images
from lnbnn.params import resolve
from lnbnn.reading.extraction import ImageLike, features_of, iter_features, map_anywhere, map_in_order, name_of
from lnbnn.references import Change, Reference, References, can_be_held_out
from lnbnn.version import __version__

if TYPE_CHECKING:
    from lnbnn.descriptors.normalization import Normalizer
    from lnbnn.model.calibration import Calibration
    from lnbnn.reading.store import FeatureStore

__all__ = ["Model", "check_used"]

_logger = logging.getLogger(__name__)


class Model:
    """References, a method that learned from their features, and a calibration or None.

    Parameters
    ----------
    settings : classifier
        The settings of method, descriptor and index: a classifier that is not fitted.
    descriptor : Descriptor

    Attributes
    ----------
    references : References
    method : Method
    normalizer : Normalizer or None
        What was learned about float descriptors.
    calibration : Calibration or None
    feature_kind : list
        Length and type of a descriptor.
    next_id, n_changes : int
        The id of the next image; images changed since the fit or the last calibration.
    choice : dict or None
        What its method and settings were chosen from, as plain values, if they were chosen.
    skipped : list of (name, reason)
        Images that the last fit or change left out.
    snapshot : Snapshot or None
        The folder it was opened from, if nothing was changed in memory since.
    """

    def __init__(self, settings: Any, descriptor: Descriptor) -> None:
        self.settings = settings
        self.descriptor = descriptor
        self.method: Method = settings.make_method(descriptor)
        self.references = References()
        self.normalizer: Normalizer | None = None
        self.calibration: Calibration | None = None
        self.feature_kind: list[Any] = [0, ""]
        self.next_id = self.n_changes = 0
        self.skipped: list[tuple[str, str]] = []
        self.snapshot: Snapshot | None = None
        self.choice: dict[str, Any] | None = None
        self._waiting: list[tuple[Reference, ImageFeatures]] = []

    # ---- learning -----------------------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        settings: Any,
        images: list[ImageLike],
        labels: list[Any],
        *,
        on_error: str = "raise",
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Self:
        """Fit a new model to labeled images; each is read and extracted once."""
        from lnbnn.model.image_reader import ImageReader  # here and in save: an answer needs neither

        model = cls(settings, settings.make_descriptor())
        reader = ImageReader(model.descriptor)
        read = reader.read(
            images, labels, first_id=0, on_error=on_error, n_jobs=settings.n_jobs, store=store, progress=progress
        )
        kept = []
        for image, features in read:
            model.take(image, features)
            kept.append(image)
        check_used(kept, labels, reader.skipped)
        model.finish(kept, reader.skipped, progress)
        return model

    def take(self, image: Reference, features: ImageFeatures) -> None:
        """The next labeled image of a fit. Where a normalizer is to be learned, it waits until all are there."""
        self.feature_kind = features.kind
        if self.normalizer is None and self.descriptor.normalization is not None and self.method.needs_normalizer:
            self._waiting.append((image, features))
        else:
            self.method.add(image, self.method.prepare(features, self.normalizer))

    def finish(self, images: list[Reference], skipped: list[tuple[str, str]], progress: Progress) -> None:
        """All labeled images of a fit are there."""
        learned_from = [features for _, features in self._waiting if features.descriptors.dtype != np.uint8]
        if learned_from:
            assert self.descriptor.normalization is not None
            self.normalizer = self.descriptor.normalization.learn(learned_from)
        for image, features in self._waiting:
            self.method.add(image, self.method.prepare(features, self.normalizer))
        self._waiting = []
        self.references, self.next_id, self.skipped = References(images), images[-1].id + 1, skipped
        self.method.finish(self.references, progress)

    @property
    def min_descriptors(self) -> int:
        """How many descriptors it must hold for a search."""
        return self.method.min_descriptors()

    @property
    def reads_with(self) -> Descriptor | list[Descriptor]:
        """What images are read with."""
        return self.descriptor

    def check_incremental(self) -> None:
        """Raise unless images can be added to, and taken from, the model."""
        if not self.method.is_incremental:
            raise InvalidInputError(
                f"method {self.settings.method!r} learns from all images together; fit it again with all."
            )

    def apply(self, change: Change, *, keeps_structure: bool = False, progress: Progress = no_progress) -> None:
        """Make a change to the references; the model then answers as one fitted on those it has."""
        self.snapshot = None
        self.method.resume(keeps_structure=keeps_structure)
        for image in change.removed:
            self.method.remove(image)
        for image, label in change.relabeled:
            self.method.relabel(image, label)
        for image, features in change.added:
            self.method.add(image, self.method.prepare(features, self.normalizer))
        self._end_change(change.after, len(change), progress)

    def compact(self, *, full: bool, progress: Progress) -> None:
        """Rebuild what is outgrown; with ``full`` also drop what is left of removed images."""
        self.method.compact(full=full, progress=progress)

    def _end_change(self, after: References, n_changes: int, progress: Progress) -> None:
        self.references = after
        self.next_id = max(self.next_id, after[-1].id + 1)
        self.n_changes += n_changes
        self.method.finish(after, progress)

    def absorb(self, other: Model, *, progress: Progress = no_progress) -> list[tuple[int, int]]:
        """Take in the images of another model of the same method and settings, under new ids.

        Returns
        -------
        list of (id in the other, id in this one)
            The images left out because their content is here already.
        """
        self.check_same(other)
        fresh, duplicates = self.new_references(other)
        self.absorb_as(other, fresh, progress)
        return duplicates

    def check_same(self, other: Model) -> None:
        """Raise unless the images of another model can be taken in as they are there."""
        if not self.method.is_incremental:
            raise InvalidInputError(
                f"models of method {self.settings.method!r} cannot be merged; fit one on the images of both."
            )
        mine, theirs = self.settings, other.settings
        if mine.method != theirs.method:
            raise InvalidInputError(f"models to merge must be of one method; got {mine.method} and {theirs.method}.")
        own, others = self.plain_params(), other.plain_params()
        for name in own:
            if own[name] != others[name]:
                raise InvalidInputError(
                    f"models to merge must have the same settings; {name} is {own[name]!r} and {others[name]!r}."
                )
        from lnbnn.descriptors.normalization import same_normalizer

        if not same_normalizer(self.normalizer, other.normalizer):
            raise InvalidInputError(
                "models to merge must have learned the same center and components of their descriptors; "
                "fit one model on the images of both."
            )
        self.method.check_absorbs(other.method)

    def new_references(self, other: Model) -> tuple[dict[int, Reference], list[tuple[int, int]]]:
        """The images of another model under new ids, by those they have there; and as in :meth:`absorb`."""
        known = {image.digest: image.id for image in self.references if image.digest is not None}
        fresh: dict[int, Reference] = {}
        duplicates = []
        for image in other.references:
            if image.digest in known:
                duplicates.append((image.id, known[image.digest]))
            else:
                fresh[image.id] = replace(image, id=self.next_id + len(fresh), batch=0)
        self.next_id += len(fresh)
        return fresh, duplicates

    def absorb_as(self, other: Model, fresh: dict[int, Reference], progress: Progress) -> None:
        """Take in the images of another model; ``fresh`` has their new references by their ids there."""
        images = list(self.references)
        self.method.resume()
        for place, image in enumerate(other.references):
            if image.id in fresh:
                images.append(replace(fresh[image.id], n_descriptors=image.n_descriptors))
                self.method.absorb(other.method, place, images[-1])
                progress("merging", place + 1, len(other.references))
        n_new = len(images) - len(self.references)
        self.snapshot = None
        self._end_change(References(images), n_new, progress)

    # ---- scoring ------------------------------------------------------------------------------------------------

    def features(self, image: ImageLike, store: FeatureStore | None = None) -> ImageFeatures:
        """The features of an image, read from the store if they are there, as the method compares them."""
        return self.method.prepare(features_of(image, self.descriptor, store), self.normalizer)

    def iter_scores(
        self,
        images: Sequence[ImageLike],
        store: FeatureStore | None = None,
        *,
        log_proba: bool = False,
    ) -> Iterator[NDArray[np.float64] | ImageReadError | None]:
        """The scores of each image in order; None for one without descriptors, the error for one that cannot be read.

        With ``log_proba`` two rows, scores and log-probabilities; of a model that is not calibrated only the first.
        """

        n_jobs = self.settings.n_jobs
        if isinstance(n_jobs, RayCluster) and not self.opens_elsewhere:
            read = iter_features(images, self.reads_with, n_jobs=n_jobs, store=store)
            return map_in_order(partial(self._scores_of, log_proba=log_proba), read, n_jobs)
        return map_anywhere(partial(self._scores_of_image, store=store, log_proba=log_proba), images, n_jobs)

    def _scores_of_image(
        self, image: ImageLike, store: FeatureStore | None, log_proba: bool
    ) -> NDArray[np.float64] | ImageReadError | None:
        try:
            features = features_of(image, self.reads_with, store)
        except ImageReadError as error:
            return error
        return self._scores_of(features, log_proba)

    def _scores_of(self, read: Any, log_proba: bool) -> NDArray[np.float64] | ImageReadError | None:
        """As :meth:`iter_scores`, of an image that was read."""
        if isinstance(read, ImageReadError):
            return read
        features = self.method.prepare(read, self.normalizer)
        if not len(features):
            return None
        scores = self.method.scores(features)
        if not log_proba:
            return scores
        if self.calibration is None or not self.is_calibrated:
            return scores[None]
        scaled = scores / self.method.score_scale(len(features))
        return np.stack([scores, self.calibration.log_proba(scaled)])

    def is_saved(self) -> bool:
        """Whether what it learned from, and its settings, are those of the folder it was opened from."""
        return self.snapshot is not None and self.plain_params() == self.snapshot.manifest["params"]

    @property
    def opens_elsewhere(self) -> bool:
        """Whether a process that opens the folder has the same model, and searches it by itself."""
        if self.snapshot is None or not self.is_saved() or self.searches_elsewhere():
            return False
        return all(self.snapshot.manifest.get(name) == value for name, value in self.learned_fields().items())

    def searches_elsewhere(self) -> bool:
        """Whether its index is held by other machines."""
        index = getattr(self.settings, "index", None)
        return index is not None and bool(resolve(INDEXES, index, "index").is_remote)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled for a worker, a model is the name of its folder, and what its manifest must be."""
        from lnbnn.model.opening import reopen_model

        if self.snapshot is None or not self.opens_elsewhere:
            raise pickle.PicklingError("a model is pickled by its folder: save it, and load it from there.")
        folder = os.path.abspath(self.snapshot.folder)
        return reopen_model, (folder, digest_of_manifest(self.snapshot.manifest), self.snapshot.trust_network)

    def iter_answers(
        self, images: Sequence[ImageLike], *, store: FeatureStore | None = None, reject: float | None = None
    ) -> Iterator[Answer]:
        """Yield an :class:`Answer` per image, in order, as soon as it is ready; a bad file does not stop the others."""
        classes = self.references.classes.tolist()
        for position, found in enumerate(self.iter_scores(images, store, log_proba=True)):
            name = name_of(images[position], position)
            if found is None or isinstance(found, ImageReadError):
                reason = no_descriptors(name) if found is None else str(found)
                yield Answer(name, None, (), reason, unreadable=found is not None)
                continue
            order = np.argsort(-found[0], kind="stable")
            rate = float(self.false_accept_rates(found[:1])[0]) if self.can_reject else None
            is_unknown = None if reject is None or rate is None else rate > reject
            yield Answer(
                name,
                None if is_unknown else classes[order[0]],
                tuple((classes[place], float(found[0][place])) for place in order),
                is_unknown=is_unknown,
                probabilities=tuple(map(float, np.exp(found[-1][order]))) if self.is_calibrated else (),
                false_accept_rate=rate,
            )

    # ---- calibration --------------------------------------------------------------------------------------------

    @property
    def is_calibrated(self) -> bool:
        """Whether there are probabilities."""
        return self.calibration is not None and self.calibration.temperature is not None

    @property
    def can_reject(self) -> bool:
        """Whether images of unknown classes can be rejected."""
        return self.calibration is not None and self.calibration.can_reject

    def false_accept_rates(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest rates at which images of these scores would be accepted."""
        assert self.calibration is not None
        return self.calibration.false_accept_rates(scores)

    def held_out_scores(
        self, progress: Progress = no_progress, rows: Sequence[int] | None = None
    ) -> NDArray[np.float64] | None:
        """Leave-one-out scores of the references, or None if the method cannot compute them."""
        return self.method.held_out_scores(progress, rows)

    def unknown_scores(self, progress: Progress = no_progress) -> NDArray[np.float64] | None:
        """Scores of each reference with its class left out, or None if the method cannot compute them."""
        return self.method.unknown_scores(progress)

    def score_scales(self) -> NDArray[np.float64]:
        """What the scores of each reference are divided by before the softmax."""
        return np.array([self.method.score_scale(image.n_descriptors) for image in self.references])

    def calibrate(
        self, held_out: ArrayLike | None = None, *, unknown: bool = False, progress: Progress = no_progress
    ) -> None:
        """Learn probabilities, and with ``unknown`` what rejecting goes by, from scores of the references."""
        from lnbnn.model.calibration import Calibration  # few models are calibrated

        found = self.held_out_scores(progress) if held_out is None else held_out
        if found is None:
            raise InvalidInputError(
                f"method {self.settings.method!r} cannot leave its labeled images out one at a time; give calibrate "
                "the scores that lnbnn.classifiers.cross_fitting.cross_fitted_scores makes of them."
            )
        scores = np.asarray(found, dtype=np.float64)
        shape = (len(self.references), len(self.references.classes))
        if scores.shape != shape:
            raise InvalidInputError(
                f"held_out must hold a row per image and a column per class, shape {shape}; got {scores.shape}."
            )
        places = self.references.places
        used = can_be_held_out(places)
        if not used.any():
            raise InvalidInputError("calibration needs a class with at least two images; every class has one.")
        self.calibration = Calibration.learn(
            (scores / self.score_scales()[:, None])[used],
            places[used],
            unknown_by_class=self.unknown_by_class(progress) if unknown else None,
        )
        self.n_changes = 0

    def calibrated(self, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-probabilities of scores that were divided by what belongs to the image, as they are fused."""
        assert self.calibration is not None
        return self.calibration.log_softmax(scaled)

    def unknown_by_class(self, progress: Progress = no_progress) -> tuple[NDArray[np.float64], ...]:
        """How far the best class is above the others for each reference with its class left out, by class."""
        if len(self.references.classes) < 3:
            raise InvalidInputError("telling what is unknown needs at least three classes; the model has fewer.")
        scores = self.unknown_scores(progress)
        if scores is None:
            raise InvalidInputError(
                f"method {self.settings.method!r} cannot leave a class out, so it cannot tell what is unknown."
            )
        from lnbnn.model.unknown import distinctions_by_class

        return distinctions_by_class(scores, self.references.places, MAX_UNKNOWN)

    # ---- the folder ---------------------------------------------------------------------------------------------

    def plain_params(self) -> dict[str, Any]:
        """The settings as plain values; weights of place and size are those in use, a descriptor is its name."""
        params: dict[str, Any] = self.settings.plain_params(self.descriptor)
        return params

    def manifest(self) -> dict[str, Any]:
        """What the manifest says of the model; its folder adds what it says of the files."""
        return {
            "lnbnn_version": __version__,
            "method": self.settings.method,
            "params": self.plain_params(),
            "is_incremental": self.method.is_incremental,
            "min_descriptors": self.min_descriptors,
            "features": self.feature_kind,
            **image_fields(self._indexed()),
            "next_id": self.next_id,
            "n_indexed": self.references.n_descriptors,
            "n_changes": self.n_changes,
            **({} if self.method.max_pending is None else {"max_pending": self.method.max_pending}),
            **network_fields(self.descriptor),
            **self.learned_fields(),
            **({} if self.choice is None else {"choice": self.choice}),
        }

    def learned_fields(self) -> dict[str, Any]:
        """What the manifest says of what calibrating learns."""
        return calibration_fields(self.calibration)

    def _indexed(self) -> list[Reference]:
        """The references as they are once the model is written: all of them among its indexed files."""
        return [replace(image, batch=0) for image in self.references]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model as a folder; see ``docs/model-format.md``."""
        from lnbnn.model.writer import write_model

        write_model(path, self.manifest(), self.save_files, overwrite=overwrite)

    def save_files(self, folder: Path) -> None:
        """Write all files of the model but the manifest."""
        self.method.save(folder)
        table = json.dumps(image_fields(self._indexed()), separators=(",", ":"))
        (folder / TABLE).write_text(table, encoding="ascii")
        if self.normalizer is not None:
            self.normalizer.save(folder)
        write_network(self.descriptor, folder)

    @classmethod
    def open(cls, settings: Any, descriptor: Descriptor, snapshot: Snapshot) -> Self:
        """The model of an open folder."""
        model = cls(settings, descriptor)
        model.feature_kind = snapshot.manifest["features"]
        warm_up = threading.Thread(target=descriptor.warm_up)  # while the files are read
        warm_up.start()
        try:
            if (
                descriptor.normalization is not None and model.method.needs_normalizer
            ):  # 8-bit descriptors are used as they are
                from lnbnn.descriptors.normalization import Normalizer

                model.normalizer = Normalizer.load(snapshot.data)
            table = snapshot.data / TABLE
            model.references = References(parse_images(read_json(table), table))
            model.method.load(snapshot.data, model.references)
            model.follow(snapshot)
        finally:
            warm_up.join()
        return model

    def follow(self, snapshot: Snapshot, progress: Progress = no_progress) -> None:
        """Become what the manifest says, from another state of the same files."""
        where = snapshot.folder
        before = {image.id: image for image in self.references}
        after = parse_images(snapshot.manifest, where)
        for image in after:
            if image.id in before and before[image.id].n_descriptors != image.n_descriptors:
                raise ModelFormatError(f"{where}: image {image.id} has changed; fit the model again.")
        if after != list(self.references):
            change = Change.between(self.references, after, features_of_batches(snapshot, read_batch))
            if len(change):
                self.apply(change, keeps_structure=True, progress=progress)
        self.next_id = next_id_of(snapshot.manifest, self.references[-1].id, where)
        self.calibration = calibration_of(snapshot.manifest)
        self.n_changes = snapshot.manifest.get("n_changes", 0)
        self.choice = snapshot.manifest.get("choice")
        self.snapshot = snapshot

    def inconsistencies(self) -> list[str]:
        """What does not fit together in a model whose files are whole, one line each."""
        return self.method.inconsistencies()

    def describe(self) -> str:
        """A one-line description of the method."""
        return self.method.describe()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the model takes, memory-mapped parts included."""
        return self.method.nbytes

    def facts(self) -> dict[str, Any]:
        """What the model holds, as plain values; the bytes on disk are None for a model that was not opened."""
        files = [] if self.snapshot is None else [file for file in self.snapshot.folder.rglob("*") if file.is_file()]
        classes = {str(label): {"n_images": 0, "n_descriptors": 0} for label in self.references.classes}
        for image in self.references:
            counts = classes[str(image.label)]
            counts["n_images"] += 1
            counts["n_descriptors"] += image.n_descriptors
        return {
            "method": self.settings.method,
            "n_classes": len(classes),
            "n_images": len(self.references),
            "n_descriptors": self.references.n_descriptors,
            "index": self.describe(),
            "bytes_on_disk": sum(file.stat().st_size for file in files) if files else None,
            "bytes_in_memory": self.nbytes,
            "settings": self.plain_params(),
            "choice": self.choice,
            "classes": classes,
        }


def check_used(kept: Sequence[Reference], labels: Sequence[Any], skipped: list[tuple[str, str]]) -> None:
    """Raise if no image can be used; log the classes that are left out."""
    if not kept:
        raise InvalidInputError(f"none of the {len(skipped)} images can be used: {skipped[0][1]}")
    for label in sorted(set(labels) - {image.label for image in kept}):
        _logger.warning("class %r is left out: none of its images can be used", label)

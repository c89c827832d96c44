"""Changes to a model folder, each one transaction: images added, removed, relabelled; folders compacted, checked.

Adding, removing and relabelling open no index: they take as long as reading the images and writing the list of images.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lnbnn.classifiers import INCREMENTAL, load
from lnbnn.descriptors import Descriptor, open_descriptor
from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.model.folder import check_target, damaged_files, open_model, read_manifest
from lnbnn.model.image_table import StoredImage, parse_images, table_fields, write_batch
from lnbnn.model.intake import Intake, check_enough_left, check_ids, check_label_kind, check_labels, check_next_id
from lnbnn.model.writer import ModelWriter, change_model
from lnbnn.reading.extraction import ImageLike, Progress, no_progress
from lnbnn.reading.store import FeatureStore

__all__ = ["CheckReport", "ModelEditor", "calibrate", "check_model", "compact", "edit", "list_images", "merge"]

_logger = logging.getLogger(__name__)

_MIN_PENDING = 50_000  # descriptors, added or removed, that every opening may make up for by itself
_PENDING_SHARE = 32
_REMOVED_SHARE = 4


@contextmanager
def edit(path: str | os.PathLike[str], *, trust_network: bool = False) -> Iterator[ModelEditor]:
    """Change a model folder: all that is done in the block, or nothing if it ends with an error.

    Other processes go on reading the model as it was; a second one that wants to change it gets a
    :class:`~lnbnn.errors.ModelInUseError` at once. A model that is loaded follows with its ``refresh``.
    ``trust_network`` is that of :func:`lnbnn.load`.

    Examples
    --------
    >>> with edit("model") as model:                               # doctest: +SKIP
    ...     model.add(["new.jpg"], ["cat"])
    ...     model.relabel(17, "dog")
    """
    with change_model(path) as writer:
        editor = ModelEditor(writer, trust_network=trust_network)
        yield editor
        editor._commit()


class ModelEditor:
    """The images of a model folder, to be changed; made by :func:`edit`.

    Attributes
    ----------
    skipped : list of (name, reason)
        What :meth:`add` left out: files that cannot be read, images without descriptors, and doubles.
    doubles : list of (name, id)
        Those whose content the image of this id has.
    """

    def __init__(self, writer: ModelWriter, *, trust_network: bool = False) -> None:
        self._writer = writer
        self._trust_network = trust_network
        manifest, where = writer.manifest, writer.folder
        if manifest.get("is_incremental") is not True or manifest.get("method") not in INCREMENTAL:
            raise InvalidInputError(
                f"{where}: method {manifest.get('method')!r} learns from all images together; fit it again with all."
            )
        found = parse_images(manifest, where)
        self._images = {image.id: image for image in found}
        self._next_id = check_next_id(manifest.get("next_id"), found[-1].id, where)
        self._added: dict[int, ImageFeatures] = {}
        self._descriptor: Descriptor | None = None
        self._n_changes = 0
        self.skipped: list[tuple[str, str]] = []
        self.doubles: list[tuple[str, int]] = []

    @property
    def images(self) -> list[StoredImage]:
        """The images as they are now, ids ascending."""
        return list(self._images.values())

    def add(
        self,
        X: Sequence[ImageLike],
        y: ArrayLike,
        *,
        on_error: str = "raise",
        n_jobs: int | None = None,
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> list[StoredImage]:
        """Add labelled images, of known or new classes; returns those that were, with their ids.

        Parameters are those of the classifiers' ``fit``. An image whose content is in the model already is left out.
        """
        images = list(X)
        given = check_labels(y, len(images))
        check_label_kind(given[0], next(iter(self._images.values())).label)
        known = {image.digest: image.id for image in self._images.values() if image.digest is not None}
        intake = Intake(self._make_descriptor(), known)
        self.skipped, self.doubles = intake.skipped, intake.doubles
        kind = tuple(self._writer.manifest.get("features", ()))
        found = list(
            intake.read(
                images,
                given,
                first_id=self._next_id,
                on_error=on_error,
                n_jobs=n_jobs,
                store=store,
                progress=progress,
            )
        )
        for _, features in found:
            if (features.n_dims, features.descriptors.dtype.name) != kind:
                raise InvalidInputError(
                    f"the model's descriptors are {kind}; got {features.descriptors.dtype} of length {features.n_dims}."
                )
        for image, features in found:
            self._images[image.id], self._added[image.id] = image, features
        self._next_id += len(found)
        self._n_changes += len(found)
        return [image for image, _ in found]

    def remove(self, ids: int | Iterable[int]) -> list[StoredImage]:
        """Take images out by their ids; returns them. Their ids are never given again."""
        wanted = check_ids([ids] if isinstance(ids, int | np.integer) else ids, self._images)
        gone = set(wanted)
        check_enough_left(
            sum(image.n_descriptors for image in self._images.values() if image.id not in gone),
            self._writer.manifest.get("min_descriptors", 1),
        )
        self._n_changes += len(wanted)
        for number in wanted:
            self._added.pop(number, None)
        return [self._images.pop(number) for number in wanted]

    def relabel(self, ids: int | Iterable[int], label: Any) -> list[StoredImage]:
        """Give images, by their ids, another label, known or new; returns them as they are now."""
        wanted = check_ids([ids] if isinstance(ids, int | np.integer) else ids, self._images)
        (label,) = check_labels([label], 1)
        check_label_kind(label, self._images[wanted[0]].label)
        self._n_changes += sum(self._images[number].label != label for number in wanted)
        for number in wanted:
            self._images[number] = replace(self._images[number], label=label)
        return [self._images[number] for number in wanted]

    def ids_of(self, label: Any) -> list[int]:
        """The ids of the images of a class."""
        found = [image.id for image in self._images.values() if image.label == label]
        if not found:
            raise InvalidInputError(f"no image of the model has the label {label!r}; lnbnn list MODEL shows them.")
        return found

    def label_of(self, text: str) -> Any:
        """A label given as text, as a label of the model's kind."""
        if isinstance(next(iter(self._images.values())).label, str):
            return text
        try:
            return int(text)
        except ValueError:
            raise InvalidInputError(f"the model's labels are whole numbers; got {text!r}.") from None

    def _make_descriptor(self) -> Descriptor:
        if self._descriptor is None:
            manifest, folder = self._writer.manifest, self._writer.folder
            try:
                self._descriptor = open_descriptor(
                    manifest, folder / manifest["data"], trust_network=self._trust_network
                )
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise ModelFormatError(f"{folder}: the manifest is damaged ({error}); fit the model again.") from error
        return self._descriptor

    def _commit(self) -> None:
        if not self._n_changes:
            return
        if self._added:
            batch = self._writer.write_batch(lambda folder: write_batch(folder, self._added.items()))
            for number in self._added:
                self._images[number] = replace(self._images[number], batch=batch)
        manifest = self._writer.manifest
        changed = {
            **manifest,
            **table_fields(self.images),
            "next_id": self._next_id,
            "n_changes": manifest.get("n_changes", 0) + self._n_changes,
        }
        self._writer.commit(changed)
        self._added, self._n_changes = {}, 0
        reason = _outgrown(self._writer.manifest)
        if reason is not None:
            _logger.warning("%s: the index is brought up to date: %s", self._writer.folder, reason)
            try:
                _write_anew(self._writer, full=False, trust_network=self._trust_network)
            except (LnbnnError, OSError, MemoryError) as error:  # the change itself is safe
                _logger.warning("%s: that failed (%s); lnbnn compact does it later", self._writer.folder, error)


def _outgrown(manifest: dict[str, Any]) -> str | None:
    """Why the files of a model should be written anew, if they should: what every opening makes up for is too much."""
    images = parse_images(manifest, Path())
    n_indexed = manifest.get("n_indexed", 0)
    n_pending = sum(image.n_descriptors for image in images if image.batch)
    n_kept = sum(image.n_descriptors for image in images if not image.batch)
    if n_pending > max(_MIN_PENDING, n_indexed // _PENDING_SHARE):
        return f"{n_pending:,} descriptors were added to {n_indexed:,}"
    if n_indexed - n_kept > max(_MIN_PENDING, n_indexed // _REMOVED_SHARE):
        return f"{n_indexed - n_kept:,} of {n_indexed:,} descriptors were removed"
    return None


def _write_anew(writer: ModelWriter, *, full: bool, trust_network: bool, progress: Progress = no_progress) -> None:
    for name in damaged_files(open_model(writer.folder), lambda done, n: progress("checking files", done, n)):
        raise ModelFormatError(
            f"{writer.folder / name}: its checksum is wrong, the file is damaged; fit the model again."
        )
    classifier = load(writer.folder, trust_network=trust_network)
    lock = classifier._snapshot.lock if classifier._snapshot is not None else None
    classifier._compact(full=full, progress=progress)
    images = classifier.stored_images()
    writer.write_data(lambda folder: classifier._save_all(folder, images))
    writer.commit(classifier._manifest(images))
    if lock is not None:
        lock.close()  # so that the files just replaced can go


def compact(
    path: str | os.PathLike[str], *, trust_network: bool = False, progress: Progress = no_progress
) -> tuple[int, int]:
    """Write a model's files anew without what was removed; returns its size in bytes before and after.

    The index is trained anew if it has outgrown its training, or if anything was removed.
    """
    with change_model(path, replaces_all=True) as writer:
        before = _n_bytes(writer.manifest)
        if writer.manifest.get("method") in INCREMENTAL:
            _write_anew(writer, full=True, trust_network=trust_network, progress=progress)
        return before, _n_bytes(writer.manifest)


def _n_bytes(manifest: dict[str, Any]) -> int:
    return sum(size for size, _ in manifest["files"].values())


def calibrate(path: str | os.PathLike[str], *, trust_network: bool = False, progress: Progress = no_progress) -> None:
    """Calibrate a model in its folder: probabilities, and what it takes to tell images of unknown classes."""
    model = load(path, trust_network=trust_network)
    model.calibrate(unknown=True, progress=progress)
    opened = model._snapshot.manifest["generation"] if model._snapshot is not None else None
    with change_model(path) as writer:
        if writer.manifest["generation"] != opened:
            raise LnbnnError(f"{path}: the model was changed while it was calibrated; calibrate it again.")
        writer.commit({**writer.manifest, **model._calibration_fields(), "n_changes": 0})


def list_images(path: str | os.PathLike[str]) -> list[StoredImage]:
    """The labelled images of a model folder."""
    where, manifest = Path(path), read_manifest(path)
    if "images" not in manifest:  # a fusion: the images of its first method
        where = where / manifest["data"] / "member0"
        manifest = read_manifest(where)
    return parse_images(manifest, where)


def merge(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    trust_network: bool = False,
    progress: Progress = no_progress,
) -> list[tuple[int, int]]:
    """Write a model of the images of two, which must have the same method and settings.

    Images of the first keep their ids; those of the second get new ones. An image whose content both have is taken
    from the first.

    Returns
    -------
    list of (id in the second, id in the first)
        The images that both have.
    """
    check_target(target, overwrite=overwrite)
    model, other = (load(path, trust_network=trust_network) for path in (first, second))
    doubles = model.absorb(other, progress=progress)
    model.save(target, overwrite=overwrite)
    return doubles


@dataclass(frozen=True)
class CheckReport:
    """What :func:`check_model` found: ``problems`` is empty for a model that is whole."""

    generation: int
    n_files: int
    n_bytes: int
    n_images: int
    n_descriptors: int
    problems: tuple[str, ...]


def check_model(
    path: str | os.PathLike[str], *, trust_network: bool = False, progress: Progress = no_progress
) -> CheckReport:
    """Read every byte of a model, compare every checksum and count, and open it."""
    snapshot = open_model(path)
    files = snapshot.manifest["files"]
    damaged = damaged_files(snapshot, lambda done, total: progress("checking files", done, total))
    problems = [f"{name}: its checksum is wrong" for name in damaged]
    n_images = n_descriptors = 0
    if not problems:
        try:
            model = load(path, trust_network=trust_network)
            problems += model.inconsistencies()
            n_images = len(model.images_)
            n_descriptors = sum(image.n_descriptors for image in model.images_)
        except LnbnnError as error:
            problems.append(str(error))
    return CheckReport(
        snapshot.manifest["generation"], len(files), _n_bytes(snapshot.manifest), n_images, n_descriptors, (*problems,)
    )

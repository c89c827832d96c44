"""Changes to a model folder, each a transaction: add, remove and relabel images; compact, check, merge.

Adding, removing and relabeling do not open the index: they take as long as reading the images and writing their list.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lnbnn.descriptors import Descriptor, distinct, open_descriptor
from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError
from lnbnn.indexes.base import LeftOver
from lnbnn.methods import FUSION, INCREMENTAL
from lnbnn.model.batches import write_batch
from lnbnn.model.folder import damaged_files, open_model, read_manifest
from lnbnn.model.held_out import weights_are_due
from lnbnn.model.manifest import CALIBRATION_FIELDS, image_fields, next_id_of, parse_images
from lnbnn.model.references_editor import ReferenceEditor
from lnbnn.model.writer import ModelWriter, change_model, check_target
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.references import Reference

if TYPE_CHECKING:
    from lnbnn.model.fusion import FusionModel
    from lnbnn.model.model import Model

__all__ = [
    "CheckReport",
    "calibrate",
    "check_model",
    "compact",
    "edit",
    "list_images",
    "merge",
    "prepare_to_reject",
    "refit",
]

_logger = logging.getLogger(__name__)

_MIN_PENDING = 50_000  # descriptors, added or removed, that every opening may make up for by itself
_PENDING_SHARE = 32
_REMOVED_SHARE = 4


@contextmanager
def edit(path: str | os.PathLike[str], *, trust_network: bool = False) -> Iterator[ReferenceEditor]:
    """Change a model folder in one transaction: everything in the block, or nothing if it raises.

    Other processes keep reading the previous version; a second one that wants to change the model gets a
    :class:`~lnbnn.errors.ModelInUseError` at once. A loaded model is updated by its ``refresh``. ``trust_network`` is
    that of :func:`lnbnn.load`.

    Examples
    --------
    >>> with edit("model") as model:                               # doctest: +SKIP
    ...     model.add(["new.jpg"], ["cat"])
    ...     model.relabel(17, "dog")
    """
    with change_model(path) as writer:
        editor = _editor(writer, trust_network)
        yield editor
        if editor.n_changes:
            _commit(writer, editor, trust_network)


def _editor(writer: ModelWriter, trust_network: bool) -> ReferenceEditor:
    manifest, where = writer.manifest, writer.folder
    if not _is_incremental(manifest):
        raise InvalidInputError(
            f"{where}: method {manifest.get('method')!r} learns from all images together; fit it again with all."
        )
    images = parse_images(manifest, where)

    def descriptor() -> Descriptor | list[Descriptor]:
        data = where / manifest["data"]
        try:
            if manifest["method"] != FUSION:
                return open_descriptor(manifest, data, trust_network=trust_network)
            folders = [data / f"member{place}" for place in range(len(manifest["members"]))]
            read = [(read_manifest(folder), folder) for folder in folders]
            return distinct(
                [open_descriptor(own, folder / own["data"], trust_network=trust_network) for own, folder in read]
            )[0]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(f"{where}: the manifest is damaged ({error}); fit the model again.") from error

    return ReferenceEditor(
        images,
        next_id_of(manifest, images[-1].id, where),
        min_descriptors=manifest.get("min_descriptors", 1),
        descriptor=descriptor,
        feature_kind=manifest.get("features"),
    )


def _is_incremental(manifest: dict[str, Any]) -> bool:
    return manifest.get("is_incremental") is True and manifest.get("method") in INCREMENTAL | {FUSION}


def _commit(writer: ModelWriter, editor: ReferenceEditor, trust_network: bool) -> None:
    manifest = writer.manifest
    learned: dict[str, Any] = {}
    if manifest["method"] == FUSION and _concerns_members(manifest, editor):
        fusion = cast("FusionModel", _load(writer.folder, trust_network))
        fusion.apply(editor.change(), keeps_structure=True)
        learned = fusion.learned_fields()
        if editor.added:
            editor.set_batch(writer.write_batch(lambda folder: fusion.write_added(folder, editor.added)))
    else:
        if manifest["method"] == FUSION:
            learned = {"n_since_weights": manifest.get("n_since_weights", 0) + editor.n_changes}
        if editor.added:
            editor.set_batch(writer.write_batch(lambda folder: write_batch(folder, editor.added.items())))
    writer.commit(
        {
            **manifest,
            **image_fields(editor.images),
            **learned,
            "next_id": editor.next_id,
            "n_changes": manifest.get("n_changes", 0) + editor.n_changes,
        }
    )
    reason = _outgrown(editor.images, manifest.get("n_indexed", 0), manifest.get("max_pending"))
    if reason is not None:
        _logger.warning("%s: the index is brought up to date: %s", writer.folder, reason)
        try:
            _rewrite(writer, full=False, trust_network=trust_network)
        except (LnbnnError, OSError, MemoryError) as error:  # the change itself is safe
            _logger.warning("%s: that failed (%s); lnbnn compact does it later", writer.folder, error)


def _concerns_members(manifest: dict[str, Any], editor: ReferenceEditor) -> bool:
    """Whether a fusion must be opened for a change: for its weights, or as a member could be left with too little."""
    n_changes = manifest.get("n_since_weights", 0) + editor.n_changes
    return weights_are_due(n_changes, len(editor.images)) or editor.has_removed


def _outgrown(images: list[Reference], n_indexed: int, max_pending: int | None = None) -> str | None:
    """Why the files of a model should be rewritten, if they should: what every opening makes up for is too much."""
    if max_pending is None:
        max_pending = max(_MIN_PENDING, n_indexed // _PENDING_SHARE)
    n_pending = sum(image.n_descriptors for image in images if image.batch)
    n_kept = sum(image.n_descriptors for image in images if not image.batch)
    if n_pending > max_pending:
        return f"{n_pending:,} descriptors were added to {n_indexed:,}"
    if n_indexed - n_kept > max(_MIN_PENDING, n_indexed // _REMOVED_SHARE):
        return f"{n_indexed - n_kept:,} of {n_indexed:,} descriptors were removed"
    return None


def _rewrite(writer: ModelWriter, *, full: bool, trust_network: bool, progress: Progress = no_progress) -> None:
    for name in damaged_files(open_model(writer.folder), lambda done, n: progress("checking files", done, n)):
        raise ModelFormatError(
            f"{writer.folder / name}: its checksum is wrong, the file is damaged; fit the model again."
        )
    model = _load(writer.folder, trust_network)
    assert model.snapshot is not None
    lock = model.snapshot.lock
    model.compact(full=full, progress=progress)
    writer.write_data(model.save_files)
    writer.commit(model.manifest())
    lock.close()  # so that the files just replaced can go


def compact(
    path: str | os.PathLike[str], *, trust_network: bool = False, progress: Progress = no_progress
) -> tuple[int, int]:
    """Rewrite a model's files without what was removed; returns its size in bytes before and after.

    The index is retrained if it has outgrown its training, or if anything was removed.
    """
    with change_model(path, replaces_all=True) as writer:
        before = _n_bytes(writer.manifest)
        if _is_incremental(writer.manifest):
            _rewrite(writer, full=True, trust_network=trust_network, progress=progress)
        return before, _n_bytes(writer.manifest)


def _load(path: str | os.PathLike[str], trust_network: bool) -> Model:
    from lnbnn.model.opening import load_model  # here: most changes need no method, and what it loads takes a while

    return load_model(path, trust_network=trust_network)


def _n_bytes(manifest: dict[str, Any]) -> int:
    return sum(size for size, _ in manifest["files"].values())


def calibrate(
    path: str | os.PathLike[str],
    *,
    unknown: bool = True,
    trust_network: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Calibrate a model in its folder: probabilities, and the rejection of unknown classes."""
    model = _load(path, trust_network)
    model.calibrate(unknown=unknown, progress=progress)
    _store_calibration(model)


def _store_calibration(model: Model) -> None:
    assert model.snapshot is not None
    path = model.snapshot.folder
    with change_model(path) as writer:
        if writer.manifest["generation"] != model.snapshot.manifest["generation"]:
            raise LnbnnError(f"{path}: the model was changed while it was calibrated; calibrate it again.")
        kept = {name: value for name, value in writer.manifest.items() if name not in CALIBRATION_FIELDS}
        writer.commit({**kept, **model.learned_fields(), "n_changes": 0})


def prepare_to_reject(
    model: Model, *, note: Callable[[str], None] = _logger.warning, progress: Progress = no_progress
) -> None:
    """Calibrate a model that cannot reject yet, and store the calibration in its folder if possible.

    ``note`` is called with what is done, and if so many images have changed that the model should be calibrated again.
    """
    where = "the model" if model.snapshot is None else str(model.snapshot.folder)
    if model.can_reject:
        if 10 * model.n_changes > len(model.references):
            note(
                f"{model.n_changes} images changed since the model was calibrated; "
                f"lnbnn calibrate {where} brings it up to date"
            )
        return
    note(f"{where}: calibrating, once: each image is classified without itself, and without its class")
    model.calibrate(unknown=True, progress=progress)
    if model.snapshot is not None:
        try:
            _store_calibration(model)
        except LnbnnError as error:
            note(f"not stored: {error}")


def refit(
    path: str | os.PathLike[str],
    classifier: Any,
    files: Mapping[int, str | os.PathLike[str]],
    *,
    prepare: Callable[[Model], None] = lambda model: None,
    progress: Progress = no_progress,
) -> Model:
    """Fit another classifier on the images of a model, and replace the model, with the same ids and labels.

    ``files`` has the file of each image by id; its content must not have changed. ``prepare`` is called with the new
    model before it is written. Others keep using the previous model; if it is changed in the meantime, that change
    stays and this one is refused.
    """
    from lnbnn.model.image_reader import NumberedPath

    manifest, images = read_manifest(path), list_images(path)
    missing = [image.name for image in images if image.id not in files]
    if missing:
        raise InvalidInputError(f"{len(missing)} photos of the model are missing, such as {missing[0]}.")
    numbered = [NumberedPath(os.fspath(files[image.id]), image.id) for image in images]
    model: Model = classifier.fit(numbered, [image.label for image in images], progress=progress).fitted()
    kept = {image.id: image.digest for image in model.references}
    for image in images:
        if kept.get(image.id) != image.digest:
            raise InvalidInputError(f"{image.name}: cannot be used, or has changed; the model was left as it was.")
    prepare(model)
    with change_model(path) as writer:
        if writer.manifest["generation"] != manifest["generation"]:
            raise LnbnnError(f"{path}: the model was changed during the refit; try again.")
        model.next_id = next_id_of(writer.manifest, images[-1].id, Path(path))
        writer.write_data(model.save_files)
        writer.commit(model.manifest())
    return model


def list_images(path: str | os.PathLike[str]) -> list[Reference]:
    """The labeled images of a model folder."""
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
    """Merge two models, which must have the same method and settings, into a new one.

    Images of the first keep their ids; those of the second get new ones. Duplicates are taken from the first.

    Returns
    -------
    list of (id in the second, id in the first)
        The images that both have.
    """
    check_target(target, overwrite=overwrite)
    model, other = (_load(path, trust_network) for path in (first, second))
    duplicates = model.absorb(other, progress=progress)
    model.save(target, overwrite=overwrite)
    return duplicates


@dataclass(frozen=True)
class CheckReport:
    """What :func:`check_model` found: ``problems`` is empty for an intact model, ``left_over`` does no harm."""

    generation: int
    n_files: int
    n_bytes: int
    n_images: int
    n_descriptors: int
    problems: tuple[str, ...]
    left_over: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        lines = {"problems": list(self.problems), "left_over": list(self.left_over)}
        return {"whole": not self.problems, **lines} | {
            name: value for name, value in asdict(self).items() if name not in lines
        }


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
            model = _load(path, trust_network)
            problems += model.inconsistencies()
            n_images, n_descriptors = len(model.references), model.references.n_descriptors
        except LnbnnError as error:
            problems.append(str(error))
    return CheckReport(
        snapshot.manifest["generation"],
        len(files),
        _n_bytes(snapshot.manifest),
        n_images,
        n_descriptors,
        tuple(text for text in problems if not isinstance(text, LeftOver)),
        tuple(text for text in problems if isinstance(text, LeftOver)),
    )

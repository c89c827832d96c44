"""The model behind the page: one thread opens and changes it while others query the version they have."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnbnn.classifiers import load
from lnbnn.classifiers.base import Classifier
from lnbnn.classifiers.options import make_classifier
from lnbnn.errors import InvalidInputError, LnbnnError, ModelInUseError
from lnbnn.model.changes import edit, refit
from lnbnn.model.folder import MANIFEST, is_model
from lnbnn.model.references_editor import ReferenceEditor
from lnbnn.model.writer import check_target, discard_model
from lnbnn.page.photo_store import PhotoStore
from lnbnn.page.undo import Added, Relabeled, Removed, Step, UndoList
from lnbnn.params import AUTO
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.references import Reference, check_ids

__all__ = ["FITTED_ON", "GROWS_UNTIL", "Opened", "Photo", "ServedModel", "begin"]

_logger = logging.getLogger(__name__)

_WAIT_S = 10.0  # for another process that changes the model
FITTED_ON = "fitted_on"
"""The note that says on how many photos a model created by the page was fitted."""
GROWS_UNTIL = 512
"""Such a model is refitted whenever its photos have doubled, up to this many."""


@dataclass(frozen=True)
class Photo:
    """An uploaded photo: its digest in the photo store and its file name."""

    digest: str
    name: str


@dataclass(frozen=True, eq=False)
class Opened:
    """One version of the model; a query keeps its version until it is answered."""

    classifier: Classifier
    generation: int
    images: dict[int, Reference]


Batch = tuple[Sequence[Photo], str]


def begin() -> Classifier:
    """The classifier of a new model: Local NBNN on the network's features, or on dense SIFT without the network."""
    try:
        return make_classifier(preset="deep")
    except LnbnnError as error:
        _logger.warning("the network is not available (%s); using Local NBNN on dense SIFT", error)
        return make_classifier(preset="balanced")


class ServedModel:
    """A model folder and the photos beside it.

    Parameters
    ----------
    path : path
        The model; if there is none, the first photo creates it.
    photo_store : PhotoStore
    new : callable, optional
        Makes the unfitted classifier of a new model; by default :func:`begin`.

    Attributes
    ----------
    opened : Opened or None
        None while the model is empty. It may be read from any thread.
    steps : UndoList
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        photo_store: PhotoStore,
        *,
        new: Callable[[], Classifier] | None = None,
        trust_network: bool = False,
    ) -> None:
        self.path, self.photo_store = Path(os.path.abspath(path)), photo_store
        self.trust_network, self.new = trust_network, new or begin
        self.opened: Opened | None = None
        self.steps = UndoList()
        self._seen: tuple[int, ...] | None = None

    def start(self) -> None:
        """Open the model if it is there."""
        if is_model(self.path):
            self.open()
        else:
            check_target(self.path, overwrite=False)
        self.clean()

    def warm_up(self) -> None:
        """Load what the first photo needs, while the user looks for one."""
        if self.opened is None:
            with suppress(LnbnnError):
                self.new().make_descriptor().warm_up()

    # ---- changes ------------------------------------------------------------------------------------------------

    def add(self, batches: list[Batch], progress: Progress = no_progress) -> list[dict[str, Any] | Exception]:
        """Add photos from the photo store, each batch under a label, in one change.

        Returns for each batch what was added, what was skipped and why, or the error that stopped this batch.
        """
        results = self._add(batches, progress)
        self.open()
        for result in results:
            if isinstance(result, dict) and result["added"]:
                self.steps.push(Added(tuple(image["id"] for image in result["added"])))
        return results

    def _add(self, batches: list[Batch], progress: Progress) -> list[dict[str, Any] | Exception]:
        if self.opened is None:
            return self._begin(batches, progress)
        with self._edit() as editor:
            return [self._add_batch(editor, batch, progress) for batch in batches]

    def _add_batch(self, editor: ReferenceEditor, batch: Batch, progress: Progress) -> dict[str, Any] | Exception:
        photos, text = batch
        try:
            files, names = self._files(photos)
            labels = [editor.label_of(text)] * len(files)
            added = editor.add(files, labels, on_error="skip", progress=progress)
        except LnbnnError as error:
            return error
        return _named(
            [image.as_json() for image in added],
            [list(pair) for pair in editor.duplicates],
            [list(entry) for entry in editor.skipped],
            names,
        )

    def _begin(self, batches: list[Batch], progress: Progress) -> list[dict[str, Any] | Exception]:
        """Create the model from the first photos."""
        photos: dict[str, tuple[Photo, str]] = {}
        for own, label in batches:
            for photo in own:
                photos.setdefault(photo.digest, (photo, label))
        files, names = self._files([photo for photo, _ in photos.values()])
        classifier = self.new()
        classifier.fit(files, [label for _, label in photos.values()], on_error="skip", progress=progress)
        self.photo_store.note(**{FITTED_ON: len(classifier.images_)})
        classifier.save(self.path)
        images = {image.digest: image for image in classifier.images_}
        skipped = dict(classifier.skipped_)
        results: list[dict[str, Any] | Exception] = []
        for own, _ in batches:
            added = [images.pop(photo.digest).as_json() for photo in own if photo.digest in images]
            sent = [str(self.photo_store.path_of(photo.digest)) for photo in own]
            results.append(_named(added, [], [[file, skipped[file]] for file in sent if file in skipped], names))
        return results

    def _files(self, photos: Sequence[Photo]) -> tuple[list[str], dict[str, str]]:
        """The files of photos, and their original names."""
        names = {}
        for photo in photos:
            path = self.photo_store.path_of(photo.digest)
            if path is None:
                raise InvalidInputError(f"{photo.name}: the photo is no longer here; send it again.")
            names[str(path)] = photo.name
        return list(names), names

    def remove(self, ids: list[int]) -> dict[str, Any]:
        """Remove photos by their ids; this can be undone for photos whose files still exist."""
        images = self._images(ids)
        for image in images:
            self._keep(image)
        if len(images) == len(self.now().images):
            self._discard()
        else:
            with self._edit() as editor:
                editor.remove([image.id for image in images])
        self.open()
        kept = [image for image in images if image.digest and self.photo_store.path_of(image.digest)]
        if kept:
            self.steps.push(Removed(tuple((i.id, str(i.digest), i.label, self.photo_store.name_of(i)) for i in kept)))
        return {"removed": [image.as_json() for image in images], "n_gone_for_good": len(images) - len(kept)}

    def _keep(self, image: Reference) -> None:
        """Copy a photo from elsewhere into the photo store, so that its removal can be undone."""
        path = self.photo_store.find(image)
        if path is not None and self.photo_store.path_of(image.digest) is None:
            with suppress(LnbnnError, OSError):
                self.photo_store.release(self.photo_store.keep(Path(path), os.path.basename(image.name)))

    def _discard(self) -> None:
        """Remove the last photos, and the model with them; only for a model created by the page."""
        if FITTED_ON not in self.photo_store.notes:
            raise InvalidInputError("a model needs at least one photo; add others before you remove all of these.")
        discard_model(self.path)

    def relabel(self, ids: list[int], label: str) -> dict[str, Any]:
        """Give photos another label, known or new."""
        before = self._images(ids)
        with self._edit() as editor:
            changed = editor.relabel([image.id for image in before], editor.label_of(label))
        self.open()
        moved = tuple((old.id, old.label) for old, new in zip(before, changed, strict=True) if old.label != new.label)
        if moved:
            self.steps.push(Relabeled(moved))
        return {"relabeled": [image.as_json() for image in changed]}

    def undo(self) -> dict[str, Any]:
        """Undo the last change."""
        step = self.steps.pop()
        if step is None:
            raise InvalidInputError("there is nothing to undo.")
        try:
            self._undo(step)
        except Exception:
            self.steps.push(step)
            raise
        self.open()
        self.clean()
        return {"undone": str(step)}

    def _undo(self, step: Step) -> None:
        if isinstance(step, Added):
            there = self._still_there(step.ids)
            if there and len(there) == len(self.now().images):
                self._discard()
            elif there:
                with self._edit() as editor:
                    editor.remove(there)
        elif isinstance(step, Relabeled):
            there = self._still_there([number for number, _ in step.labels])
            with self._edit() as editor:
                for number, label in step.labels:
                    if number in there:
                        editor.relabel(number, label)
        else:
            self._bring_back(step)

    def _bring_back(self, step: Removed) -> None:
        results = self._add(
            [([Photo(digest, name)], str(label)) for _, digest, label, name in step.photos], no_progress
        )
        ids = {}
        for (number, *_), result in zip(step.photos, results, strict=True):
            if isinstance(result, dict) and result["added"]:
                ids[number] = result["added"][0]["id"]
        self.steps.renumber(ids)

    def _still_there(self, ids: Any) -> list[int]:
        return [] if self.opened is None else [number for number in ids if number in self.opened.images]

    def improve(self, progress: Progress = no_progress) -> dict[str, Any]:
        """Choose the method and its settings again, as ``lnbnn fit`` does, on all photos."""
        model = refit(self.path, make_classifier(preset=AUTO), self.files(self.now()), progress=progress)
        if FITTED_ON in self.photo_store.notes:  # keep what was chosen: no automatic refits from now on
            self.photo_store.note(**{FITTED_ON: GROWS_UNTIL})
        self.open()
        return {"index": model.describe(), "choice": model.choice}

    def files(self, opened: Opened) -> dict[int, str]:
        """The file of each photo that can be found, by id."""
        found = {number: self.photo_store.find(image) for number, image in opened.images.items()}
        return {number: path for number, path in found.items() if path is not None}

    # ---- the model ----------------------------------------------------------------------------------------------

    def now(self) -> Opened:
        """The current version; an error if the model is empty."""
        opened = self.opened
        if opened is None:
            raise InvalidInputError("the model is empty; teach it some photos first.")
        return opened

    def _images(self, ids: list[int]) -> list[Reference]:
        images = self.now().images
        return [images[number] for number in check_ids(ids, images)]

    @contextmanager
    def _edit(self) -> Iterator[ReferenceEditor]:
        """Change the model, waiting for other processes that change it."""
        until = time.monotonic() + _WAIT_S
        while True:
            change = edit(self.path, trust_network=self.trust_network)
            try:
                editor = change.__enter__()
                break
            except ModelInUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        try:
            yield editor
        except BaseException as error:
            if not change.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            change.__exit__(None, None, None)

    def open(self) -> None:
        """Open the current version of the model."""
        self._seen = self._signature()
        if not is_model(self.path):
            self.opened = None
            return
        classifier = load(self.path, trust_network=self.trust_network)
        classifier.set_params(n_jobs=1)
        model = classifier.fitted()
        assert model.snapshot is not None
        images = {image.id: image for image in model.references}
        self.opened = Opened(classifier, model.snapshot.manifest["generation"], images)

    def _signature(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.path / MANIFEST)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def follow(self) -> bool:
        """Reopen the model if another process changed it; returns whether it did."""
        if self._signature() == self._seen:
            return False
        self.open()
        return True

    def clean(self) -> None:
        """Delete photos that neither the model nor an undo needs; none if the model could not be opened."""
        if (self.opened is None) == is_model(self.path):
            return
        images = [] if self.opened is None else self.opened.images.values()
        needed = {image.digest for image in images if image.digest is not None}
        self.photo_store.clean(needed | self.steps.digests())


def _named(
    added: list[Any], duplicates: list[list[Any]], skipped: list[list[Any]], names: dict[str, str]
) -> dict[str, Any]:
    """The result of adding, as on the command line, with the original names of the photos."""

    def plain(file: str, text: str) -> str:
        return text.replace(file, names.get(file, file))

    named = [[names.get(file, file), number] for file, number in duplicates]
    return {
        "added": added,
        "duplicates": named,
        "doubles": named,  # the old key, until 0.4
        "skipped": [[names.get(file, file), plain(file, reason)] for file, reason in skipped],
    }

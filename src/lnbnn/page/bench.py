"""A model on the bench: opened, followed and changed, by one thread, while others go on asking it as it was."""

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
from lnbnn.page.shelf import Shelf
from lnbnn.page.undo import Added, Relabeled, Removed, Step, UndoList
from lnbnn.params import AUTO
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.references import Reference, check_ids

__all__ = ["FITTED_ON", "GROWS_UNTIL", "Bench", "Opened", "Photo", "begin"]

_logger = logging.getLogger(__name__)

_WAIT_S = 10.0  # for another process that changes the model
FITTED_ON = "fitted_on"
"""The note of how many photos a model that was begun here was fitted on ..."""
GROWS_UNTIL = 512
"""... which is fitted again each time they have doubled, up to so many."""


@dataclass(frozen=True)
class Photo:
    """A photo that was sent: where it is kept, by its digest, and the name it was sent under."""

    digest: str
    name: str


@dataclass(frozen=True, eq=False)
class Opened:
    """The model as it is now; who asks it keeps it until the answer is there."""

    classifier: Classifier
    generation: int
    images: dict[int, Reference]


Batch = tuple[Sequence[Photo], str]


def begin() -> Classifier:
    """What a model is begun with: Local NBNN on the network's cells, or on dense SIFT where there is no network."""
    try:
        return make_classifier(preset="deep")
    except LnbnnError as error:
        _logger.warning("the network is not there (%s); Local NBNN on dense SIFT is taken", error)
        return make_classifier(preset="balanced")


class Bench:
    """A model folder and the photos beside it.

    Parameters
    ----------
    path : path
        The model; one that is not there is begun with the first photo.
    shelf : Shelf
    new : callable, optional
        Gives what a model is begun with, a classifier that is not fitted; by default :func:`begin`.

    Attributes
    ----------
    opened : Opened or None
        None while the model is empty. It may be read from any thread.
    steps : UndoList
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        shelf: Shelf,
        *,
        new: Callable[[], Classifier] | None = None,
        trust_network: bool = False,
    ) -> None:
        self.path, self.shelf = Path(os.path.abspath(path)), shelf
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
        """Have what the first photo needs ready, while the user looks for one."""
        if self.opened is None:
            with suppress(LnbnnError):
                self.new().make_descriptor().warm_up()

    # ---- changes ------------------------------------------------------------------------------------------------

    def add(self, batches: list[Batch], progress: Progress = no_progress) -> list[dict[str, Any] | Exception]:
        """Add photos that the shelf holds, each batch under a label, in one change.

        Returns for each batch what was added, and what not and why; or the error that this batch alone met.
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
            [list(double) for double in editor.doubles],
            [list(entry) for entry in editor.skipped],
            names,
        )

    def _begin(self, batches: list[Batch], progress: Progress) -> list[dict[str, Any] | Exception]:
        """The first photos: a new model of them."""
        photos: dict[str, tuple[Photo, str]] = {}
        for own, label in batches:
            for photo in own:
                photos.setdefault(photo.digest, (photo, label))
        files, names = self._files([photo for photo, _ in photos.values()])
        classifier = self.new()
        classifier.fit(files, [label for _, label in photos.values()], on_error="skip", progress=progress)
        self.shelf.note(**{FITTED_ON: len(classifier.images_)})
        classifier.save(self.path)
        images = {image.digest: image for image in classifier.images_}
        skipped = dict(classifier.skipped_)
        results: list[dict[str, Any] | Exception] = []
        for own, _ in batches:
            added = [images.pop(photo.digest).as_json() for photo in own if photo.digest in images]
            sent = [str(self.shelf.path_of(photo.digest)) for photo in own]
            results.append(_named(added, [], [[file, skipped[file]] for file in sent if file in skipped], names))
        return results

    def _files(self, photos: Sequence[Photo]) -> tuple[list[str], dict[str, str]]:
        """The files of photos, and the name each was sent under."""
        names = {}
        for photo in photos:
            path = self.shelf.path_of(photo.digest)
            if path is None:
                raise InvalidInputError(f"{photo.name}: the photo is not here any more; send it again.")
            names[str(path)] = photo.name
        return list(names), names

    def remove(self, ids: list[int]) -> dict[str, Any]:
        """Remove photos by their ids; those whose files are at hand can come back."""
        images = self._images(ids)
        for image in images:
            self._keep(image)
        if len(images) == len(self.now().images):
            self._discard()
        else:
            with self._edit() as editor:
                editor.remove([image.id for image in images])
        self.open()
        kept = [image for image in images if image.digest and self.shelf.path_of(image.digest)]
        if kept:
            self.steps.push(Removed(tuple((i.id, str(i.digest), i.label, self.shelf.name_of(i)) for i in kept)))
        return {"removed": [image.as_json() for image in images], "n_gone_for_good": len(images) - len(kept)}

    def _keep(self, image: Reference) -> None:
        """Have a photo that lies elsewhere here, so that it can come back."""
        path = self.shelf.find(image)
        if path is not None and self.shelf.path_of(image.digest) is None:
            with suppress(LnbnnError, OSError):
                self.shelf.release(self.shelf.keep(Path(path), os.path.basename(image.name)))

    def _discard(self) -> None:
        """All photos are to go: only of a model that was begun here."""
        if FITTED_ON not in self.shelf.notes:
            raise InvalidInputError("these are all photos of the model, and a model needs some; add others first.")
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
        """Take the last step back."""
        step = self.steps.pop()
        if step is None:
            raise InvalidInputError("there is nothing to take back.")
        try:
            self._take_back(step)
        except Exception:
            self.steps.push(step)
            raise
        self.open()
        self.clean()
        return {"undone": str(step)}

    def _take_back(self, step: Step) -> None:
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
        if FITTED_ON in self.shelf.notes:  # what was chosen stays: it is not fitted again by itself any more
            self.shelf.note(**{FITTED_ON: GROWS_UNTIL})
        self.open()
        return {"index": model.describe(), "choice": model.choice}

    def files(self, opened: Opened) -> dict[int, str]:
        """The file of each photo that is at hand, by its id."""
        found = {number: self.shelf.find(image) for number, image in opened.images.items()}
        return {number: path for number, path in found.items() if path is not None}

    # ---- the model ----------------------------------------------------------------------------------------------

    def now(self) -> Opened:
        """The model; refused where there is none yet."""
        opened = self.opened
        if opened is None:
            raise InvalidInputError("the model is empty; teach it some photos first.")
        return opened

    def _images(self, ids: list[int]) -> list[Reference]:
        images = self.now().images
        return [images[number] for number in check_ids(ids, images)]

    @contextmanager
    def _edit(self) -> Iterator[ReferenceEditor]:
        """A change of the model, once no other process changes it."""
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
        """Have the model as it is in its folder now."""
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
        """Open the model again if another process changed it; whether that was so."""
        if self._signature() == self._seen:
            return False
        self.open()
        return True

    def clean(self) -> None:
        """Let go of photos that neither the model nor a step back needs; not of a model that could not be opened."""
        if (self.opened is None) == is_model(self.path):
            return
        images = [] if self.opened is None else self.opened.images.values()
        needed = {image.digest for image in images if image.digest is not None}
        self.shelf.clean(needed | self.steps.digests())


def _named(
    added: list[Any], doubles: list[list[Any]], skipped: list[list[Any]], names: dict[str, str]
) -> dict[str, Any]:
    """The result of adding, as the command line has it; photos are called as they were when they were sent."""

    def plain(file: str, text: str) -> str:
        return text.replace(file, names.get(file, file))

    return {
        "added": added,
        "doubles": [[names.get(file, file), number] for file, number in doubles],
        "skipped": [[names.get(file, file), plain(file, reason)] for file, reason in skipped],
    }

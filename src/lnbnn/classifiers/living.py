"""A fitted model that changes: images added, removed and relabelled, in memory or by following its folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures
from lnbnn.model.folder import Snapshot, batch_folder, open_model
from lnbnn.model.image_table import StoredImage, parse_images, read_batch
from lnbnn.model.intake import Intake, check_enough_left, check_ids, check_label_kind, check_labels, check_next_id
from lnbnn.reading.extraction import ImageLike, Progress, no_progress
from lnbnn.reading.store import FeatureStore

if TYPE_CHECKING:
    from lnbnn.classifiers.base import ReferenceImage
    from lnbnn.descriptors import Descriptor

__all__ = ["LivingMixin"]


class LivingMixin:
    """``partial_fit``, ``remove``, ``relabel`` and ``refresh`` of the methods that learn nothing across images.

    Changed step by step, a model answers as one fitted afresh on the images it holds, in the order of their ids.
    """

    method: ClassVar[str]
    is_incremental: ClassVar[bool] = False
    """Whether images can be added to, and taken from, a fitted model."""

    classes_: NDArray[np.generic]
    images_: list[ReferenceImage]
    next_id_: int
    skipped_: list[tuple[str, str]]
    n_changes_: int = 0
    descriptor_: Descriptor
    n_jobs: int | None
    _snapshot: Snapshot | None = None

    # ---- changes in memory --------------------------------------------------------------------------------------

    def partial_fit(
        self,
        X: Sequence[ImageLike],
        y: ArrayLike,
        *,
        on_error: str = "raise",
        store: FeatureStore | None = None,
        progress: Progress = no_progress,
    ) -> Self:
        """Add labelled images, of known or new classes, to a fitted model; parameters as of :meth:`fit`.

        The images get ids of their own, at the end of ``images_``. One whose content is in the model already is left
        out and named in ``skipped_``. The features are read before anything is changed.
        """
        self._check_incremental()
        if not hasattr(self, "classes_"):
            return self.fit(X, y, on_error=on_error, store=store, progress=progress)
        images = list(X)
        given = check_labels(y, len(images))
        check_label_kind(given[0], self.classes_.tolist()[0])
        known = {image.digest: image.id for image in self.stored_images() if image.digest is not None}
        intake = Intake(self.descriptor_, known)
        added = list(
            intake.read(
                images,
                given,
                first_id=self.next_id_,
                on_error=on_error,
                n_jobs=self.n_jobs,
                store=store,
                progress=progress,
            )
        )
        if not added and len(intake.doubles) < len(intake.skipped):
            raise InvalidInputError(f"none of the {len(images)} images can be used: {intake.skipped[0][1]}")
        self.skipped_ = intake.skipped
        if added:
            self._change(added=added, progress=progress)
        return self

    def remove(self, ids: int | Iterable[int], *, progress: Progress = no_progress) -> Self:
        """Forget labelled images by their ids (those of ``images_``); a class without images goes with its last one."""
        self._check_incremental()
        removed = self._images_of(ids)
        n_left = sum(image.n_descriptors for image in self.images_) - sum(image.n_descriptors for image in removed)
        check_enough_left(n_left, self._min_descriptors())
        self._change(removed=removed, progress=progress)
        return self

    def relabel(self, ids: int | Iterable[int], label: Any, *, progress: Progress = no_progress) -> Self:
        """Give labelled images, by their ids, another label, known or new."""
        self._check_incremental()
        images = self._images_of(ids)
        (label,) = check_labels([label], 1)
        check_label_kind(label, self.classes_.tolist()[0])
        self._change(relabelled=[(image, label) for image in images if image.label != label], progress=progress)
        return self

    def stored_images(self) -> list[StoredImage]:
        """The labelled images with their ids and labels, as a model folder holds them."""
        classes = self.fitted_classes().tolist()
        return [StoredImage(i.id, i.name, classes[i.label], i.n_descriptors, i.digest) for i in self.images_]

    def _images_of(self, ids: int | Iterable[int]) -> list[StoredImage]:
        by_id = {image.id: image for image in self.stored_images()}
        wanted = [ids] if isinstance(ids, int | np.integer) else ids
        return [by_id[number] for number in check_ids(wanted, by_id)]

    def _check_incremental(self) -> None:
        if not self.is_incremental:
            raise InvalidInputError(f"method {self.method!r} learns from all images together; fit it again with all.")

    # ---- the folder ---------------------------------------------------------------------------------------------

    def refresh(self, *, progress: Progress = no_progress) -> bool:
        """Follow the folder that the model was opened from; whether anything had changed there.

        Not to be called while other threads ask this model. A model changed in memory follows no folder any more.
        """
        self.fitted_classes()
        if self._snapshot is None:
            raise InvalidInputError("only a model opened from a folder, and not changed since, can follow the folder.")
        snapshot = open_model(self._snapshot.folder, trust_network=self._snapshot.trust_network)
        if snapshot.manifest["generation"] == self._snapshot.manifest["generation"]:
            return False
        if snapshot.manifest["data"] == self._snapshot.manifest["data"]:
            self._follow(snapshot, progress)
        else:
            self._reopen(snapshot)
        return True

    def _follow(self, snapshot: Snapshot, progress: Progress = no_progress) -> None:
        """Become what the manifest says, from another state of the same files."""
        where = snapshot.folder
        before = {image.id: image for image in self.stored_images()}
        after = {image.id: image for image in parse_images(snapshot.manifest, where)}
        removed = [image for number, image in before.items() if number not in after]
        relabelled = [
            (image, after[number].label)
            for number, image in before.items()
            if number in after and after[number].label != image.label
        ]
        added = []
        batches: dict[int, dict[int, ImageFeatures]] = {}
        for number, image in after.items():
            if number not in before:
                if image.batch not in batches:
                    batches[image.batch] = read_batch(batch_folder(snapshot.data, image.batch))
                features = batches[image.batch].get(number)
                if features is None or len(features) != image.n_descriptors:
                    raise ModelFormatError(f"{where}: the features of image {number} are missing; fit the model again.")
                added.append((image, features))
            elif before[number].n_descriptors != image.n_descriptors:
                raise ModelFormatError(f"{where}: image {number} is not what it was; fit the model again.")
        if removed or relabelled or added:
            self._change(removed, relabelled, added, keeps_structure=True, progress=progress)
        self.next_id_ = check_next_id(snapshot.manifest.get("next_id"), self.images_[-1].id, where)
        self._snapshot = snapshot
        self._set_calibration(snapshot.manifest)

    def _change(
        self,
        removed: Sequence[StoredImage] = (),
        relabelled: Sequence[tuple[StoredImage, Any]] = (),
        added: Sequence[tuple[StoredImage, ImageFeatures]] = (),
        *,
        keeps_structure: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        gone, renamed = {image.id for image in removed}, {image.id: label for image, label in relabelled}
        kept = [
            replace(image, label=renamed.get(image.id, image.label))
            for image in self.stored_images()
            if image.id not in gone
        ]
        self._snapshot = None
        self._resume_fit(keeps_structure)
        for image in removed:
            self._remove_image(image)
        for image, label in relabelled:
            self._relabel_image(image, label)
        for image, features in added:
            self._add_image(features, image.id, image.label)
        self._set_images([*kept, *(image for image, _ in added)])
        self.next_id_ = max(self.next_id_, self.images_[-1].id + 1)
        self.n_changes_ += len(removed) + len(relabelled) + len(added)
        self._end_fit(progress)

    if TYPE_CHECKING:  # of ImageClassifier, which this is mixed into

        def fit(
            self,
            X: Sequence[ImageLike],
            y: ArrayLike,
            *,
            on_error: str = "raise",
            store: FeatureStore | None = None,
            progress: Progress = no_progress,
        ) -> Self: ...

        def fitted_classes(self) -> NDArray[np.generic]: ...

        def _min_descriptors(self) -> int: ...

        def _resume_fit(self, keeps_structure: bool = False) -> None: ...

        def _remove_image(self, image: StoredImage) -> None: ...

        def _relabel_image(self, image: StoredImage, label: Any) -> None: ...

        def _add_image(self, features: ImageFeatures, number: int, label: Any) -> None: ...

        def _set_images(self, images: list[StoredImage]) -> None: ...

        def _end_fit(self, progress: Progress) -> None: ...

        def _set_calibration(self, manifest: dict[str, Any]) -> None: ...

        def _reopen(self, snapshot: Snapshot) -> None: ...

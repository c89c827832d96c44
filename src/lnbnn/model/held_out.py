"""Scores of labeled images by models that had not seen them, kept with a fusion so that its weights can change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import ModelFormatError
from lnbnn.files.arrays import load_array, save_array

__all__ = ["HeldOut", "weights_are_due"]

_IDS, _SCORES = "held_out_ids.npy", "held_out_scores.npy"


def weights_are_due(n_changes: int, n_images: int) -> bool:
    """Whether so many changes of a fusion's images are enough to learn its weights again: one in a hundred."""
    return 100 * n_changes >= n_images


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of labeled images by models that had not seen them: what the weights are learned from.

    Parameters
    ----------
    ids : list of int
        The images, ascending.
    classes : list
        The columns.
    scores : ndarray of shape (n_members, n_images, n_classes)
        Divided by what belongs to the image; NaN where a member has no descriptors of the image.
    """

    ids: list[int]
    classes: list[Any]
    scores: NDArray[np.float64]

    def of(self, ids: Iterable[int], classes: list[Any]) -> HeldOut:
        """Those of the given images that are here, for other classes; a class that was not known scores lowest."""
        rows = {number: row for row, number in enumerate(self.ids)}
        kept = [number for number in ids if number in rows]
        scores = self.scores[:, [rows[number] for number in kept]]
        if classes != self.classes:
            places = {label: place for place, label in enumerate(self.classes)}
            columns = [scores[:, :, places[c]] if c in places else scores.min(axis=2) for c in classes]
            scores = np.stack(columns, axis=2)
        return HeldOut(kept, classes, scores)

    def joined(self, other: HeldOut) -> HeldOut:
        """Both, the other's images after these; of the same classes."""
        return HeldOut(self.ids + other.ids, self.classes, np.concatenate([self.scores, other.scores], axis=1))

    def save(self, folder: Path) -> None:
        """Write the arrays; the classes are those of the table of images beside them."""
        save_array(folder / _IDS, np.array(self.ids, np.int64))
        save_array(folder / _SCORES, self.scores)

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether there are scores in a folder."""
        return (folder / _IDS).exists()

    @classmethod
    def load(cls, folder: Path, classes: list[Any], n_members: int) -> HeldOut:
        """What :meth:`save` wrote."""
        ids = load_array(folder / _IDS, ndim=1, dtypes=("int64",))
        scores = np.array(load_array(folder / _SCORES, ndim=3, dtypes=("float64",)))
        if scores.shape != (n_members, len(ids), len(classes)):
            raise ModelFormatError(f"{folder}: the held-out scores do not fit the images; fit the model again.")
        return cls(ids.tolist(), classes, scores)

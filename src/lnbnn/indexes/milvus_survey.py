"""What a collection holds, against what the files of a model say: marks of other copies, rows too few or too many."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import LnbnnError, ModelFormatError
from lnbnn.indexes.base import LeftOver
from lnbnn.indexes.milvus_state import State, ids_known, is_made_in, not_in, states_in

if TYPE_CHECKING:
    from lnbnn.indexes.milvus_collection import Collection

__all__ = ["Survey", "claim", "sent_already", "survey"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Survey:
    """The rows of a collection, marks left out.

    Parameters
    ----------
    there : ndarray of shape (n,), int64
        Their ids, each once.
    missing, left_over : ndarray, int64
        Ids that the model needs and that are not there; ids that are there and that no file stands for.
    n_twice : int
        Rows whose id another row has too. Milvus counts them, but finds and names each id once.
    """

    there: NDArray[np.int64]
    missing: NDArray[np.int64]
    left_over: NDArray[np.int64]
    n_twice: int

    def told(self, collection: Collection, home: Path | None) -> list[str]:
        """One line for what is missing, one for what is left over."""
        lines = [collection.lacks(len(self.missing))] if len(self.missing) else []
        n_left = len(self.left_over) + self.n_twice
        if n_left:
            lines.append(
                LeftOver(
                    f"{n_left:,} vectors in the collection {collection.name} are left over from an interrupted change; "
                    f"lnbnn compact {home or 'MODEL'} removes them"
                )
            )
        return lines


def survey(collection: Collection, needed: NDArray[np.int64], known: list[NDArray[np.int64]]) -> Survey:
    """Look at every id of a collection.

    Parameters
    ----------
    collection : Collection
    needed : ndarray of shape (n,), int64
        Ids that must be there.
    known : list of ndarray, int64
        Ids that may be there.
    """
    there = np.unique(np.concatenate(list(collection.ids())))
    n_twice = max(0, collection.n_rows() - len(collection.marks()) - len(there))
    return Survey(there, not_in(needed, [there]), not_in(there, known), n_twice)


def sent_already(
    collection: Collection, kept: NDArray[np.int64], ids: NDArray[np.int64], home: Path
) -> NDArray[np.bool_] | None:
    """Which of the ids to be sent are there already, of a writer that was killed; what nobody knows is removed.

    Parameters
    ----------
    collection : Collection
    kept, ids : ndarray, int64
        Of rows that are there, and of rows that are to be sent.
    home : Path
        The model folder.

    Returns
    -------
    ndarray of shape (len(ids),), bool, or None
        None if rows among those that are kept are there twice: one of two cannot be removed.
    """
    if collection.n_rows() == len(kept) + len(collection.marks()):
        return np.zeros(len(ids), bool)
    found = survey(collection, kept, [kept, ids, *ids_known(home, collection.name)])
    if len(found.missing):
        raise ModelFormatError(collection.lacks(len(found.missing)))
    again = np.intersect1d(ids, found.there) if found.n_twice else ids[:0]  # which are there twice is not told
    gone = np.union1d(found.left_over, again)
    collection.delete(gone)
    if len(found.left_over):
        _logger.warning("%s: %d vectors that an interrupted change left over were removed", home, len(found.left_over))
    if found.n_twice and collection.n_rows() > len(found.there) - len(gone) + len(collection.marks()):
        _logger.warning("%s: vectors are there twice; the model goes to a new collection", home)
        return None
    return np.isin(ids, np.setdiff1d(found.there, again))


def claim(collection: Collection, state: State, home: Path, before: State | None) -> None:
    """Put the mark of a new state into the collection; another copy of the model that writes too is noticed.

    Parameters
    ----------
    collection : Collection
    state : State
    home : Path
        The model folder.
    before : State or None
        The state that the model had; None if it was never saved: then nobody else knows the collection.
    """
    collection.mark(state.mark)
    known = {own.mark for _, own in states_in(home)} | {state.mark}
    if before is not None:
        known.add(before.mark)
    unknown = collection.marks() - known
    own = {mark for mark in unknown if before is None or is_made_in(home, mark)}  # of a write that failed, or came back
    collection.delete(np.array(sorted(own), np.int64))
    if unknown - own:
        collection.delete(np.array([state.mark]))
        raise LnbnnError(
            f"{home}: the collection {collection.name} is also used by another copy of this model; only one may "
            "change it. Make an own copy of a model with lnbnn.load(MODEL).save(COPY)."
        )

"""Which rows of which collection a model's files stand for; and letting go of them when those files go.

A collection holds at least the rows that a model names: rows are written before the model's manifest, and removed after
it. What a killed process leaves is described by the files that it leaves, and goes with them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import LnbnnError, ModelFormatError
from lnbnn.files.arrays import load_array
from lnbnn.files.regular import read_regular
from lnbnn.indexes.milvus_address import trusted_uri

__all__ = ["FILE", "IDS", "State", "home_of", "ids_known", "is_made_in", "let_go", "new_mark", "states_in"]

FILE = "collection.json"
IDS = "ids.npy"

_MAX_BYTES = 1 << 16
_KEYS = {"uri": str, "name": str, "mark": int, "n_dims": int, "dtype": str}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class State:
    """The collection that one state of a model uses, as a file says it.

    Parameters
    ----------
    uri, name : str
        Of the collection.
    mark : int
        Below 0: the id of the row that says that this state uses it.
    n_dims, dtype : int, str
        Of the vectors, as they were added.
    """

    uri: str
    name: str
    mark: int
    n_dims: int
    dtype: str

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        (folder / FILE).write_text(json.dumps(asdict(self), separators=(",", ":")), encoding="ascii")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What :meth:`write` wrote, every field checked."""
        path = folder / FILE
        try:
            fields: Any = json.loads(read_regular(path, _MAX_BYTES).decode("ascii"))
            if type(fields) is not dict or {name: type(value) for name, value in fields.items()} != _KEYS:
                raise ValueError(f"expected {', '.join(_KEYS)}")
            state = cls(**fields)
            if not -(1 << 63) <= state.mark < 0 or not 1 <= state.n_dims <= 1 << 15:
                raise ValueError("a number is out of range")
            if state.dtype not in ("uint8", "float32") or not state.name.isidentifier() or len(state.name) > 255:
                raise ValueError("a name is wrong")
        except FileNotFoundError:
            raise ModelFormatError(f"{path}: missing; the model folder is incomplete, fit the model again.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise ModelFormatError(f"{path}: cannot be read ({error}); fit the model again.") from error
        return state


def new_mark(home: Path) -> int:
    """An id below 0 that no other state of a model has; it tells the folder that it was made in."""
    return -1 - (_family(home) << 32 | secrets.randbits(32))


def is_made_in(home: Path, mark: int) -> bool:
    """Whether a mark was made in this folder, rather than in a copy of it.

    A server that is killed may forget that rows were removed: a mark of a state that is long gone comes back.
    """
    return (-1 - mark) >> 32 in (_family(home), _family(home, device=False))


def _family(home: Path, *, device: bool = True) -> int:
    """A number of a folder, 30 bits: a copy has another, on any volume; a folder that is renamed keeps it.

    Without the device it is that of marks made before the device counted.
    """
    found = home.stat()
    text = f"{found.st_dev}:{found.st_ino}" if device else str(found.st_ino)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 2


def home_of(folder: Path) -> Path | None:
    """The model folder that a folder is in, if there is one yet."""
    return next((place for place in folder.resolve().parents if (place / "manifest.json").exists()), None)


def ids_in(folder: Path) -> NDArray[np.int64]:
    """The ids of the rows that the files in a folder stand for."""
    return load_array(folder / IDS, ndim=1, dtypes=("int64",)).view(np.int64)


def states_in(home: Path) -> Iterator[tuple[Path, State]]:
    """The folders inside a model folder that name a collection, with what they say; unreadable ones are left out."""
    for path in sorted(home.rglob(FILE)):
        try:
            yield path.parent, State.read(path.parent)
        except ModelFormatError:
            continue


def ids_known(home: Path, name: str) -> list[NDArray[np.int64]]:
    """The ids that the folders inside a model folder stand for in a collection.

    A folder that a killed writer left may name a collection and have no ids yet.
    """
    found = []
    for where, state in states_in(home):
        if state.name == name:
            try:
                found.append(ids_in(where))
            except ModelFormatError:
                continue
    return found


def let_go(folder: Path, home: Path) -> bool:
    """Remove the rows that only the files in a folder stand for, and collections that no other folder names.

    Parameters
    ----------
    folder : Path
        About to be removed.
    home : Path
        The model folder: rows that other files in it stand for stay.

    Returns
    -------
    bool
        False if that is not possible now, as the server is away: the folder must stay, for a later try.
    """
    if not folder.is_dir() or not any(folder.rglob(FILE)):
        return True
    others = [(where, state) for where, state in states_in(home) if not where.is_relative_to(folder)]
    try:
        for where, state in states_in(folder):
            _release(where, state, others, home)
    except LnbnnError as error:
        _logger.warning("%s: vectors that are no longer needed stay for now: %s", home, error)
        return False
    return True


def _release(folder: Path, state: State, others: list[tuple[Path, State]], home: Path) -> None:
    from lnbnn.indexes.milvus_collection import Collection

    sharing = [where for where, other in others if other.name == state.name]
    collection = Collection(trusted_uri(state.uri, folder), state.name, state.n_dims)
    if not collection.exists():
        return
    marks = collection.open().marks()
    known = {state.mark} | {other.mark for _, other in others}
    strangers = {mark for mark in marks - known if not is_made_in(home, mark)}
    if not strangers and not sharing:
        collection.drop()
        return
    if not strangers:  # with another copy of the model about, rows may be its own
        try:
            collection.delete(not_in(ids_in(folder), [ids_in(where) for where in sharing]))
        except ModelFormatError as error:
            _logger.warning("%s; lnbnn compact removes vectors that are left over", error)
    if state.mark in marks:
        collection.delete(np.array([state.mark]))


def not_in(ids: NDArray[np.int64], others: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The ids that are in none of the others."""
    for other in others:
        ids = np.setdiff1d(ids, other)
    return ids

"""The default index: FAISS, in the form that fits the number of vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError
from lnbnn.indexes.base import Index
from lnbnn.indexes.faiss_kmeans import check_memory, grow_tree, one_thread
from lnbnn.indexes.faiss_lists import (
    DIMS_PER_CODE,
    are_mapped,
    empty_copy,
    load_lists,
    make_lists,
    own_lists,
    save_lists,
)
from lnbnn.indexes.selection import rerank
from lnbnn.params import check_whole

__all__ = ["N_PROBES", "FaissIndex", "default_n_lists"]

N_PROBES = 8
"""Lists visited for each query, by default."""

_FORMS = ("auto", "flat", "ivf-8bit", "ivf-4bit")
_FLAT_UP_TO = 20_000
_MIN_FOR_CODES = 16  # fewer vectors cannot train 4-bit codes
_ROWS_PER_BLOCK = 1 << 16  # as FAISS takes them itself
_TRAIN_ROWS_PER_LIST = 100
_ROWS_PER_LIST = 2048
_BRANCHES_TO_SEARCH = 4
_TRAIN_ROWS_FOR_CODES = 100_000
_MIN_CANDIDATES = 16


@dataclass(eq=False, repr=False)
class FaissIndex(Index):
    """Inverted lists of compressed vectors, or a flat scan when there are few.

    Parameters
    ----------
    form : {"auto", "flat", "ivf-8bit", "ivf-4bit"}, default="auto"
        ``flat`` compares with every vector (``auto``: up to 20,000 of them). ``ivf-4bit`` scans 4-bit product codes of
        the nearest lists and compares the best candidates again with the vectors themselves (``auto``: above); fewer
        than 16 vectors have no codes and are ``flat``. ``ivf-8bit`` compares with every vector of the nearest lists:
        slower and larger, nearer to exact.
    n_lists : int, optional
        Number of inverted lists; by default the power of two nearest to one for 2,048 vectors, or to 0.7 times the
        square root of the number of vectors if that is more.
    n_probes : int, optional
        Lists visited for each query: the accuracy knob. By default 8.
    rerank_factor : int, default=4
        4-bit form only: candidates compared again for each neighbor asked for (and never fewer than 16 in all).
    seed : int, default=0
        Of the sample that the lists and codes are trained on.

    Notes
    -----
    For 8-bit vectors the centers of the lists have whole-number coordinates, so that the choice of lists is exact
    arithmetic, the same for any number of threads. Distances are exact in every form; what is approximate is which
    vectors are looked at.
    """

    name = "faiss"

    form: str = "auto"
    n_lists: int | None = None
    n_probes: int | None = None
    rerank_factor: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self._tail: faiss.IndexIVF | None = None  # rows added to lists that are mapped, in lists of their own

    def check_params(self) -> None:
        if self.form not in _FORMS:
            raise InvalidInputError(f"form must be one of {', '.join(_FORMS)}; got {self.form!r}.")
        for name in ("n_lists", "n_probes"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1, 1 << 20)
        check_whole("rerank_factor", self.rerank_factor, 1, 1 << 10)
        check_whole("seed", self.seed, 0, (1 << 31) - 2)

    def set_search(self, n_probes: int | None = None, rerank_factor: int | None = None) -> None:
        """Change how wide later searches are; what is built stays. Without a value, a setting stays too."""
        given = {"n_probes": n_probes, "rerank_factor": rerank_factor}
        wanted = self.settings() | {name: value for name, value in given.items() if value is not None}
        type(self).from_params(wanted)  # checks them
        self.n_probes, self.rerank_factor = wanted["n_probes"], wanted["rerank_factor"]

    # ---- building -----------------------------------------------------------------------------------------------

    def _build_rows(self) -> None:
        table = self._table
        self._form = self._form_for(table.n_rows)
        self._width = -(-table.n_dims // 8) * 8  # a multiple of 8 keeps FAISS on its vector instructions
        self._structure = faiss.IndexFlatL2(self._width) if self._form == "flat" else self._train(table.n_rows)
        self._selector = None
        self._tail = None
        self._add_rows(self._structure, 0)

    def _form_for(self, n_rows: int) -> str:
        if self.form != "auto":
            return "flat" if self.form == "ivf-4bit" and n_rows < _MIN_FOR_CODES else self.form
        return "flat" if n_rows <= _FLAT_UP_TO else "ivf-4bit"

    def _train(self, n_rows: int) -> faiss.IndexIVF:
        table = self._table
        n_lists = min(self.n_lists or default_n_lists(n_rows), n_rows)
        n_sampled = min(n_rows, max(_TRAIN_ROWS_PER_LIST * n_lists, _TRAIN_ROWS_FOR_CODES))
        in_lists = (
            self._width // (2 * DIMS_PER_CODE) if self._form == "ivf-4bit" else table.n_dims * table.dtype.itemsize
        )
        at_once = 3 * n_sampled + 2 * min(n_rows, _ROWS_PER_BLOCK)
        check_memory("building the index", at_once * self._width * 4 + (in_lists + 8) * n_rows)
        picked = np.sort(np.random.default_rng(self.seed).choice(n_rows, n_sampled, replace=False))
        sample = self._widen(table.take(picked))
        self._tree = grow_tree(sample, n_lists, seed=self.seed + 1, whole_numbers=table.dtype == np.uint8)
        structure = make_lists(self._form, self._tree, table.dtype)
        structure.train(sample[:_TRAIN_ROWS_FOR_CODES])
        return structure

    def _append_rows(self, start: int) -> None:
        target = self._structure
        if self._form != "flat" and are_mapped(self._structure):
            if self._tail is None:
                self._tail = empty_copy(self._structure, self._tree, self._table.dtype)
            target = self._tail
        self._add_rows(target, start)
        if self._selector is not None:
            self._set_selector()

    def _add_rows(self, target: faiss.Index, start: int) -> None:
        for block in range(start, self._table.n_rows, _ROWS_PER_BLOCK):
            part = self._widen(self._table.block(block, block + _ROWS_PER_BLOCK))
            if self._form == "flat":
                target.add(part)
            else:
                target.add_with_ids(part, np.arange(block, block + len(part)))
            if self._progress is not None:
                self._progress(block + len(part), self._table.n_rows)

    def _remove_rows(self, rows: NDArray[np.int64]) -> None:
        """Inverted lists keep removed rows, which a search skips, until they are a quarter of all.

        FAISS can take rows out of 4-bit lists itself, but loses rows that are added afterwards.
        """
        if self._form == "flat":
            self._built = False  # rebuilt on the next search
        else:
            self._set_selector()

    def _outgrown(self) -> str | None:
        table = self._table
        if 4 * (table.n_rows - len(table)) > table.n_rows:
            return "more than a quarter of its vectors were removed"
        if self._form_for(table.n_rows) != self._form:
            return f"{table.n_rows:,} vectors are too many for the form {self._form}"
        if self._form != "flat" and self.n_lists is None and default_n_lists(table.n_rows) > self._structure.nlist:
            return f"{table.n_rows:,} vectors are too many for its {self._structure.nlist} lists"
        return None

    def _set_selector(self) -> None:
        removed = self._table.removed
        self._kept_bits = np.packbits(~removed, bitorder="little")  # the selector points into it
        self._selector = faiss.IDSelectorBitmap(self._kept_bits) if removed.any() else None

    # ---- searching ----------------------------------------------------------------------------------------------

    def _search_rows(
        self, queries: NDArray[np.generic], n_neighbors: int, hidden: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        is_exact = self._form != "ivf-4bit"
        n_asked = n_neighbors if is_exact else max(n_neighbors * self.rerank_factor, _MIN_CANDIDATES)
        wide, parameters = self._widen(queries), self._parameters(hidden)
        parts = [part for part in (self._structure, self._tail) if part is not None]
        with one_thread():
            found = [part.search(wide, n_asked, params=parameters) for part in parts]
        distances, rows = (np.hstack(arrays) for arrays in zip(*found, strict=True))
        if not is_exact:
            return rerank(queries, self._table.stored, self._table.added, rows, n_neighbors)
        rows[(rows < 0) | (rows >= self._table.n_rows)] = -1  # in a damaged file, any number
        distances = np.where(rows >= 0, distances, np.float32(np.inf))
        if len(parts) > 1:
            order = np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
            distances, rows = np.take_along_axis(distances, order, axis=1), np.take_along_axis(rows, order, axis=1)
        return distances, rows

    def _parameters(self, hidden: NDArray[np.int64] | None) -> faiss.SearchParameters:
        """Which rows count, how many lists are visited, and how many branches of the tree are looked into for them.

        These are 4 branches, or as many as are sure to hold the lists.
        """
        selectors = [] if self._selector is None else [self._selector]
        if hidden is not None:
            if hidden[-1] - hidden[0] + 1 == len(hidden):  # in one run
                selectors += [faiss.IDSelectorRange(int(hidden[0]), int(hidden[-1]) + 1)]
            else:
                bits = np.zeros(self._table.n_rows, bool)
                bits[hidden] = True
                packed = np.packbits(bits, bitorder="little")
                selectors += [faiss.IDSelectorBitmap(packed)]
                selectors[-1].bits = packed  # kept with the selector, which points into it
            selectors += [faiss.IDSelectorNot(selectors[-1])]
        if len(selectors) == 3:
            selectors += [faiss.IDSelectorAnd(selectors[0], selectors[2])]
        selector = selectors[-1] if selectors else None
        if self._form == "flat":
            parameters = faiss.SearchParameters(sel=selector)
        else:
            n_lists = self._structure.nlist
            n_probes = min(self.n_probes or N_PROBES, n_lists)
            n_branches = faiss.downcast_index(self._structure.quantizer).nlist
            wanted = -(-2 * _BRANCHES_TO_SEARCH * n_probes * n_branches // n_lists)
            in_tree = faiss.SearchParametersIVF(nprobe=min(n_branches, max(_BRANCHES_TO_SEARCH, wanted)))
            parameters = faiss.SearchParametersIVF(nprobe=n_probes, sel=selector, quantizer_params=in_tree)
        parameters.kept = selectors  # FAISS holds bare pointers to them
        return parameters

    def _widen(self, vectors: NDArray[np.generic]) -> NDArray[np.float32]:
        wide = np.zeros((len(vectors), self._width), np.float32)
        wide[:, : vectors.shape[1]] = vectors
        return wide

    # ---- describing and storing ---------------------------------------------------------------------------------

    def _describe(self) -> str:
        if self._form == "flat":
            return "flat: every query compared with every vector"
        n_lists = self._structure.nlist
        lists = f"{n_lists} lists, {min(self.n_probes or N_PROBES, n_lists)} visited per query"
        if self._form == "ivf-8bit":
            return f"ivf-8bit: {lists}, distances at full precision"
        return f"ivf-4bit: {lists}, 4-bit codes, the best {self.rerank_factor} per neighbor compared at full precision"

    def _structure_nbytes(self) -> int:
        n_rows = int(self._structure.ntotal) + (0 if self._tail is None else int(self._tail.ntotal))
        if self._form == "flat":
            return n_rows * self._width * 4
        return n_rows * (self._structure.code_size + 8) + self._structure.nlist * self._width * 4

    def _save_structure(self, folder: Path) -> None:
        if self._form == "flat":
            return
        if self._tail is not None:
            self._structure = own_lists(self._structure, self._tree, self._table.dtype)
            self._add_rows(self._structure, self._table.n_rows - self._tail.ntotal)
            self._tail = None
        save_lists(folder, self._structure, self._tree)

    def _load_structure(self, folder: Path) -> bool:
        if not (folder / "lists.npy").exists():
            return False
        table = self._table
        self._structure, self._tree = load_lists(folder, table.n_rows, -(-table.n_dims // 8) * 8, table.dtype)
        self._width = self._structure.d
        self._form = "ivf-4bit" if isinstance(self._structure, faiss.IndexIVFPQFastScan) else "ivf-8bit"
        self._tail = None
        self._set_selector()
        return True


def default_n_lists(n_rows: int) -> int:
    """The power of two nearest to one list for 2,048 rows, or to 0.7 times the square root of the rows if more."""
    return 1 << max(0, round(math.log2(max(n_rows / _ROWS_PER_LIST, 0.7 * math.sqrt(n_rows)))))

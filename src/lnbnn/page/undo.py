"""The changes made through the page, and how to undo them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Added", "Relabeled", "Removed", "Step", "UndoList"]

_MOST = 100  # steps


@dataclass(frozen=True)
class Added:
    """Photos that were added, by their ids."""

    ids: tuple[int, ...]

    def __str__(self) -> str:
        return f"adding {_photos(len(self.ids))}"

    def renumbered(self, ids: Mapping[int, int]) -> Added:
        return Added(tuple(ids.get(number, number) for number in self.ids))


@dataclass(frozen=True)
class Removed:
    """Photos that were removed: id, digest, label and name of each whose file still exists."""

    photos: tuple[tuple[int, str, Any, str], ...]

    def __str__(self) -> str:
        return f"removing {_photos(len(self.photos))}"

    def renumbered(self, ids: Mapping[int, int]) -> Removed:
        return replace(self, photos=tuple((ids.get(number, number), *rest) for number, *rest in self.photos))


@dataclass(frozen=True)
class Relabeled:
    """Photos that were relabeled: id and previous label."""

    labels: tuple[tuple[int, Any], ...]

    def __str__(self) -> str:
        return f"relabeling {_photos(len(self.labels))}"

    def renumbered(self, ids: Mapping[int, int]) -> Relabeled:
        return Relabeled(tuple((ids.get(number, number), label) for number, label in self.labels))


Step = Added | Removed | Relabeled


class UndoList:
    """The latest steps, newest last; the oldest are dropped."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=_MOST)

    def push(self, step: Step) -> None:
        """Append a step."""
        self._steps.append(step)

    def pop(self) -> Step | None:
        """Remove and return the last step."""
        return self._steps.pop() if self._steps else None

    def renumber(self, ids: Mapping[int, int]) -> None:
        """Replace ids in all steps, for photos that came back under new ids."""
        self._steps = deque((step.renumbered(ids) for step in self._steps), maxlen=_MOST)

    @property
    def last(self) -> str | None:
        """What would be undone, in words."""
        return str(self._steps[-1]) if self._steps else None

    def digests(self) -> set[str]:
        """Photos that an undo may bring back."""
        return {digest for step in list(self._steps) if isinstance(step, Removed) for _, digest, _, _ in step.photos}


def _photos(n: int) -> str:
    return "1 photo" if n == 1 else f"{n} photos"

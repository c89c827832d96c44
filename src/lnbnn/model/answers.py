"""The answer of a model for one image, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["UNKNOWN", "Answer", "no_descriptors"]

UNKNOWN = "unknown"
"""The name of the answer for a rejected image."""


@dataclass(frozen=True)
class Answer:
    """The answer of a model for one image.

    ``ranking`` holds (label, score) for every class, best first. An image that cannot be read, or has no descriptors,
    gets no label, an empty ranking and the reason; ``unreadable`` tells the two apart. ``is_unknown``: the image was
    rejected, and has a ranking but no label; None without ``reject``. If the model is calibrated, ``probabilities``
    holds the probability of each class of the ranking, given that the image belongs to one of the classes; if it is
    calibrated for rejection, ``false_accept_rate`` is the smallest rate at which it is accepted.
    """

    name: str
    label: Any
    ranking: tuple[tuple[Any, float], ...]
    reason: str | None = None
    unreadable: bool = False
    is_unknown: bool | None = None
    probabilities: tuple[float, ...] = ()
    false_accept_rate: float | None = None

    def as_json(self, top: int | None = None) -> dict[str, Any]:
        """The answer as plain values, with the first ``top`` classes of the ranking."""
        content: dict[str, Any] = {
            "path": self.name,
            "label": UNKNOWN if self.is_unknown else self.label,
            "ranking": [list(entry) for entry in self.ranking[:top]],
        }
        if self.is_unknown is not None:
            content["is_unknown"] = self.is_unknown
        if self.probabilities:
            content["probability"] = self.probabilities[0]
        if self.false_accept_rate is not None:
            content["false_accept_rate"] = self.false_accept_rate
        return content if self.reason is None else content | {"error": self.reason}


def no_descriptors(name: str) -> str:
    """The reason given for an image without descriptors."""
    return f"{name}: no descriptors; the picture is flat or too small."

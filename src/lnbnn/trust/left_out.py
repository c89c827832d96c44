"""Leave-one-out answers of a model for its own labeled images: one of them, or all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from lnbnn.classifiers.base import Classifier
from lnbnn.errors import InvalidInputError
from lnbnn.methods.matching import MatchingMethod, ids_of_image
from lnbnn.model.fusion import FusionModel
from lnbnn.model.model import Model
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.references import Reference, can_be_held_out, check_ids
from lnbnn.trust.audit import nearest_images
from lnbnn.trust.evaluation import Evaluation

__all__ = ["LeftOut", "LeftOutAnswer", "Neighbor", "evaluate_left_out", "left_out_answer"]


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The leave-one-out answers; images that are alone in their class are not classified."""

    evaluation: Evaluation
    images: tuple[tuple[Reference, Any], ...]
    """Each with its answer."""
    alone: tuple[Reference, ...]

    def as_json(self) -> dict[str, Any]:
        """The figures, the confusion matrix, and each image's answer, as plain values."""
        return {
            **self.evaluation.as_json(),
            "labels": list(self.evaluation.labels),
            "answers": list(self.evaluation.answers),
            "confusion": self.evaluation.confusion.tolist(),
            "images": [{"id": image.id, "label": image.label, "answer": answer} for image, answer in self.images],
            "alone": [image.id for image in self.alone],
        }


def evaluate_left_out(classifier: Classifier, *, progress: Progress = no_progress) -> LeftOut:
    """Classify each labeled image without itself, and count the right answers."""
    model, start = classifier.fitted(), time.perf_counter()
    references = model.references
    classes, places, used = references.classes.tolist(), references.places, can_be_held_out(references.places)
    if len(classes) < 2 or not used.any():
        raise InvalidInputError("leaving photos out needs two classes, and one of them with two photos; add some.")
    answers = np.argmax(_scores(model, progress), axis=1)
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(confusion, (places[used], answers[used]), 1)
    met = confusion.sum(axis=1) > 0
    labels = tuple(label for label, is_met in zip(classes, met, strict=True) if is_met)
    evaluation = Evaluation(labels, tuple(classes), confusion[met], time.perf_counter() - start, ())
    asked = tuple((references[row], classes[answers[row]]) for row in np.flatnonzero(used))
    return LeftOut(evaluation, asked, tuple(references[row] for row in np.flatnonzero(~used)))


@dataclass(frozen=True)
class Neighbor:
    """A labeled image, and the share of another's patches that have their nearest neighbor in it."""

    image: Reference
    share: float


@dataclass(frozen=True, eq=False)
class LeftOutAnswer:
    """The answer for one image of a model without it, and the most similar of the others."""

    image: Reference
    ranking: tuple[tuple[Any, float], ...]
    neighbors: tuple[Neighbor, ...]

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            **self.image.as_json(),
            "answer": self.ranking[0][0] if self.ranking else None,
            "ranking": [list(entry) for entry in self.ranking],
            "neighbors": [{**one.image.as_json(), "share": one.share} for one in self.neighbors],
        }


def left_out_answer(classifier: Classifier, number: int, *, n_neighbors: int = 8) -> LeftOutAnswer:
    """The leave-one-out answer for a labeled image, by its id; none for an image that is alone."""
    model = classifier.fitted()
    rows = {image.id: row for row, image in enumerate(model.references)}
    (number,) = check_ids(number, rows)
    row, image = rows[number], model.references[rows[number]]
    ranking: tuple[tuple[Any, float], ...] = ()
    if len(model.references) > 1:
        ranking = classifier.ranking(_scores(model, no_progress, [row])[0])
    return LeftOutAnswer(image, ranking, _neighbors(model, image, n_neighbors))


def _scores(model: Model, progress: Progress, rows: list[int] | None = None) -> np.ndarray:
    scores = model.held_out_scores(progress, rows)
    if scores is None:
        raise InvalidInputError(f"method {model.settings.method!r} cannot leave its images out.")
    return scores


def _neighbors(model: Model, image: Reference, n: int) -> tuple[Neighbor, ...]:
    """Of a fusion, to its first method that looks for neighbors; none of a model that has no such method."""
    members = model.members if isinstance(model, FusionModel) else [model]
    for member in members:
        rows = {one.id: row for row, one in enumerate(member.references)}
        if isinstance(member.method, MatchingMethod) and image.id in rows:
            vectors = member.method.reference_vectors(rows[image.id])
            own = ids_of_image(image.id, len(vectors))
            used = member.method.query_rows(len(vectors))
            _, found = nearest_images(member.method, vectors if used is None else vectors[used], own)
            numbers, counts = np.unique(found[found >= 0], return_counts=True)
            order = np.argsort(-counts, kind="stable")[:n]
            by_id = {one.id: one for one in model.references}
            return tuple(Neighbor(by_id[int(numbers[at])], counts[at] / len(found)) for at in order)
    return ()

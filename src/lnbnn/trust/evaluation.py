"""How well a classifier does on labeled images: mean per-class accuracy and the confusion matrix."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import Classifier
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.escaping import csv_cell
from lnbnn.files.atomic import atomic_path
from lnbnn.reading.extraction import ImageLike, Progress, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.trust.photos import image_digest

__all__ = ["NO_ANSWER", "Evaluation", "KnownImage", "evaluate", "mean_per_class", "write_confusion"]

NO_ANSWER = "(no answer)"


@dataclass(frozen=True)
class KnownImage:
    """A test image whose content is in the model: that it is recognized says nothing about new images."""

    name: str
    label: Any
    answer: Any
    image_id: int
    """Of the model's image of the same content ..."""
    model_label: Any
    """... and its label, which may be another one."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation.

    Parameters
    ----------
    labels : tuple
        The true classes met, sorted; the rows of ``confusion``.
    answers : tuple
        The classes of the model, then :data:`NO_ANSWER` (in more brackets if a class is called so); the columns of
        ``confusion``.
    confusion : ndarray of shape (len(labels), len(answers))
        How many images of a class got an answer.
    seconds : float
        Time taken to read and classify the images.
    skipped : tuple of (name, reason)
        Files that could not be read; they are not counted.
    known : tuple of KnownImage
        Test images whose content is in the model; they are counted.
    """

    labels: tuple[Any, ...]
    answers: tuple[Any, ...]
    confusion: NDArray[np.int64]
    seconds: float
    skipped: tuple[tuple[str, str], ...]
    known: tuple[KnownImage, ...] = ()

    @property
    def n_images(self) -> int:
        return int(self.confusion.sum())

    @property
    def per_class(self) -> dict[Any, float]:
        """Share of each class's images that got the right answer."""
        places = {answer: place for place, answer in enumerate(self.answers)}
        return {
            label: float(row[places[label]] / row.sum()) if label in places else 0.0
            for label, row in zip(self.labels, self.confusion, strict=True)
        }

    @property
    def mean_per_class_accuracy(self) -> float:
        """Mean of the per-class accuracies: every class counts the same, whatever its number of images."""
        return float(np.mean(list(self.per_class.values())))

    @property
    def n_per_class(self) -> dict[Any, int]:
        """How many images of each class there were."""
        return dict(zip(self.labels, self.confusion.sum(axis=1).tolist(), strict=True))

    def without_known(self) -> Evaluation | None:
        """The same for the images that are new to the model, and their classes; None if there are none."""
        if not self.known:
            return self
        confusion = self.confusion.copy()
        for image in self.known:
            confusion[self.labels.index(image.label), self.answers.index(image.answer)] -= 1
        met = confusion.sum(axis=1) > 0
        labels = tuple(label for label, is_met in zip(self.labels, met, strict=True) if is_met)
        return replace(self, labels=labels, confusion=confusion[met], known=()) if labels else None

    def as_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        new = self.without_known()
        return {
            "mean_per_class_accuracy": self.mean_per_class_accuracy,
            "per_class": {str(label): accuracy for label, accuracy in self.per_class.items()},
            "n_images": self.n_images,
            "n_skipped": len(self.skipped),
            "seconds": round(self.seconds, 3),
            "n_in_model": len(self.known),
            "mean_per_class_accuracy_without_them": None if new is None else new.mean_per_class_accuracy,
            "in_model": [
                {"path": i.name, "label": i.label, "image_id": i.image_id, "model_label": i.model_label}
                for i in self.known
            ],
        }

    def confusions(self, n: int = 10) -> list[tuple[Any, Any, int]]:
        """The most frequent mistakes as (true class, answer, count)."""
        mistakes = [
            (label, answer, int(count))
            for label, row in zip(self.labels, self.confusion, strict=True)
            for answer, count in zip(self.answers, row, strict=True)
            if count and answer != label
        ]
        return sorted(mistakes, key=lambda mistake: -mistake[2])[:n]


def evaluate(
    classifier: Classifier,
    images: Sequence[ImageLike],
    labels: Sequence[Any],
    *,
    on_error: str = "skip",
    store: FeatureStore | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Classify labeled images and compare.

    Labels may be given by name, as text. Images of a class that the model does not know count as wrong, and so do
    images without descriptors. A file that cannot be read is skipped and listed (``on_error="raise"``: raised). Images
    that are in the model, by their SHA-256, count and are listed: see :meth:`Evaluation.without_known`.
    """
    if len(images) != len(labels) or not len(images):
        raise InvalidInputError(f"expected as many labels as images, at least one; got {len(labels)}, {len(images)}.")
    if on_error not in ("raise", "skip"):
        raise InvalidInputError(f"on_error must be 'raise' or 'skip'; got {on_error!r}.")
    references = classifier.fitted().references
    labels = references.named(labels)
    by_digest = {image.digest: image for image in references if image.digest is not None}
    no_answer = NO_ANSWER
    while no_answer in {*classifier.fitted_classes().tolist(), *labels}:
        no_answer = f"({no_answer})"
    answers = (*classifier.fitted_classes().tolist(), no_answer)
    columns = {answer: place for place, answer in enumerate(answers)}
    pairs: list[tuple[Any, int]] = []
    skipped: list[tuple[str, str]] = []
    known: list[KnownImage] = []
    start = time.perf_counter()
    found = zip(classifier.iter_answers(images, store=store), images, labels, strict=True)
    for done, (answer, image, label) in enumerate(found, 1):
        if answer.unreadable:
            if on_error == "raise":
                raise ImageReadError(answer.reason)
            skipped.append((answer.name, str(answer.reason)))
        else:
            given = no_answer if answer.label is None else answer.label
            pairs.append((label, columns[given]))
            same = by_digest.get(image_digest(image)) if by_digest else None
            if same is not None:
                known.append(KnownImage(answer.name, label, given, same.id, same.label))
        progress("classifying", done, len(images))
    seconds = time.perf_counter() - start
    if not pairs:
        raise InvalidInputError(f"none of the {len(images)} images could be read: {skipped[0][1]}")
    met = sorted({label for label, _ in pairs}, key=lambda label: (isinstance(label, str), label))
    rows = {label: place for place, label in enumerate(met)}
    confusion = np.zeros((len(met), len(answers)), np.int64)
    np.add.at(confusion, ([rows[label] for label, _ in pairs], [column for _, column in pairs]), 1)
    return Evaluation(tuple(met), answers, confusion, seconds, tuple(skipped), tuple(known))


def mean_per_class(answers: NDArray[np.generic], truth: NDArray[np.generic]) -> float:
    """Mean over the classes in ``truth`` of the share of right answers, from 0 to 1."""
    return float(np.mean([np.mean(answers[truth == label] == label) for label in np.unique(truth)]))


def write_confusion(path: str | os.PathLike[str], evaluation: Evaluation) -> None:
    """The confusion matrix as CSV: a row per true class, a column per answer."""
    with atomic_path(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["true class", *map(csv_cell, evaluation.answers)])
        writer.writerows(
            [csv_cell(label), *row] for label, row in zip(evaluation.labels, evaluation.confusion.tolist(), strict=True)
        )

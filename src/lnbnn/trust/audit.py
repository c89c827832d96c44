"""An audit of the labeled images of a model: each is classified without itself.

One pass finds labels that look wrong, near-duplicates, images unlike any other, and confused classes. :func:`audit`
computes; :mod:`lnbnn.trust.audit_page` and the command line show the result.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import Classifier
from lnbnn.errors import InvalidInputError
from lnbnn.methods.matching import MatchingMethod, image_of_id
from lnbnn.model.fusion import FusionModel
from lnbnn.model.model import Model
from lnbnn.model.unknown import best_class_z
from lnbnn.params import OldName
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.references import References, can_be_held_out
from lnbnn.trust.mislabeled import doubts, standard_scores, wrong_label_probabilities

__all__ = ["Audit", "ConfusedClasses", "NearDuplicate", "Stranger", "Suspect", "audit", "nearest_images"]

_SUSPECT_FROM = 0.3
_SEED = 0  # of the wrong labels that are drawn
_TWIN_SAMPLE = 500  # descriptors of an image that are asked for its twin
_TWIN_SHARE = 0.5  # of them must find their nearest neighbor in one image for it to be a copy ...
_TWIN_CLOSER = 0.25  # ... at less than this share of the squared distance that is usual
_STRANGER_SHARE = 0.05  # of the images, those for which a class stands out least, may be strangers ...
_STRANGER_BELOW = 0.25  # ... if it is not their own, or stands out less than this share of the usual


@dataclass(frozen=True)
class Suspect:
    """An image whose label looks wrong: without it, the model answers another class."""

    id: int
    name: str
    label: Any
    suggested: Any
    probability: float
    """That the label is wrong."""
    doubt: float
    """How far the suggested class is above the label, in units of the spread of the image's scores."""
    closest_id: int
    closest_name: str
    closest_label: Any
    """The most similar image."""


@dataclass(frozen=True)
class NearDuplicate:
    """Two images of which one contains most of the other; ``share`` of the descriptors have a match there."""

    id: int
    name: str
    label: Any
    other_id: int
    other_name: str
    other_label: Any
    share: float
    same_bytes: bool

    @property
    def across_classes(self) -> bool:
        """Whether the two have different labels: one of them must be wrong."""
        return bool(self.label != self.other_label)


@dataclass(frozen=True)
class Stranger:
    """An image unlike any other: no class stands out for it, not even its own."""

    id: int
    name: str
    label: Any
    z_score: float
    """How far its best class is above the others, in standard deviations."""
    rank: int
    """The rank of its label among all classes, 1 for the best."""

    prominence = OldName("z_score")


@dataclass(frozen=True)
class ConfusedClasses:
    """Images of a class that are answered as another one."""

    label: Any
    answer: Any
    n_images: int
    share: float


@dataclass(frozen=True)
class Audit:
    """What :func:`audit` found, most suspicious first."""

    n_images: int
    n_classes: int
    accuracy: float
    """The leave-one-out accuracy."""
    suspects: tuple[Suspect, ...]
    near_duplicates: tuple[NearDuplicate, ...]
    strangers: tuple[Stranger, ...]
    confused: tuple[ConfusedClasses, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values for JSON."""
        found = asdict(self)
        for entry, pair in zip(found["near_duplicates"], self.near_duplicates, strict=True):
            entry["across_classes"] = pair.across_classes
        for entry in found["strangers"]:
            entry["prominence"] = entry["z_score"]  # the old key, until 0.4
        return found


def audit(classifier: Classifier, *, min_probability: float = _SUSPECT_FROM, progress: Progress = no_progress) -> Audit:
    """Classify each labeled image of a model without itself, and list what looks wrong.

    Parameters
    ----------
    classifier : a fitted model of a method that can leave its images out, or a fusion of such
    min_probability : float, default=0.3
        List an image as mislabeled if its label is wrong with at least this probability; see
        :mod:`lnbnn.trust.mislabeled`.
    """
    if not 0.0 <= min_probability <= 1.0:
        raise InvalidInputError(f"min_probability must be from 0 to 1; got {min_probability}.")
    model = classifier.fitted()
    classes = model.references.classes.tolist()
    if len(classes) < 2:
        raise InvalidInputError("an audit compares classes and needs at least two; the model has one.")
    scores, twins = _look_up(model, progress)
    labels = model.references.places
    scaled = scores / model.score_scales()[:, None]
    used = can_be_held_out(labels)  # of the others nothing can be said: without them their class is gone
    probabilities = np.full(len(labels), -1.0)
    if used.any():
        probabilities[used] = wrong_label_probabilities(scaled[used], labels[used], seed=_SEED)
    answers, doubt = np.argmax(scores, axis=1), doubts(standard_scores(scaled), labels)
    suspects = []
    for place in np.flatnonzero((answers != labels) & (probabilities >= min_probability)):
        twin = int(twins.place[place])  # -1: no neighbor was found
        closest = model.references[twin if twin >= 0 else int(np.argmax(labels == answers[place]))]
        image = model.references[place]
        figures = classes[answers[place]], float(probabilities[place]), float(doubt[place])
        suspects.append(Suspect(image.id, image.name, image.label, *figures, closest.id, closest.name, closest.label))
    return Audit(
        len(labels),
        len(classes),
        float(np.mean(answers[used] == labels[used])) if used.any() else float("nan"),
        tuple(sorted(suspects, key=lambda suspect: (-suspect.doubt, suspect.id))),
        _near_duplicates(model.references, twins),
        _strangers(model.references, scores),
        _confused(model.references, answers, used),
    )


def _look_up(model: Model, progress: Progress) -> tuple[NDArray[np.float64], Twins]:
    """Scores of each image without itself, and the image that is most like it; of a fusion, to its first method that
    looks for neighbors."""
    if isinstance(model, FusionModel):
        members = [_look_up(member, progress) for member in model.members]
        fused = model.fused_scores([scores for scores, _ in members])
        searching = [place for place, member in enumerate(model.members) if isinstance(member.method, MatchingMethod)]
        place = searching[0] if searching else 0
        return fused, members[place][1].of(model.references, model.members[place].references)
    if not isinstance(model.method, MatchingMethod):
        scores = model.held_out_scores(progress)
        if scores is None:
            raise InvalidInputError(f"method {model.settings.method!r} cannot leave its images out.")
        return scores, _alike(model, scores)
    method, n_classes = model.method, len(model.method.references.classes)
    places = {image.id: place for place, image in enumerate(method.references)}

    def work(vectors: NDArray[np.generic], own: range) -> NDArray[np.float64]:
        totals = method.updates_of(vectors, own).totals(n_classes)
        return np.array([*totals, *_twin(method, vectors[:: max(1, len(vectors) // _TWIN_SAMPLE)], own, places)])

    found = method.leave_each_out(work, progress)
    place, share, squared = found[:, n_classes:].T
    usual = np.median(squared[np.isfinite(squared)]) if np.isfinite(squared).any() else 0.0
    is_close = (share >= _TWIN_SHARE) & (squared <= _TWIN_CLOSER * usual)
    return 0.0 - found[:, :n_classes], Twins(place.astype(np.int64), share, is_close)


@dataclass(frozen=True, eq=False)
class Twins:
    """For each image: the place of the one most like it (-1: none), the share of its descriptors that say so, and
    whether they are so close that one is a copy of the other."""

    place: NDArray[np.int64]
    share: NDArray[np.float64]
    is_copy: NDArray[np.bool_]

    def of(self, images: References, known: References) -> Twins:
        """The same for a longer list of images, of which some are not known."""
        rows = {image.id: row for row, image in enumerate(images)}
        result = Twins(np.full(len(images), -1), np.zeros(len(images)), np.zeros(len(images), np.bool_))
        for row, image in enumerate(known):
            twin = int(self.place[row])
            result.place[rows[image.id]] = rows[known[twin].id] if twin >= 0 else -1
            result.share[rows[image.id]], result.is_copy[rows[image.id]] = self.share[row], self.is_copy[row]
        return result


def _alike(model: Model, scores: NDArray[np.float64]) -> Twins:
    """Of a method without neighbors: the surest image of the suggested class. Copies are not looked for."""
    answers, places = scores.argmax(axis=1), model.references.places
    surest = [int(np.argmax(np.where(places == c, scores[:, c], -np.inf))) for c in range(scores.shape[1])]
    n = len(places)
    return Twins(np.array([surest[answer] for answer in answers]), np.zeros(n), np.zeros(n, np.bool_))


def _twin(
    method: MatchingMethod, vectors: NDArray[np.generic], own: range, places: dict[int, int]
) -> tuple[float, float, float]:
    """The image that holds the nearest neighbor of most vectors; their share and their median squared distance."""
    squared, images = nearest_images(method, vectors, own)
    if not (images >= 0).any():
        return -1.0, 0.0, np.inf
    numbers, counts = np.unique(images[images >= 0], return_counts=True)
    twin = int(numbers[np.argmax(counts)])
    return float(places.get(twin, -1)), counts.max() / len(vectors), float(np.median(squared[images == twin]))


def nearest_images(
    method: MatchingMethod, vectors: NDArray[np.generic], own: range
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The squared distance of each vector's nearest neighbor that is not its own, and the id of its image; -1: none."""
    squared, images = np.full(len(vectors), np.inf), np.full(len(vectors), -1, np.int64)
    for index, _ in method.indexes():
        distances, ids = index.search(vectors, 1, leave_out=own)
        nearer = distances[:, 0] < squared
        squared[nearer], images[nearer] = distances[nearer, 0], image_of_id(ids[nearer, 0])
    return squared, images


def _near_duplicates(images: References, twins: Twins) -> tuple[NearDuplicate, ...]:
    pairs: dict[tuple[int, int], float] = {}
    for place in np.flatnonzero(twins.is_copy).tolist():
        twin, share = int(twins.place[place]), float(twins.share[place])
        key = (min(place, twin), max(place, twin))
        pairs[key] = max(share, pairs.get(key, 0.0))
    by_digest: dict[str, int] = {}
    same: set[tuple[int, int]] = set()
    for place, image in enumerate(images):
        if image.digest is not None and (first := by_digest.setdefault(image.digest, place)) != place:
            same.add((first, place))
            pairs[first, place] = 1.0
    found = []
    for (one, other), share in pairs.items():
        a, b = images[one], images[other]
        found.append(NearDuplicate(a.id, a.name, a.label, b.id, b.name, b.label, float(share), (one, other) in same))
    return tuple(sorted(found, key=lambda pair: (not pair.across_classes, -pair.share, pair.id)))


def _strangers(images: References, scores: NDArray[np.float64]) -> tuple[Stranger, ...]:
    labels = images.places
    z_scores = best_class_z(scores)
    ranks = 1 + (scores > scores[np.arange(len(labels)), labels][:, None]).sum(axis=1)
    n_listed = int(np.ceil(_STRANGER_SHARE * len(labels)))
    order = np.argsort(z_scores, kind="stable")[:n_listed]
    listed = [p for p in order if ranks[p] > 1 or z_scores[p] < _STRANGER_BELOW * np.median(z_scores)]
    return tuple(
        Stranger(images[p].id, images[p].name, images[p].label, float(z_scores[p]), int(ranks[p])) for p in listed
    )


def _confused(images: References, answers: NDArray[np.int64], used: NDArray[np.bool_]) -> tuple[ConfusedClasses, ...]:
    classes, labels = images.classes.tolist(), images.places
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, (labels[used], answers[used]), 1)
    sizes = np.maximum(counts.sum(axis=1), 1)
    np.fill_diagonal(counts, 0)
    found = [
        ConfusedClasses(classes[a], classes[b], int(counts[a, b]), float(counts[a, b] / sizes[a]))
        for a, b in zip(*np.nonzero(counts), strict=True)
        if counts[a, b] > 1 or sizes[a] <= 3
    ]
    return tuple(sorted(found, key=lambda pair: (-pair.n_images, -pair.share, str(pair.label))))

"""Where in a picture the evidence is: from updates to per-pixel support, arrays only (drawing is in figures)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import Classifier
from lnbnn.errors import InvalidInputError
from lnbnn.features import ImageFeatures
from lnbnn.methods.matching import MatchingMethod
from lnbnn.model.fusion import FusionModel
from lnbnn.model.model import Model
from lnbnn.reading.extraction import ImageLike
from lnbnn.references import Reference
from lnbnn.scoring import Updates
from lnbnn.trust.matches import Matches, Photo, find_matches, photos_of
from lnbnn.trust.photos import image_digest

__all__ = ["Evidence", "explain", "support_map"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Why an image got its answer.

    Parameters
    ----------
    label, against : label
        The class in question, and the class it is compared with (None: with the background alone).
    support : ndarray of shape (n_descriptors,)
        The evidence of each descriptor for ``label`` (minus that for ``against``); positive supports it.
    map : ndarray of shape (height, width)
        The support spread evenly over each patch; its sum is the sum of the support.
    features : ImageFeatures
        The descriptors that the support belongs to; for a fusion only their locations.
    ranking : tuple of (label, score)
        All classes, best first.
    matches : tuple of Matches
        The patches of labeled images that the support comes from, for each model that has patch matches: one, or
        several for a fusion.
    itself : Reference or None
        The labeled image of the model with the same content, if there is one: it matches itself.
    """

    label: Any
    against: Any
    support: NDArray[np.float64]
    map: NDArray[np.float64]
    features: ImageFeatures
    ranking: tuple[tuple[Any, float], ...]
    matches: tuple[Matches, ...] = ()
    itself: Reference | None = None

    @property
    def photos(self) -> tuple[Photo, ...]:
        """The labeled images that the evidence comes from, with their shares; they sum to the support, up to
        rounding."""
        return photos_of(self.matches)

    def as_json(self) -> dict[str, Any]:
        """Label, ranking and labeled images as plain values."""
        return {
            "label": self.label,
            "against": self.against,
            "ranking": [list(entry) for entry in self.ranking],
            "n_patches": len(self.support),
            "support": float(self.support.sum()),
            "itself": None if self.itself is None else self.itself.id,
            "photos": [
                {
                    "id": photo.image.id,
                    "path": photo.image.name,
                    "label": photo.image.label,
                    "support": photo.support,
                    "share": photo.share,
                    "n_patches": photo.n_patches,
                }
                for photo in self.photos
            ],
        }


def explain(classifier: Classifier, image: ImageLike, *, label: Any = None, against: Any = None) -> Evidence:
    """The evidence in an image for a class (by default the answer), alone or against another class, by label or name.

    For a fusion, the evidence is that of the methods whose scores are sums over patches, weighted by their share of the
    fused score. The other methods look at the picture as a whole and count in the ranking only.
    """
    model = classifier.fitted()
    shares: list[tuple[float, Model]] = model.shares(image) if isinstance(model, FusionModel) else [(1.0, model)]
    classes = classifier.fitted_classes().tolist()
    if not any(member.method.has_patch_evidence for _, member in shares):
        method = shares[0][1].settings.method
        raise InvalidInputError(f"method {method!r} has no patch matches to show; use local-nbnn or nbnn.")
    parts: list[_Part] = []
    scores = np.zeros(len(classes))
    for share, member in shares:
        features = member.features(image)
        if not len(features):
            continue
        if member.method.has_patch_evidence:
            parts.append(_part(share, member, features))
            own = parts[-1].scores
        else:
            own = share * member.method.scores(features)
        scores += model.widened(member, own) if isinstance(model, FusionModel) else own
    if not parts:
        raise InvalidInputError("the picture has no descriptors (flat or too small): there is no evidence to show.")
    ranking = classifier.ranking(scores)
    label, against = model.references.named([ranking[0][0] if label is None else label, against])
    place = _place(classes, label)
    other = None if against is None else _place(classes, against)
    if other == place:
        raise InvalidInputError(f"label and against are the same class, {label!r}; name two.")
    support = np.concatenate([part.says(label) for part in parts])
    if other is not None:
        support = support - np.concatenate([part.says(against) for part in parts])
    features = parts[0].features if len(parts) == 1 else _side_by_side([part.features for part in parts])
    matches = [part.matches(label, against) for part in parts if part.updates is not None]
    digest = image_digest(image)
    itself = next((known for known in model.references if digest and known.digest == digest), None)
    return Evidence(label, against, support, support_map(features, support), features, ranking, tuple(matches), itself)


@dataclass(frozen=True, eq=False)
class _Part:
    """The evidence of an image's descriptors for one model."""

    share: float
    member: Model
    features: ImageFeatures
    table: NDArray[np.float64] | None
    """The evidence of each for each class; None for the NBNN family, whose ``updates`` are sparse."""
    updates: Updates | None

    @property
    def scores(self) -> NDArray[np.float64]:
        """The sums, for each class of the model."""
        if self.updates is not None:
            return self.share * (0.0 - self.updates.totals(len(self.member.references.classes)))
        assert self.table is not None
        return self.share * np.asarray(self.table.sum(axis=0))

    def says(self, label: Any) -> NDArray[np.float64]:
        """The evidence of each descriptor for a class; zero for one that the model has no image of."""
        place = self._place(label)
        if place is None:
            return np.zeros(len(self.features))
        if self.updates is not None:
            return self.share * -self.updates.of_class(place)
        assert self.table is not None
        return self.share * self.table[:, place]

    def matches(self, label: Any, against: Any) -> Matches:
        """The matching patches of labeled images of a class, and of the class it is compared with."""
        assert self.updates is not None
        places = self._place(label), None if against is None else self._place(against)
        return find_matches(self.member, self.features, self.updates, *places, share=self.share)

    def _place(self, label: Any) -> int | None:
        classes = self.member.references.classes.tolist()
        return classes.index(label) if label in classes else None


def _part(share: float, member: Model, features: ImageFeatures) -> _Part:
    method = member.method
    if isinstance(method, MatchingMethod):
        features = method.query_features(features)
        return _Part(share, member, features, None, method.updates_of(method.vectors(features)))
    return _Part(share, member, features, method.patch_scores(features), None)


def _side_by_side(parts: list[ImageFeatures]) -> ImageFeatures:
    """Where the descriptors of several methods lie, in the first one's picture; the descriptors themselves differ."""
    width, height = parts[0].size
    xy = np.concatenate([part.xy for part in parts])
    scale = np.concatenate([part.scale * np.float32(max(width, height) / max(part.size)) for part in parts])
    return ImageFeatures(np.zeros((len(xy), 1), np.uint8), xy, scale, (width, height))


def support_map(features: ImageFeatures, support: NDArray[np.floating]) -> NDArray[np.float64]:
    """Each descriptor's support, spread evenly over the pixels of its patch: (height, width), of the same sum."""
    width, height = features.size
    half = features.scale / 2.0
    x, y = features.xy[:, 0] * width, features.xy[:, 1] * height
    left = np.clip(np.floor(x - half), 0, width - 1).astype(np.intp)
    right = np.clip(np.ceil(x + half), left + 1, width).astype(np.intp)
    top = np.clip(np.floor(y - half), 0, height - 1).astype(np.intp)
    bottom = np.clip(np.ceil(y + half), top + 1, height).astype(np.intp)
    a_pixel = support / ((right - left) * (bottom - top))
    corners = np.zeros((height + 1, width + 1))  # +v at two corners, -v at the others: running sums fill the patch
    for rows, columns, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
        np.add.at(corners, (rows, columns), sign * a_pixel)
    return corners.cumsum(axis=0).cumsum(axis=1)[:height, :width]


def _place(classes: list[Any], label: Any) -> int:
    if label not in classes:
        shown = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
        raise InvalidInputError(f"the model has no class {label!r}; it knows {len(classes)}: {shown}")
    return classes.index(label)

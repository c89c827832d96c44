"""The NBNN kernel: image-to-class responses as the features of a linear classifier (Tuytelaars et al. 2011).

With Local NBNN's responses in place of NBNN's it is what McCann and Lowe suggested but did not test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.files.arrays import load_array, save_array
from lnbnn.indexes import LeaveOut
from lnbnn.methods.base import Method, Progress, no_progress
from lnbnn.methods.linear_classifiers import LinearClassifier, train_linear_classifier
from lnbnn.methods.matching import MatchingMethod
from lnbnn.methods.responses import cell_totals, own_and_response
from lnbnn.references import Reference, References

__all__ = ["ResponseKernel", "totals_by_cell"]


class ResponseKernel(Method):
    """A linear classifier on the response vectors of a method of the NBNN family, its ``inner`` method.

    The responses of the training images are computed with the image itself left out of the index. Each response is
    standardized over the training images. The score of a class is that of the linear classifier plus a
    share of the inner method's own. C and that share are chosen by cross-validation on the training images, unless
    they are given. The settings are ``response``, ``classifier``, ``levels``, ``C`` and ``blend``.
    """

    def __init__(self, settings: Any, inner: MatchingMethod) -> None:
        super().__init__(settings)
        self.inner = inner
        self.linear: LinearClassifier | None = None

    def responses(self, progress: Progress = no_progress) -> NDArray[np.float64]:
        """What the inner method says of each class, then the response vector; a row per reference, itself left out."""
        return self.inner.leave_each_out(self._row, progress)

    def _row(self, vectors: NDArray[np.generic], leave_out: LeaveOut = None) -> NDArray[np.float64]:
        totals = totals_by_cell(self.inner, vectors, leave_out, self.settings.levels)
        return np.concatenate(own_and_response(totals, len(vectors), self.settings.response))

    def add(self, image: Reference, features: ImageFeatures) -> None:
        self.inner.add(image, features)

    def finish(self, references: References, progress: Progress) -> None:
        counts = np.bincount(references.places)
        if counts.min() < 2:
            raise InvalidInputError(
                f"method {self.settings.method!r} learns from each image left out and needs at least 2 usable images "
                f"per class; class {references.classes.tolist()[counts.argmin()]!r} has {counts.min()}."
            )
        self.references = references
        self.inner.finish(references, progress)
        own, responses = np.split(self.responses(progress), [len(references.classes)], axis=1)
        settings = self.settings
        self.linear = train_linear_classifier(
            own,
            responses,
            references.places,
            kind=settings.classifier,
            seed=settings.random_state,
            c=settings.C,
            blend=settings.blend,
        )

    def scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        assert self.linear is not None
        row = self._row(self.inner.vectors(self.inner.query_features(features)))
        own, response = np.split(row, [len(self.references.classes)])
        return self.linear.scores(own, response)

    def save(self, folder: Path) -> None:
        assert self.linear is not None
        self.inner.save(folder)
        for name in ("coef", "intercept", "mean", "scale"):
            save_array(folder / f"machines_{name}.npy", getattr(self.linear, name))
        save_array(folder / "machines_chosen.npy", np.array([self.linear.C, self.linear.own_weight]))

    def load(self, folder: Path, references: References) -> None:
        self.references = references
        self.inner.load(folder, references)
        coef = np.array(load_array(folder / "machines_coef.npy", ndim=2, dtypes=("float64",)))
        mean, scale, intercept, chosen = (
            np.array(load_array(folder / f"machines_{name}.npy", ndim=1, dtypes=("float64",)))
            for name in ("mean", "scale", "intercept", "chosen")
        )
        n_classes, n_cells = len(references.classes), sum(4**level for level in range(self.settings.levels))
        d = n_cells * n_classes
        shapes = [coef.shape, intercept.shape, mean.shape, scale.shape, chosen.shape]
        if shapes != [(n_classes, d), (n_classes,), (d,), (d,), (2,)]:
            raise ModelFormatError(
                f"{folder}: the linear classifier's arrays do not fit the classes; fit the model again."
            )
        self.linear = LinearClassifier(mean, scale, coef, intercept, *chosen.tolist())

    def min_descriptors(self) -> int:
        return self.inner.min_descriptors()

    def inconsistencies(self) -> list[str]:
        return self.inner.inconsistencies()

    def describe(self) -> str:
        assert self.linear is not None
        kind = {"svm": "linear SVMs", "logistic": "logistic regression"}[self.settings.classifier]
        own_weight = self.linear.own_weight
        own = f", the method's own score weighs {own_weight:.2g}" if own_weight else ""
        return f"{kind} (C={self.linear.C:g}{own}) on {self.settings.response} responses, {self.inner.describe()}"

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes


def totals_by_cell(
    method: MatchingMethod, vectors: NDArray[np.generic], leave_out: LeaveOut, levels: int
) -> NDArray[np.float64]:
    """Totals of query vectors over the whole image, then over its quarters and so on: shape (n_cells, n_classes)."""
    updates = method.updates_of(vectors, leave_out)
    weight, unit = method.location_weight, UNIT_LENGTH if vectors.dtype == np.uint8 else 1.0
    xy = vectors[:, -2:].astype(np.float64) / (unit * weight) if weight else np.zeros((len(vectors), 2))
    n_classes = len(method.references.classes)
    return np.vstack([cell_totals(updates, xy, n_classes, 1 << level) for level in range(levels)])

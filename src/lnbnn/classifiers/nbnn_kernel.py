"""The NBNN kernel: the vector of image-to-class responses as the features of linear machines (Tuytelaars et al. 2011).

With Local NBNN's responses in place of NBNN's it is what McCann and Lowe suggest and did not test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.classifiers.machines import MACHINES, Machines, train_machines
from lnbnn.classifiers.nbnn import NBNN
from lnbnn.classifiers.neighbors import NeighborClassifier
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import UNIT_LENGTH, ImageFeatures
from lnbnn.files.arrays import load_array, save_array
from lnbnn.indexes import LeaveOut
from lnbnn.methods.responses import RESPONSES, cell_totals, own_and_response
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.settings import LARGEST, check_whole

__all__ = ["LocalNBNNKernel", "NBNNKernel", "ResponseKernel"]


class ResponseKernel(NeighborClassifier):
    """Linear machines on the response vectors of a method of the NBNN family; mixed in before that method.

    The responses of the training images are computed with the image itself left out of the index. Each response is
    standardised over the training images. The score of a class is its machine's, plus a share of what the method
    below says of the class by itself. C and that share are chosen by cross-validation on the training images, unless
    they are given.
    """

    response: str
    machine: str
    levels: int
    C: float | None
    blend: float | None
    is_incremental = False
    has_patch_evidence = False

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        super().check_settings()
        if self.response not in RESPONSES:
            raise InvalidInputError(f"response must be one of {', '.join(RESPONSES)}; got {self.response!r}.")
        if self.machine not in MACHINES:
            raise InvalidInputError(f"machine must be one of {', '.join(MACHINES)}; got {self.machine!r}.")
        check_whole("levels", self.levels, 1, 4)
        if self.levels > 1 and self.used_location_weight() == 0:
            raise InvalidInputError("levels above 1 need a location_weight above 0: it stores where a patch lies.")
        if self.C is not None and not 0 < self.C <= LARGEST:
            raise InvalidInputError(f"C must be above 0, or None to choose it by cross-validation; got {self.C!r}.")
        if self.blend is not None and not 0 <= self.blend <= LARGEST:
            raise InvalidInputError(f"blend must be at least 0, or None to choose it; got {self.blend!r}.")

    def reference_responses(self, *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """The response vector of each labelled image, with the image itself left out of the index."""
        return self._leave_each_out(self._row, progress)[:, len(self.classes_) :]

    def _row(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> NDArray[np.float64]:
        """What the method below says of each class (standardised, higher is better), then the response vector."""
        totals = totals_by_cell(self, vectors, leave_out, self.levels)
        return np.concatenate(own_and_response(totals, len(vectors), self.response))

    def _end_fit(self, progress: Progress) -> None:
        labels = np.array([image.label for image in self.images_])
        counts = np.bincount(labels)
        if counts.min() < 2:
            raise InvalidInputError(
                f"method {self.method!r} learns from each image left out and needs at least 2 usable images a class; "
                f"class {self.classes_.tolist()[counts.argmin()]!r} has {counts.min()}."
            )
        super()._end_fit(progress)
        own, responses = np.split(self._leave_each_out(self._row, progress), [len(self.classes_)], axis=1)
        self.machines_ = train_machines(
            own, responses, labels, machine=self.machine, seed=self.random_state, c=self.C, blend=self.blend
        )

    def _scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        row = self._row(self._vectors(self.query_features(features)), None)
        own, response = np.split(row, [len(self.classes_)])
        return self.machines_.scores(own, response)

    def _save_parts(self, folder: Path) -> None:
        super()._save_parts(folder)
        for name in ("coef", "intercept", "mean", "scale"):
            save_array(folder / f"machines_{name}.npy", getattr(self.machines_, name))
        save_array(folder / "machines_chosen.npy", np.array([self.machines_.C, self.machines_.own_weight]))

    def _load_parts(self, folder: Path) -> None:
        super()._load_parts(folder)
        coef = np.array(load_array(folder / "machines_coef.npy", ndim=2, dtypes=("float64",)))
        mean, scale, intercept, chosen = (
            np.array(load_array(folder / f"machines_{name}.npy", ndim=1, dtypes=("float64",)))
            for name in ("mean", "scale", "intercept", "chosen")
        )
        n_classes, n_cells = len(self.classes_), sum(4**level for level in range(self.levels))
        d = n_cells * n_classes
        shapes = [coef.shape, intercept.shape, mean.shape, scale.shape, chosen.shape]
        if shapes != [(n_classes, d), (n_classes,), (d,), (d,), (2,)]:
            raise ModelFormatError(f"{folder}: the machines' arrays do not fit the classes; fit the model again.")
        self.machines_ = Machines(mean, scale, coef, intercept, *chosen.tolist())

    def describe(self) -> str:
        """One line that says how the answer is found."""
        chosen, kind = self.machines_, {"svm": "linear SVMs", "logistic": "logistic regression"}[self.machine]
        own = f", the input's own score weighs {chosen.own_weight:.2g}" if chosen.own_weight else ""
        return f"{kind} (C={chosen.C:g}{own}) on {self.response} responses, {super().describe()}"


def totals_by_cell(
    classifier: NeighborClassifier, vectors: NDArray[np.generic], leave_out: LeaveOut, levels: int
) -> NDArray[np.float64]:
    """Totals of query vectors over the whole image, then over its quarters and so on: shape (n_cells, n_classes)."""
    updates = classifier._updates_of(vectors, leave_out)
    weight, unit = classifier.used_location_weight(), UNIT_LENGTH if vectors.dtype == np.uint8 else 1.0
    xy = vectors[:, -2:].astype(np.float64) / (unit * weight) if weight else np.zeros((len(vectors), 2))
    n_classes = len(classifier.classes_)
    return np.vstack([cell_totals(updates, xy, n_classes, 1 << level) for level in range(levels)])


class NBNNKernel(ResponseKernel, NBNN):
    """Linear machines on NBNN responses (Tuytelaars, Fritz, Saenko and Darrell, "The NBNN kernel", ICCV 2011).

    Parameters
    ----------
    response : {"raw", "mean", "unit", "standard", "rank", "log-odds"}, default="standard"
        The scale of the responses; see :func:`lnbnn.methods.responses.response_vectors`.
    machine : {"logistic", "svm"}, default="logistic"
        One multinomial logistic regression, or a linear SVM a class against all others, as published.
    levels : int, default=1
        Responses are pooled over the image (1), over it and its quarters (2), and so on to 8 x 8 cells (4).
    C : float, optional
        Regularisation of the SVMs; by default chosen by cross-validation on the training images.
    blend : float, optional
        Share of the input's own score of a class beside the machine's; 0 is the SVMs alone. By default chosen with C.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    n_jobs, random_state
        As of :class:`~lnbnn.classifiers.nbnn.NBNN`.
    """

    method = "nbnn-kernel"

    def __init__(
        self,
        *,
        response: str = "standard",
        machine: str = "logistic",
        levels: int = 1,
        C: float | None = None,
        blend: float | None = None,
        location_weight: float | None = None,
        scale_weight: float | None = None,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 500,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.response = response
        self.machine = machine
        self.levels = levels
        self.C = C
        self.blend = blend
        super().__init__(
            location_weight=location_weight,
            scale_weight=scale_weight,
            descriptor=descriptor,
            descriptor_params=descriptor_params,
            index=index,
            index_params=index_params,
            query_budget=query_budget,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        del self.stop_confidence  # responses are sums over all query descriptors: none is stopped early


class LocalNBNNKernel(ResponseKernel, LocalNBNN):
    """Linear machines on Local NBNN responses: the combination that McCann & Lowe (2011) suggest.

    Parameters
    ----------
    n_neighbors : int, default=10
        k of Local NBNN.
    response, machine, levels, C, blend
        As of :class:`NBNNKernel`.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    n_jobs, random_state
    match_score, background_rank, background_other_class, normalize_classes
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`.
    """

    method = "local-nbnn-kernel"

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        response: str = "standard",
        machine: str = "logistic",
        levels: int = 1,
        C: float | None = None,
        blend: float | None = None,
        location_weight: float | None = None,
        scale_weight: float | None = None,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 500,
        match_score: str = "difference",
        background_rank: int | None = None,
        background_other_class: bool = False,
        normalize_classes: bool = False,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.response = response
        self.machine = machine
        self.levels = levels
        self.C = C
        self.blend = blend
        super().__init__(
            n_neighbors,
            location_weight=location_weight,
            scale_weight=scale_weight,
            descriptor=descriptor,
            descriptor_params=descriptor_params,
            index=index,
            index_params=index_params,
            query_budget=query_budget,
            match_score=match_score,
            background_rank=background_rank,
            background_other_class=background_other_class,
            normalize_classes=normalize_classes,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        del self.stop_confidence  # responses are sums over all query descriptors: none is stopped early

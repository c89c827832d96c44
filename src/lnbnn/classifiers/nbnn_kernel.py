"""The NBNN kernel: the vector of image-to-class responses as the features of linear SVMs (Tuytelaars et al. 2011).

With Local NBNN's responses in place of NBNN's it is what McCann and Lowe suggest and did not test.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from lnbnn.arrays import load_array, save_array
from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.classifiers.nbnn import NBNN
from lnbnn.classifiers.neighbors import NeighborClassifier
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.extraction import Progress, no_progress
from lnbnn.features import ImageFeatures
from lnbnn.location import UNIT_LENGTH
from lnbnn.responses import RESPONSES, cell_totals, response_vectors
from lnbnn.settings import check_whole

__all__ = ["LocalNBNNKernel", "NBNNKernel", "ResponseSVM"]

_GRID = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
_FOLDS = 3


class ResponseSVM(NeighborClassifier):
    """One-vs-all linear SVMs on the response vectors of a method of the NBNN family; mixed in before that method.

    The responses of the training images are computed with the image itself left out of the index. Each response is
    standardised over the training images. C is chosen by cross-validation on them, unless it is given.
    """

    response: str
    levels: int
    C: float | None
    is_incremental = False
    has_patch_evidence = False

    def check_settings(self) -> None:
        """Raise when a setting makes no sense, before any image is read; ``fit`` calls it first."""
        super().check_settings()
        if self.response not in RESPONSES:
            raise InvalidInputError(f"response must be one of {', '.join(RESPONSES)}; got {self.response!r}.")
        check_whole("levels", self.levels, 1, 4)
        if self.levels > 1 and self.location_weight == 0:
            raise InvalidInputError("levels above 1 need a location_weight above 0: it stores where a patch lies.")
        if self.C is not None and not self.C > 0:
            raise InvalidInputError(f"C must be above 0, or None to choose it by cross-validation; got {self.C!r}.")

    def reference_responses(self, *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """The response vector of each labelled image, with the image itself left out of the index."""
        return self._leave_each_out(self._response, progress)

    def _response(self, vectors: NDArray[np.generic], leave_out: range | None) -> NDArray[np.float64]:
        updates = self._updates_of(vectors, leave_out)
        unit = UNIT_LENGTH if vectors.dtype == np.uint8 else 1.0
        xy = np.zeros((len(vectors), 2))
        if self.location_weight:
            xy = vectors[:, -2:].astype(np.float64) / (unit * self.location_weight)
        totals = np.vstack([cell_totals(updates, xy, len(self.classes_), 1 << level) for level in range(self.levels)])
        return response_vectors(totals, np.full(len(totals), len(vectors)), self.response).ravel()

    def _end_fit(self, progress: Progress) -> None:
        labels = np.array([image.label for image in self.images_])
        counts = np.bincount(labels)
        if counts.min() < 2:
            raise InvalidInputError(
                f"method {self.method!r} learns from each image left out and needs at least 2 usable images a class; "
                f"class {self.classes_.tolist()[counts.argmin()]!r} has {counts.min()}."
            )
        super()._end_fit(progress)
        self._train(self.reference_responses(progress=progress), labels)

    def _train(self, responses: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        order = np.lexsort((*responses.T, labels))  # so that the order of the images does not matter
        responses, labels = responses[order], labels[order]
        spread = responses.std(axis=0)
        self.mean_ = responses.mean(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        standard = (responses - self.mean_) / self.scale_
        self.C_ = self.C if self.C is not None else choose_c(standard, labels, self.random_state)
        self.coef_, self.intercept_ = one_vs_all_svms(standard, labels, len(self.classes_), self.C_)

    def _scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        response = self._response(self._vectors(self.query_features(features)), None)
        return self.coef_ @ ((response - self.mean_) / self.scale_) + self.intercept_

    def _save_parts(self, folder: Path) -> None:
        super()._save_parts(folder)
        for name in ("coef_", "intercept_", "mean_", "scale_"):
            save_array(folder / f"svm_{name}.npy", getattr(self, name))
        save_array(folder / "svm_C_.npy", np.array([self.C_]))

    def _load_parts(self, folder: Path) -> None:
        super()._load_parts(folder)
        self.coef_ = np.array(load_array(folder / "svm_coef_.npy", ndim=2, dtypes=("float64",)))
        for name in ("intercept_", "mean_", "scale_"):
            setattr(self, name, np.array(load_array(folder / f"svm_{name}.npy", ndim=1, dtypes=("float64",))))
        self.C_ = float(load_array(folder / "svm_C_.npy", ndim=1, dtypes=("float64",))[0])
        n_cells = sum(4**level for level in range(self.levels))
        shapes = [self.coef_.shape, self.intercept_.shape, self.mean_.shape, self.scale_.shape]
        n_classes = len(self.classes_)
        if shapes != [(n_classes, n_cells * n_classes), (n_classes,), (n_cells * n_classes,), (n_cells * n_classes,)]:
            raise ModelFormatError(f"{folder}: the SVM's arrays do not fit the classes; fit the model again.")

    def describe(self) -> str:
        """One line that says how the answer is found."""
        return f"linear SVMs (C={self.C_:g}) on {self.response} responses, {super().describe()}"


def choose_c(vectors: NDArray[np.float64], labels: NDArray[np.int64], seed: int) -> float:
    """The C with the best cross-validated accuracy on training vectors; of equal ones the smallest."""
    n_folds = min(_FOLDS, int(np.bincount(labels).min()))
    if n_folds < 2 or len(np.unique(labels)) < 2:
        return 0.01
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(vectors, labels))
    n_classes = int(labels.max()) + 1
    n_right = []
    for c in _GRID:
        right = 0
        for train, test in folds:
            coef, intercept = one_vs_all_svms(vectors[train], labels[train], n_classes, c)
            right += int(np.sum(np.argmax(vectors[test] @ coef.T + intercept, axis=1) == labels[test]))
        n_right.append(right)
    return _GRID[int(np.argmax(n_right))]


def one_vs_all_svms(
    vectors: NDArray[np.float64], labels: NDArray[np.int64], n_classes: int, c: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients (n_classes, d) and intercepts of one linear SVM a class; zeros for a single class."""
    coef, intercept = np.zeros((n_classes, vectors.shape[1])), np.zeros(n_classes)
    if n_classes == 1:
        return coef, intercept
    svm = LinearSVC(C=c, dual=False, tol=1e-3, max_iter=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what is reached in 2000 rounds is used
        svm.fit(vectors, labels)
    if n_classes == 2:
        return np.vstack([-svm.coef_, svm.coef_]), np.append(-svm.intercept_, svm.intercept_)
    coef[svm.classes_], intercept[svm.classes_] = svm.coef_, svm.intercept_
    return coef, intercept


class NBNNKernel(ResponseSVM, NBNN):
    """SVMs on NBNN responses (Tuytelaars, Fritz, Saenko and Darrell, "The NBNN kernel", ICCV 2011).

    Parameters
    ----------
    response : {"raw", "mean", "unit", "rank", "log-odds"}, default="unit"
        The scale of the responses; see :func:`lnbnn.responses.response_vectors`.
    levels : int, default=1
        Responses are pooled over the image (1), over it and its quarters (2), and so on to 8 x 8 cells (4).
    C : float, optional
        Regularisation of the SVMs; by default chosen by cross-validation on the training images.
    location_weight, descriptor, descriptor_params, index, index_params, query_budget, n_jobs, random_state
        As of :class:`~lnbnn.classifiers.nbnn.NBNN`.
    """

    method = "nbnn-kernel"

    def __init__(
        self,
        *,
        response: str = "unit",
        levels: int = 1,
        C: float | None = None,
        location_weight: float = 1.6,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 2000,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.response = response
        self.levels = levels
        self.C = C
        super().__init__(
            location_weight=location_weight,
            descriptor=descriptor,
            descriptor_params=descriptor_params,
            index=index,
            index_params=index_params,
            query_budget=query_budget,
            n_jobs=n_jobs,
            random_state=random_state,
        )


class LocalNBNNKernel(ResponseSVM, LocalNBNN):
    """SVMs on Local NBNN responses: the combination that McCann & Lowe (2011) suggest.

    Parameters
    ----------
    n_neighbors : int, default=10
        k of Local NBNN.
    response, levels, C
        As of :class:`NBNNKernel`.
    location_weight, descriptor, descriptor_params, index, index_params, query_budget, n_jobs, random_state
    match_score, background_rank, background_other_class, normalize_classes
        As of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`.
    """

    method = "local-nbnn-kernel"

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        response: str = "unit",
        levels: int = 1,
        C: float | None = None,
        location_weight: float = 1.6,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 2000,
        match_score: str = "difference",
        background_rank: int | None = None,
        background_other_class: bool = False,
        normalize_classes: bool = False,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.response = response
        self.levels = levels
        self.C = C
        super().__init__(
            n_neighbors,
            location_weight=location_weight,
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

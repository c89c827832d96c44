"""The NBNN kernel: the vector of image-to-class responses as the features of linear SVMs (Tuytelaars et al. 2011).

With Local NBNN's responses in place of NBNN's it is what McCann and Lowe suggest and did not test.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
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
from lnbnn.extraction import ImageLike, Progress, map_in_order, no_progress
from lnbnn.features import ImageFeatures
from lnbnn.indexes import LeaveOut
from lnbnn.location import UNIT_LENGTH
from lnbnn.responses import RESPONSES, cell_totals, response_vectors
from lnbnn.scoring import Updates
from lnbnn.settings import check_whole
from lnbnn.store import FeatureStore

__all__ = ["LocalNBNNKernel", "NBNNKernel", "ResponseSVM"]

_C_GRID = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)
_BLEND_GRID = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
_FOLDS = 3


class ResponseSVM(NeighborClassifier):
    """One-vs-all linear SVMs on the response vectors of a method of the NBNN family; mixed in before that method.

    The responses of the training images are computed with the image itself left out of the index. Each response is
    standardised over the training images. The score of a class is its machine's, plus a share of what the method
    below says of the class by itself. C and that share are chosen by cross-validation on the training images, unless
    they are given.
    """

    response: str
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
        check_whole("levels", self.levels, 1, 4)
        if self.levels > 1 and self.used_location_weight() == 0:
            raise InvalidInputError("levels above 1 need a location_weight above 0: it stores where a patch lies.")
        if self.C is not None and not self.C > 0:
            raise InvalidInputError(f"C must be above 0, or None to choose it by cross-validation; got {self.C!r}.")
        if self.blend is not None and not 0 <= self.blend < np.inf:
            raise InvalidInputError(f"blend must be at least 0, or None to choose it; got {self.blend!r}.")

    def reference_responses(self, *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """The response vector of each labelled image, with the image itself left out of the index."""
        return self._leave_each_out(self._own_and_response, progress)[:, len(self.classes_) :]

    def totals_and_scores(
        self, X: Sequence[ImageLike], *, store: FeatureStore | None = None, progress: Progress = no_progress
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The totals of the method below and the scores of the machines, from one search an image.

        Returns
        -------
        totals, scores : ndarrays of shape (n_images, n_classes); totals are lower, scores higher for a better class
        """

        def work(image: ImageLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            vectors = self._vectors(self.query_features(self.image_features(image, store)))
            updates = self._updates_of(vectors, None)
            row = self._row(updates, vectors)
            return updates.totals(len(self.classes_)), self._scores_of_row(row)

        images, found = list(X), []
        for pair in map_in_order(work, images, self.n_jobs):
            found.append(pair)
            progress("classifying", len(found), len(images))
        totals, scores = zip(*found, strict=True) if found else ((), ())
        shape = (len(images), len(self.fitted_classes()))
        return np.reshape(totals, shape), np.reshape(scores, shape)

    def _own_and_response(self, vectors: NDArray[np.generic], leave_out: LeaveOut) -> NDArray[np.float64]:
        return self._row(self._updates_of(vectors, leave_out), vectors)

    def _row(self, updates: Updates, vectors: NDArray[np.generic]) -> NDArray[np.float64]:
        """What the method below says of each class (standardised, higher is better), then the response vector."""
        unit = UNIT_LENGTH if vectors.dtype == np.uint8 else 1.0
        xy = np.zeros((len(vectors), 2))
        weight = self.used_location_weight()
        if weight:
            xy = vectors[:, -2:].astype(np.float64) / (unit * weight)
        totals = np.vstack([cell_totals(updates, xy, len(self.classes_), 1 << level) for level in range(self.levels)])
        n_descriptors = np.full(len(totals), len(vectors))
        own = -response_vectors(totals[:1], n_descriptors[:1], "standard")
        return np.append(own, response_vectors(totals, n_descriptors, self.response))

    def _end_fit(self, progress: Progress) -> None:
        labels = np.array([image.label for image in self.images_])
        counts = np.bincount(labels)
        if counts.min() < 2:
            raise InvalidInputError(
                f"method {self.method!r} learns from each image left out and needs at least 2 usable images a class; "
                f"class {self.classes_.tolist()[counts.argmin()]!r} has {counts.min()}."
            )
        super()._end_fit(progress)
        self._train(self._leave_each_out(self._own_and_response, progress), labels)

    def _train(self, rows: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        order = np.lexsort((*rows.T, labels))  # so that the order of the images does not matter
        rows, labels = rows[order], labels[order]
        own, responses = np.split(rows, [len(self.classes_)], axis=1)
        spread = responses.std(axis=0)
        self.mean_ = responses.mean(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        standard = (responses - self.mean_) / self.scale_
        self.C_, self.own_weight_ = choose_c_and_blend(
            standard, own, labels, self.random_state, c=self.C, blend=self.blend
        )
        self.coef_, self.intercept_ = one_vs_all_svms(standard, labels, len(self.classes_), self.C_)

    def _scores(self, features: ImageFeatures) -> NDArray[np.float64]:
        return self._scores_of_row(self._own_and_response(self._vectors(self.query_features(features)), None))

    def _scores_of_row(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        own, response = np.split(row, [len(self.classes_)])
        return self.coef_ @ ((response - self.mean_) / self.scale_) + self.intercept_ + self.own_weight_ * own

    def _save_parts(self, folder: Path) -> None:
        super()._save_parts(folder)
        for name in ("coef_", "intercept_", "mean_", "scale_"):
            save_array(folder / f"svm_{name}.npy", getattr(self, name))
        save_array(folder / "svm_C_.npy", np.array([self.C_, self.own_weight_]))

    def _load_parts(self, folder: Path) -> None:
        super()._load_parts(folder)
        self.coef_ = np.array(load_array(folder / "svm_coef_.npy", ndim=2, dtypes=("float64",)))
        for name in ("intercept_", "mean_", "scale_"):
            setattr(self, name, np.array(load_array(folder / f"svm_{name}.npy", ndim=1, dtypes=("float64",))))
        chosen = load_array(folder / "svm_C_.npy", ndim=1, dtypes=("float64",))
        if chosen.shape != (2,):
            raise ModelFormatError(f"{folder}: svm_C_.npy holds {chosen.size} numbers, not 2; fit the model again.")
        self.C_, self.own_weight_ = chosen.tolist()
        n_cells = sum(4**level for level in range(self.levels))
        shapes = [self.coef_.shape, self.intercept_.shape, self.mean_.shape, self.scale_.shape]
        n_classes = len(self.classes_)
        if shapes != [(n_classes, n_cells * n_classes), (n_classes,), (n_cells * n_classes,), (n_cells * n_classes,)]:
            raise ModelFormatError(f"{folder}: the SVM's arrays do not fit the classes; fit the model again.")

    def describe(self) -> str:
        """One line that says how the answer is found."""
        own = f", the input's own score weighs {self.own_weight_:.2g}" if self.own_weight_ else ""
        return f"linear SVMs (C={self.C_:g}{own}) on {self.response} responses, {super().describe()}"


def choose_c_and_blend(
    vectors: NDArray[np.float64],
    own: NDArray[np.float64],
    labels: NDArray[np.int64],
    seed: int,
    *,
    c: float | None = None,
    blend: float | None = None,
) -> tuple[float, float]:
    """C of the machines, and the weight of the input's own scores beside theirs, by cross-validation.

    Of equally good pairs the first is taken: the smaller C, then the smaller weight. The blend is in units of the
    spread of the machines' held-out scores; the weight returned is the blend times that spread.
    """
    c_grid = _C_GRID if c is None else (c,)
    blend_grid = _BLEND_GRID if blend is None else (blend,)
    n_classes = own.shape[1]
    n_folds = min(_FOLDS, int(np.bincount(labels).min()))
    if n_folds < 2 or n_classes < 2:
        return (0.01 if c is None else c), 0.0
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(vectors, labels))
    found = []
    for some_c in c_grid:
        scores = np.zeros_like(own)
        for train, test in folds:
            coef, intercept = one_vs_all_svms(vectors[train], labels[train], n_classes, some_c)
            scores[test] = vectors[test] @ coef.T + intercept
        spread = float(scores.std())
        for some_blend in blend_grid:
            answers = np.argmax(scores + some_blend * spread * own, axis=1)
            found.append((int(np.sum(answers == labels)), some_c, some_blend * spread))
    _, best_c, weight = max(found, key=lambda entry: entry[0])
    return best_c, weight


def one_vs_all_svms(
    vectors: NDArray[np.float64], labels: NDArray[np.int64], n_classes: int, c: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients (n_classes, d) and intercepts of one linear SVM a class; zeros for a single class."""
    coef, intercept = np.zeros((n_classes, vectors.shape[1])), np.zeros(n_classes)
    if n_classes == 1:
        return coef, intercept
    svm = LinearSVC(C=c, dual=True, tol=1e-3, max_iter=2000, random_state=0)
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
    response : {"raw", "mean", "unit", "standard", "rank", "log-odds"}, default="standard"
        The scale of the responses; see :func:`lnbnn.responses.response_vectors`.
    levels : int, default=1
        Responses are pooled over the image (1), over it and its quarters (2), and so on to 8 x 8 cells (4).
    C : float, optional
        Regularisation of the SVMs; by default chosen by cross-validation on the training images.
    blend : float, optional
        Share of the input's own score of a class beside the machine's; 0 is the SVMs alone. By default chosen with C.
    location_weight, descriptor, descriptor_params, index, index_params, query_budget, n_jobs, random_state
        As of :class:`~lnbnn.classifiers.nbnn.NBNN`.
    """

    method = "nbnn-kernel"

    def __init__(
        self,
        *,
        response: str = "standard",
        levels: int = 1,
        C: float | None = None,
        blend: float | None = None,
        location_weight: float | None = None,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 1500,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.response = response
        self.levels = levels
        self.C = C
        self.blend = blend
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
        del self.stop_confidence  # responses are sums over all query descriptors: none is stopped early


class LocalNBNNKernel(ResponseSVM, LocalNBNN):
    """SVMs on Local NBNN responses: the combination that McCann & Lowe (2011) suggest.

    Parameters
    ----------
    n_neighbors : int, default=10
        k of Local NBNN.
    response, levels, C, blend
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
        response: str = "standard",
        levels: int = 1,
        C: float | None = None,
        blend: float | None = None,
        location_weight: float | None = None,
        descriptor: str | Descriptor = "dense-sift",
        descriptor_params: dict[str, Any] | None = None,
        index: str = "faiss",
        index_params: dict[str, Any] | None = None,
        query_budget: int | float | None = 1500,
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
        self.blend = blend
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

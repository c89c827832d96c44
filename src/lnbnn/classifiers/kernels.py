"""The NBNN kernel and the Local NBNN kernel: linear classifiers on image-to-class responses."""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers.base import settings_class
from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.classifiers.matching import MatchingClassifier
from lnbnn.classifiers.nbnn import NBNN
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.methods.base import Method, Progress, no_progress
from lnbnn.methods.kernel import ResponseKernel
from lnbnn.methods.linear_classifiers import LINEAR_CLASSIFIERS, LinearClassifier
from lnbnn.methods.matching import MatchingMethod
from lnbnn.methods.responses import RESPONSES
from lnbnn.params import LARGEST, OldName, check_choice, check_whole, plain

__all__ = ["KernelClassifier", "LocalNBNNKernel", "NBNNKernel"]


@settings_class
class KernelClassifier(MatchingClassifier):
    """The settings that the two kernels share; a mixin before the classifier whose responses they use."""

    params_renamed: ClassVar[dict[str, str]] = {"machine": "classifier"}
    stop_confidence: ClassVar[None] = None  # type: ignore[misc]  # responses are sums over all query descriptors

    response: str = "standard"
    classifier: str = "logistic"
    levels: int = 1
    C: float | None = None
    blend: float | None = None

    def make_method(self, descriptor: Descriptor) -> Method:
        return ResponseKernel(self, cast(MatchingMethod, super().make_method(descriptor)))

    @property
    def matching_(self) -> MatchingMethod:
        """The fitted method whose responses are used."""
        return cast(ResponseKernel, self.fitted().method).inner

    @property
    def linear_classifier_(self) -> LinearClassifier:
        """The trained linear classifier."""
        found = cast(ResponseKernel, self.fitted().method).linear
        assert found is not None
        return found

    machines_ = OldName("linear_classifier_")

    def reference_responses(self, *, progress: Progress = no_progress) -> NDArray[np.float64]:
        """The response vector of each labeled image, with the image itself left out of the index."""
        method = cast(ResponseKernel, self.fitted().method)
        return method.responses(progress)[:, len(self.fitted_classes()) :]

    def check_settings(self) -> None:
        super().check_settings()
        check_choice("response", self.response, RESPONSES)
        check_choice("classifier", self.classifier, LINEAR_CLASSIFIERS)
        check_whole("levels", self.levels, 1, 4)
        if self.levels > 1 and self.used_location_weight() == 0:
            raise InvalidInputError("levels above 1 need a location_weight above 0: it stores the location of a patch.")
        if self.C is not None and not 0 < plain(self.C) <= LARGEST:
            raise InvalidInputError(f"C must be above 0, or None to choose it by cross-validation; got {self.C!r}.")
        if self.blend is not None and not 0 <= plain(self.blend) <= LARGEST:
            raise InvalidInputError(f"blend must be at least 0, or None to choose it; got {self.blend!r}.")


@settings_class
class NBNNKernel(KernelClassifier, NBNN):
    """A linear classifier on NBNN responses (Tuytelaars, Fritz, Saenko and Darrell, "The NBNN kernel", ICCV 2011).

    Parameters
    ----------
    response : {"raw", "mean", "unit", "standard", "rank", "log-odds"}, default="standard"
        The scale of the responses; see :func:`lnbnn.methods.responses.response_vectors`.
    classifier : {"logistic", "svm"}, default="logistic"
        Multinomial logistic regression, or one-vs-all linear SVMs, as published.
    levels : int, default=1
        Responses are pooled over the image (1), over it and its quarters (2), and so on to 8 x 8 cells (4).
    C : float, optional
        Inverse regularization strength; by default chosen by cross-validation on the training images.
    blend : float, optional
        Weight of NBNN's own score beside the linear classifier's; 0 is the linear classifier alone. By default
        chosen with C.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    n_jobs, random_state
        As in :class:`~lnbnn.classifiers.nbnn.NBNN`.
    """

    method: ClassVar[str] = "nbnn-kernel"


@settings_class
class LocalNBNNKernel(KernelClassifier, LocalNBNN):
    """A linear classifier on Local NBNN responses: the combination that McCann & Lowe (2011) suggest.

    Parameters
    ----------
    n_neighbors : int, default=10
        k of Local NBNN.
    response, classifier, levels, C, blend
        As in :class:`NBNNKernel`.
    location_weight, scale_weight, descriptor, descriptor_params, index, index_params, query_budget
    n_jobs, random_state
        As in :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`.
    """

    method: ClassVar[str] = "local-nbnn-kernel"

"""Classifiers with scikit-learn's manners, one method a file; the registry maps public names to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lnbnn.errors import ModelFormatError, UnknownNameError
from lnbnn.model.folder import open_model
from lnbnn.registry import resolve

if TYPE_CHECKING:
    from lnbnn.classifiers.base import ImageClassifier

__all__ = ["CLASSIFIERS", "COMBINATIONS", "INCREMENTAL", "load"]

CLASSIFIERS = {
    "local-nbnn": "lnbnn.classifiers.local_nbnn:LocalNBNN",
    "nbnn": "lnbnn.classifiers.nbnn:NBNN",
    "local-nbnn-kernel": "lnbnn.classifiers.nbnn_kernel:LocalNBNNKernel",
    "nbnn-affine": "lnbnn.classifiers.affine_nbnn:AffineNBNN",
    "nbnn-kernel": "lnbnn.classifiers.nbnn_kernel:NBNNKernel",
    "nbnn-log-odds": "lnbnn.classifiers.log_odds_nbnn:LogOddsNBNN",
    "pooled-svm": "lnbnn.classifiers.pooled_svm:PooledSVM",
    "spm-hard": "lnbnn.classifiers.spatial_pyramid:HardSpatialPyramid",
    "spm-soft": "lnbnn.classifiers.spatial_pyramid:SoftSpatialPyramid",
}

COMBINATIONS = {"fusion": "lnbnn.classifiers.fusion:LateFusion"}
"""Methods made of other methods: saved and loaded as those are, but not chosen by name with plain settings."""

INCREMENTAL = frozenset({"local-nbnn", "nbnn", "nbnn-log-odds"})
"""Methods whose ``is_incremental`` is true: changing the folder of such a model need not load its class."""


def load(path: str | os.PathLike[str], *, trust_network: bool = False) -> ImageClassifier:
    """Open a model folder written by a classifier's ``save``; large arrays are memory-mapped.

    Parameters
    ----------
    path : path
    trust_network : bool, default=False
        Whether a network may be used that the model names but does not hold: a file elsewhere, or a model of timm,
        which may be downloaded. A network is a program: say so only of models from people you trust.

    Notes
    -----
    The model stays what it is now while lnbnn changes the folder, in this process or another: files in use are never
    changed, and kept until nobody reads them. :meth:`refresh` brings it up to date. Other programs must not write to
    the files of an open model: they are memory-mapped, and one that is cut short ends the process (SIGBUS). To put
    another model in its place, copy it beside and rename.
    """
    snapshot = open_model(path, trust_network=trust_network)
    try:
        kind = resolve({**CLASSIFIERS, **COMBINATIONS}, str(snapshot.manifest.get("method")), "method")
    except UnknownNameError as error:
        raise ModelFormatError(f"{path}: {error}") from error
    return kind._from_snapshot(snapshot)

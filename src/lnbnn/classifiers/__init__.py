"""Classifiers with scikit-learn's contract, in front of models; the registry maps public names to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lnbnn.methods import METHODS as CLASSIFIERS

if TYPE_CHECKING:
    from lnbnn.classifiers.base import Classifier

__all__ = ["CLASSIFIERS", "load"]


def load(path: str | os.PathLike[str], *, trust_network: bool = False) -> Classifier:
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
    from lnbnn.model.opening import load_model

    model = load_model(path, trust_network=trust_network)
    classifier: Classifier = model.settings.with_model(model)
    return classifier

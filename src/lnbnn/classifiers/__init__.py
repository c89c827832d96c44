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
        Whether to use a network that the model names but does not contain: a file elsewhere, or a timm model, which may
        be downloaded. A network is a program: do this only with models from people you trust.

    Notes
    -----
    The model stays the same while lnbnn changes the folder, in this process or another: files in use are never changed,
    and kept until nobody reads them. :meth:`refresh` updates it. Other programs must not write to the files of an open
    model: they are memory-mapped, and truncating one crashes the process (SIGBUS). To replace a model, copy the new one
    beside it and rename.
    """
    from lnbnn.model.opening import load_model

    model = load_model(path, trust_network=trust_network)
    classifier: Classifier = model.settings.with_model(model)
    return classifier

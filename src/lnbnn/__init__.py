"""Local NBNN: recognize images from their local descriptors, with no training.

>>> from lnbnn import LocalNBNN, load
>>> classifier = LocalNBNN().fit(paths, labels)        # doctest: +SKIP
>>> classifier.save("model"); load("model").predict(["photo.jpg"])      # doctest: +SKIP

Public names are imported when first used: ``import lnbnn`` itself loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lnbnn.version import __version__

if TYPE_CHECKING:
    from lnbnn.classifiers import load
    from lnbnn.classifiers.affine_nbnn import AffineNBNN
    from lnbnn.classifiers.fusion import LateFusion
    from lnbnn.classifiers.local_nbnn import LocalNBNN
    from lnbnn.classifiers.nbnn import NBNN
    from lnbnn.descriptors.dense_sift import DenseSIFT
    from lnbnn.features import ImageFeatures
    from lnbnn.model.changes import edit
    from lnbnn.reading.store import FeatureStore

__all__ = [
    "NBNN",
    "AffineNBNN",
    "DenseSIFT",
    "FeatureStore",
    "ImageFeatures",
    "LateFusion",
    "LocalNBNN",
    "__version__",
    "edit",
    "load",
]

_HOMES = {
    "AffineNBNN": "lnbnn.classifiers.affine_nbnn",
    "DenseSIFT": "lnbnn.descriptors.dense_sift",
    "FeatureStore": "lnbnn.reading.store",
    "ImageFeatures": "lnbnn.features",
    "LateFusion": "lnbnn.classifiers.fusion",
    "LocalNBNN": "lnbnn.classifiers.local_nbnn",
    "NBNN": "lnbnn.classifiers.nbnn",
    "edit": "lnbnn.model.changes",
    "load": "lnbnn.classifiers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lnbnn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

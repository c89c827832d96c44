"""The mathematics of the methods; the registry maps their public names to the classifiers in front of them."""

from __future__ import annotations

__all__ = ["FUSION", "INCREMENTAL", "METHODS"]

FUSION = "fusion"
"""What a fusion of methods is called; it is saved and loaded as they are, but not chosen by name."""

METHODS = {
    "local-nbnn": "lnbnn.classifiers.local_nbnn:LocalNBNN",
    "nbnn": "lnbnn.classifiers.nbnn:NBNN",
    "fisher": "lnbnn.classifiers.fisher:FisherVectors",
    "fisher-slc": "lnbnn.classifiers.fisher_slc:FisherSLC",
    "local-nbnn-kernel": "lnbnn.classifiers.kernels:LocalNBNNKernel",
    "nbnn-affine": "lnbnn.classifiers.affine_nbnn:AffineNBNN",
    "nbnn-kernel": "lnbnn.classifiers.kernels:NBNNKernel",
    "nbnn-log-odds": "lnbnn.classifiers.nbnn:LogOddsNBNN",
    "pooled-ridge": "lnbnn.classifiers.ridge:PooledRidge",
    "pooled-svm": "lnbnn.classifiers.trained:PooledSVM",
    "slc": "lnbnn.classifiers.local_coding:SpatiallyLocalCoding",
    "spm-hard": "lnbnn.classifiers.trained:HardSpatialPyramid",
    "spm-soft": "lnbnn.classifiers.trained:SoftSpatialPyramid",
}

INCREMENTAL = frozenset({"fisher", "fisher-slc", "local-nbnn", "nbnn", "nbnn-log-odds", "pooled-ridge", "slc"})
"""Methods that are incremental: changing the folder of such a model need not load its class."""

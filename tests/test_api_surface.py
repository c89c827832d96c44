"""The public names: one that is removed or renamed fails here until it is meant."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import lnbnn

PUBLIC = [
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


# The public methods of the NBNN family.
CLASSIFIER_METHODS = [
    "calibrate",
    "check_settings",
    "decision_function",
    "describe",
    "fit",
    "false_accept_rates",
    "fitted",
    "fitted_classes",
    "get_params",
    "held_out_scores",
    "image_features",
    "iter_answers",
    "partial_fit",
    "plain_params",
    "predict",
    "predict_proba",
    "query_features",
    "ranking",
    "reference_totals",
    "reference_vectors",
    "refresh",
    "relabel",
    "remove",
    "save",
    "score",
    "set_params",
    "totals",
    "updates",
    "used_location_weight",
    "used_scale_weight",
]


def module_names():
    names = [info.name for info in pkgutil.walk_packages(lnbnn.__path__, "lnbnn.")]
    optional = ("lnbnn.__main__", "lnbnn.indexes.flann_index", "lnbnn.descriptors.timm_network")
    optional += ("lnbnn.indexes.milvus_collection", "lnbnn.indexes.milvus_index")
    return [name for name in names if name not in optional]


def test_public_names_are_exactly_these():
    assert lnbnn.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_documented(name):
    found = getattr(lnbnn, name)
    if name == "__version__":
        assert found.count(".") == 2
        return
    assert inspect.getdoc(found)
    assert found.__name__ == name


def test_star_import():
    namespace = {}
    exec("from lnbnn import *", namespace)
    assert set(PUBLIC) <= set(namespace)


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'lnbnn' has no attribute 'Everything'"):
        _ = lnbnn.Everything


@pytest.mark.parametrize("kind", ["LocalNBNN", "NBNN", "AffineNBNN"])
@pytest.mark.parametrize("name", CLASSIFIER_METHODS)
def test_classifier_methods(kind, name):
    method = getattr(getattr(lnbnn, kind), name)
    assert callable(method)
    assert inspect.getdoc(method)


@pytest.mark.parametrize("name", module_names())
def test_every_module_is_documented_and_exports_what_it_says(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for exported in getattr(module, "__all__", []):
        assert hasattr(module, exported), f"{name}.__all__ names {exported}, which is not there"
        found = getattr(module, exported)
        if inspect.isfunction(found) or inspect.isclass(found):
            assert inspect.getdoc(found), f"{name}.{exported} has no docstring"


@pytest.mark.parametrize("kind", ["LocalNBNN", "NBNN", "AffineNBNN", "LateFusion", "DenseSIFT"])
def test_every_setting_is_documented(kind):
    found = getattr(lnbnn, kind)
    documented = inspect.getdoc(found)
    for name in inspect.signature(found).parameters:
        assert name in documented, f"{kind} does not document {name}"

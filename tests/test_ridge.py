"""Ridge regression on the mean descriptor: closed forms against fits without the image, and against scikit-learn."""

import numpy as np
import pytest
from synthetic import make_features

from lnbnn import load
from lnbnn.classifiers.ridge import PooledRidge
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.methods.pooled_ridge import PooledRegression
from lnbnn.methods.ridge import ALPHAS
from lnbnn.model.calibration import log_probabilities, negative_log_likelihood
from lnbnn.model.changes import compact


def cells(seed, label, dtype=np.float16, n_dims=6):
    """Ten descriptors around the label's axis."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(10, n_dims)) + 2.0 * np.eye(n_dims)[label]
    return make_features(values.astype(dtype), seed=seed)


def a_set(n=12, n_classes=3):
    labels = [place % n_classes for place in range(n)]
    return [cells(seed, label) for seed, label in enumerate(labels)], labels


@pytest.mark.parametrize("n", [6, 24])
def test_held_out_scores_are_those_of_models_fitted_without_the_image(n):
    images, labels = a_set(n)
    held_out = PooledRidge(alpha=0.1).fit(images, labels).held_out_scores()
    without = PooledRidge(alpha=0.1).fit(images[1:], labels[1:])
    assert np.allclose(held_out[0], without.decision_function(images[:1])[0], atol=1e-9)


def test_unknown_scores_are_those_of_a_model_without_the_class():
    images, labels = a_set()
    found = PooledRidge(alpha=0.1).fit(images, labels).model_.unknown_scores()
    known = [place for place, label in enumerate(labels) if label != 1]
    without = PooledRidge(alpha=0.1).fit([images[i] for i in known], [labels[i] for i in known])
    assert np.allclose(found[1, [0, 2]], without.decision_function(images[1:2])[0], atol=1e-9)
    assert found[1, 1] == -np.inf


def test_the_constant_is_the_best_when_each_image_is_left_out():
    images, labels = a_set(30)
    chosen = PooledRidge().fit(images, labels)
    losses, right = {}, {}
    for alpha in ALPHAS:
        scores = PooledRidge(alpha=alpha).fit(images, labels).held_out_scores()
        right[alpha] = np.sum(scores.argmax(axis=1) == labels)
        found = [log_probabilities(scores, temperature) for temperature in np.geomspace(1 / 128, 1 / 2, 200)]
        losses[alpha] = min(negative_log_likelihood(log_proba, np.array(labels)) for log_proba in found)
    good = [alpha for alpha in ALPHAS if losses[alpha] <= 1.01 * min(losses.values())]
    assert chosen.method_.alpha[0] == max(good, key=lambda alpha: (right[alpha], alpha))


@pytest.mark.parametrize("n", [6, 24])
def test_a_changed_model_is_the_fresh_one_to_the_last_bit(n, tmp_path):
    images, labels = a_set(n)
    changed = PooledRidge(alpha=0.1).fit(images[: n // 2], labels[: n // 2])
    changed.save(tmp_path / "model")
    changed = load(tmp_path / "model")
    for image, label in zip(images[n // 2 :], labels[n // 2 :], strict=True):
        changed.partial_fit([image], [label])
    changed.remove(1).relabel(0, 2)
    fresh = PooledRidge(alpha=0.1).fit([images[0], *images[2:]], [2, *labels[2:]])
    assert np.array_equal(changed.decision_function(images), fresh.decision_function(images))


def test_the_constant_stays_until_the_model_is_compacted(tmp_path):
    images, labels = a_set(30)
    swapped = [*labels[:6], *np.random.default_rng(0).permutation(labels[6:]).tolist()]
    model = PooledRidge().fit(images[:6], labels[:6])
    before = model.method_.alpha[0]
    model.partial_fit(images[6:], swapped[6:])
    assert model.method_.alpha[0] == before
    model.save(tmp_path / "model")
    compact(tmp_path / "model")
    fresh = PooledRidge().fit(images, swapped)
    assert fresh.method_.alpha[0] != before
    assert np.array_equal(load(tmp_path / "model").decision_function(images), fresh.decision_function(images))


def test_bad_input_is_refused():
    images, labels = a_set()
    with pytest.raises(InvalidInputError, match="alpha must be a number above 0; got 0"):
        PooledRidge(alpha=0).fit(images, labels)
    other = cells(0, 0, n_dims=7)
    with pytest.raises(InvalidInputError, match="same length; got 6, 7"):
        PooledRidge(spatial=False).fit([*images, other], [*labels, 0])
    with pytest.raises(InvalidInputError, match="length 6, as those the model was fitted on; got 7"):
        PooledRidge().fit(images, labels).predict([other])


@pytest.mark.parametrize("name", ["vectors", "coef", "intercept", "alpha"])
def test_damaged_arrays_are_refused(name, tmp_path):
    images, labels = a_set()
    method = PooledRidge().fit(images, labels).method_
    method.save(tmp_path)
    array = np.load(tmp_path / f"ridge_{name}.npy")

    def read():
        opened = PooledRegression(PooledRidge())
        opened.load(tmp_path, method.references)
        return opened.vectors  # not read before it is needed

    assert np.array_equal(read(), method.vectors)
    for wrong in (array[..., :0], np.full_like(array, np.nan)):
        np.save(tmp_path / f"ridge_{name}.npy", wrong)
        with pytest.raises(ModelFormatError, match=r"fit the model again|damaged"):
            read()


def test_products_that_do_not_fit_are_refused(tmp_path):
    images, labels = a_set()
    fitted = PooledRidge().fit(images, labels)
    fitted.method_.save(tmp_path)
    products = np.load(tmp_path / "ridge_products.npy")
    assert np.allclose(products, fitted.method_.vectors @ fitted.method_.vectors.T, atol=1e-6)
    np.save(tmp_path / "ridge_products.npy", products[1:, 1:])
    with pytest.raises(ModelFormatError, match="does not fit the images"):
        PooledRegression(PooledRidge()).load(tmp_path, fitted.method_.references)
    np.save(tmp_path / "ridge_products.npy", products * np.nan)
    method = PooledRegression(PooledRidge())
    method.load(tmp_path, fitted.method_.references)
    with pytest.raises(ModelFormatError, match="no finite numbers"):
        method.finish(fitted.method_.references, lambda *_: None)

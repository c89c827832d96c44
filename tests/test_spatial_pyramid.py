"""The spatial pyramid classifiers: the whole chain by hand, what they store, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from forged import data_file
from synthetic import grating_set, make_features, small_sift

from lnbnn import load
from lnbnn.classifiers.trained import HardSpatialPyramid, SoftSpatialPyramid
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.features import ImageFeatures

KINDS = [HardSpatialPyramid, SoftSpatialPyramid]


def fitted(kind, **changes):
    return kind(**{"n_words": 12, "descriptor": small_sift(), "n_jobs": 1, **changes}).fit(*grating_set())


def test_hard_pyramid_by_hand():
    # Two images of one descriptor each make a codebook of two words. A query with a descriptor at the place of image
    # "a" and of its kind: its pyramid is that of "a", and the other pyramid shares nothing with it.
    def at(value, x):
        return ImageFeatures(np.array([value], np.uint8), [[x, 0.1]], [16], (100, 100))

    classifier = HardSpatialPyramid(C=100.0).fit([at((0, 100), 0.1), at((100, 0), 0.9)], ["a", "b"])
    assert len(classifier.method_.codebook) == 2
    pyramid = classifier.method_.pyramid(at((5, 90), 0.1))
    assert sorted(pyramid[pyramid > 0].tolist()) == [0.25, 0.25, 0.5]
    # K = identity: both duals are 1, so the query (1, 0) scores 1 for "a" and -1 for "b".
    assert np.allclose(classifier.decision_function([at((5, 90), 0.1)]), [[1.0, -1.0]])
    # The same descriptor at the far side of the image matches on the coarsest level alone: K = 1/4.
    assert np.allclose(classifier.decision_function([at((5, 90), 0.9)]), [[0.25, -0.25]])


def test_soft_pyramid_by_hand():
    # One descriptor on one of two words, and the other word far off: its share is 1, the other's exp(-20 * 2) of it.
    # It is the largest in its cell on each of the three levels, all of one weight: 1 / sqrt(3) at unit length.
    def at(value, x):
        return ImageFeatures(np.array([value], np.uint8), [[x, 0.1]], [16], (100, 100))

    classifier = SoftSpatialPyramid().fit([at((0, 127), 0.1), at((127, 0), 0.9)], ["a", "b"])
    pyramid = classifier.method_.pyramid(at((0, 127), 0.1))
    assert pyramid[pyramid > 1e-6] == pytest.approx([3**-0.5] * 3)
    # K with the query at the far side: what is on the coarsest level alone.
    far = classifier.method_.pyramid(at((0, 127), 0.9))
    assert np.minimum(pyramid, far).sum() == pytest.approx(3**-0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_chain_written_out(kind):
    classifier = fitted(kind)
    features = small_sift().extract(grating_set(seed=9)[0][0])
    pyramid = classifier.method_.pyramid(features)
    kernel_row = [np.minimum(pyramid, other).sum(dtype=np.float64) for other in classifier.method_.pyramids]
    expected = classifier.method_.svm.dual @ np.array(kernel_row) + classifier.method_.svm.intercepts
    assert np.allclose(classifier.decision_function([features])[0], expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_training_images_are_let_go_after_the_fit(kind):
    classifier = fitted(kind)
    held = {**vars(classifier), **vars(classifier.model_), **vars(classifier.method_)}
    assert not any(isinstance(value, list) and len(value) == 6 for value in held.values())
    assert classifier.nbytes_ == classifier.method_.pyramids.nbytes + classifier.method_.svm.nbytes + 4 * 12 * 128


def test_average_pyramids_sum_to_one():
    assert np.allclose(fitted(HardSpatialPyramid).method_.pyramids.sum(axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["average", "max"])
@pytest.mark.parametrize("norm", ["l1", "l2", "none"])
def test_every_pooling_and_norm(kind, pooling, norm):
    images, labels = grating_set(seed=9)
    assert fitted(kind, pooling=pooling, norm=norm).predict(images).tolist() == labels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_levels", [1, 2, 4])
def test_levels(kind, n_levels):
    classifier = fitted(kind, n_levels=n_levels)
    assert classifier.method_.pyramids.shape == (6, 12 * (4**n_levels - 1) // 3)


@pytest.mark.parametrize("kind", KINDS)
def test_float_descriptors_are_stored_too(kind, tmp_path):
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(2, 10))
    sets = [
        make_features((centers[c] + 0.1 * rng.normal(size=(20, 10))).astype(np.float32), seed=c) for c in (0, 1, 0, 1)
    ]
    classifier = kind(n_words=8).fit(sets[:2], ["a", "b"])
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.predict(sets[2:]).tolist() == ["a", "b"]
    assert again.decision_function(sets).tobytes() == classifier.decision_function(sets).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_model_folder_holds_plain_arrays(kind, tmp_path):
    fitted(kind).save(tmp_path / "model")
    names = sorted(path.name for path in data_file(tmp_path / "model", "").iterdir())
    assert names == ["dual.npy", "intercepts.npy", "pyramids.npy", "table.json", "words.npy"]
    assert np.load(data_file(tmp_path / "model", "words.npy")).dtype == np.uint8


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_pyramids_are_refused(kind, tmp_path):
    classifier = fitted(kind)
    classifier.method_.pyramids = classifier.method_.pyramids[:, :-1]
    classifier.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="pyramids do not fit"):
        load(tmp_path / "model")


def test_images_with_other_descriptors_are_refused():
    images = [make_features(np.full((3, n), 5, np.uint8)) for n in (4, 5)]
    with pytest.raises(InvalidInputError, match="one type and length"):
        HardSpatialPyramid().fit(images, ["a", "b"])

"""Each image is read once: its features and the digest of its content together."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from synthetic import grating, make_features, small_sift

from lnbnn import FeatureStore
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.reading.extraction import content_digest, features_of, iter_features, iter_read, read_features


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(grating(0, 1)).save(path)
    return path


@pytest.mark.parametrize("has_store", [False, True])
def test_a_file_is_read_once_for_features_digest_and_key(tmp_path, monkeypatch, picture, has_store):
    expected = hashlib.sha256(picture.read_bytes()).hexdigest()
    reads, real = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path) or real(path))
    store = FeatureStore(tmp_path / "store") if has_store else None
    for _ in range(2):
        reads.clear()
        features, digest = read_features(picture, small_sift(), store)
        assert reads == [picture]
        assert digest == expected
        assert np.array_equal(features.descriptors, features_of(picture, small_sift()).descriptors)


def test_digests_of_arrays_and_features_stay_what_they_were():
    """Models keep them: by these numbers an image is known again."""
    array = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    features = make_features(np.arange(12, dtype=np.uint8).reshape(3, 4), seed=1)
    assert content_digest(array) == "ba82a62042e219c7ed245148e4c6e82599098869b8562b4474f5ed17bbfe4070"
    assert (
        content_digest(array[:, ::-1]) == content_digest(np.ascontiguousarray(array[:, ::-1])) != content_digest(array)
    )
    assert content_digest(features) == "16049a477409f7b8e605dac5e2ebfe5c16eb080e959045a7b712e888a50a9e6d"
    assert content_digest(make_features(np.empty((0, 4), np.uint8))) != content_digest(features)


def test_arrays_and_features_have_digests_too():
    image = grating(0, 1)
    features, digest = read_features(image, small_sift())
    assert digest == content_digest(image)
    assert read_features(features, small_sift()) == (features, content_digest(features))


def test_what_cannot_be_read_is_a_value_among_the_others(tmp_path, picture):
    images = [picture, tmp_path / "none.png", grating(0, 1)]
    for n_jobs in (1, 2):
        first, error, last = iter_read(images, small_sift(), n_jobs=n_jobs)
        assert isinstance(error, ImageReadError)
        assert error.__traceback__ is None
        assert first[1] != last[1]
        assert np.array_equal(first[0].descriptors, last[0].descriptors)
        plain = list(iter_features(images, small_sift(), n_jobs=n_jobs))
        assert str(plain[1]) == str(error)
        assert np.array_equal(plain[0].descriptors, first[0].descriptors)


def test_what_is_no_image_is_refused():
    with pytest.raises(InvalidInputError, match="must be a path, an array or ImageFeatures; got int"):
        read_features(7, small_sift())

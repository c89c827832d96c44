"""Each image is read once: its features and the digest of its content together."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from fake_ray import HereCluster
from PIL import Image
from synthetic import grating, make_features, small_sift

from lnbnn import FeatureStore
from lnbnn.errors import ImageReadError, InvalidInputError, LnbnnError
from lnbnn.reading import extraction
from lnbnn.reading.extraction import (
    content_digest,
    features_of,
    iter_features,
    iter_read,
    iter_stored,
    map_in_order,
    read_features,
)


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


# ---- on a cluster ----------------------------------------------------------------------------------------------------


class BlindCluster(HereCluster):
    """Its workers see none of the files."""

    def map(self, work, items):
        return (ImageReadError("no such file on this machine") for _ in items)


class ForgetfulCluster(HereCluster):
    """Its workers write into a folder of their own."""

    def map(self, work, items):
        for found in super().map(work, items):
            for entry in list(work.keywords["store"].folder.rglob("*.npz")):
                entry.unlink()
            yield found


def test_a_cluster_reads_what_threads_read(tmp_path, picture):
    images = [picture, str(picture), tmp_path / "none.png", grating(0, 1)]
    alone, found = (list(iter_read(images, small_sift(), n_jobs=jobs)) for jobs in (1, HereCluster()))
    assert [str(one) for one in found if isinstance(one, ImageReadError)] == [str(alone[2])]
    for place in (0, 1, 3):
        assert found[place][1] == alone[place][1]
        assert np.array_equal(found[place][0].descriptors, alone[place][0].descriptors)


def test_a_file_is_bad_only_if_it_is_bad_here(tmp_path, picture, caplog):
    found = list(iter_features([picture, tmp_path / "none.png", picture], small_sift(), n_jobs=BlindCluster()))
    assert np.array_equal(found[2].descriptors, features_of(picture, small_sift()).descriptors)
    assert str(tmp_path / "none.png") in str(found[1])
    assert "2 of 3 images were read here because a Ray worker could not" in caplog.text


@pytest.mark.parametrize("n_jobs", [1, 2, HereCluster()])
def test_a_store_is_filled_and_counted(tmp_path, picture, n_jobs):
    store = FeatureStore(tmp_path / "store")
    paths = [str(picture), str(tmp_path / "none.png")]
    for _ in range(2):
        n, error = iter_stored(paths, small_sift(), store, n_jobs=n_jobs)
        assert n == len(features_of(picture, small_sift())) > 0
        assert isinstance(error, ImageReadError)
    (entry,) = store.folder.rglob("*.npz")
    assert entry.parent.name + entry.stem in store
    assert "0" * 64 not in store


def test_a_store_that_is_not_shared_is_an_error(tmp_path, picture, monkeypatch):
    monkeypatch.setattr(extraction, "_SHARED_WITHIN_S", 0.05)
    with pytest.raises(LnbnnError, match="not seen here; all machines must share the folder"):
        list(iter_stored([str(picture)], small_sift(), FeatureStore(tmp_path / "store"), n_jobs=ForgetfulCluster()))


def test_work_of_this_process_stays_here():
    unpicklable = (number for number in range(3))
    assert list(map_in_order(lambda item: (item, next(unpicklable)), [5, 6], HereCluster(n_jobs=1))) == [(5, 0), (6, 1)]
    with pytest.raises(InvalidInputError, match="n_jobs must be"):
        map_in_order(str, [1, 2], HereCluster(n_jobs=0))

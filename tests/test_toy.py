"""The built-in toy set."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest
from PIL import Image

from lnbnn.data.folder import scan_folder


@pytest.fixture(scope="module")
def toy():
    pytest.importorskip("skimage", reason="the demo's extra is not installed")
    from lnbnn.data import toy as module

    return module, module.load_photos()


def digest(views):
    return hashlib.sha256(b"".join(name.encode() + view.tobytes() for name, view in views)).hexdigest()


def test_toy_photos(toy):
    _, photos = toy
    assert len(photos) == 18
    for name, photo in photos.items():
        assert photo.dtype == np.uint8, name
        assert max(photo.shape) == 360, name
        assert photo.std() > 5, name
    assert len({photo.tobytes() for photo in photos.values()}) == 18


def test_toy_views_are_seeded(toy):
    module, photos = toy
    first = module.make_views(photos, 2, seed=0, clutter=True)
    assert digest(first) == digest(module.make_views(photos, 2, seed=0, clutter=True))
    assert digest(first) != digest(module.make_views(photos, 2, seed=1, clutter=True))
    assert digest(first) != digest(module.make_views(photos, 2, seed=0, clutter=False))
    assert [name for name, _ in first] == [name for name in photos for _ in range(2)]
    assert len({view.tobytes() for _, view in first}) == 36
    assert all(view.dtype == np.uint8 and min(view.shape) >= 32 for _, view in first)


def test_toy_set_on_disk(toy, tmp_path):
    module, _ = toy
    reference, query = module.write_toy_set(tmp_path / "one", n_reference=1, n_query=2, seed=5)
    images, queries = scan_folder(reference), scan_folder(query)
    assert len(set(images.labels)) == 18
    assert (len(images), len(queries)) == (18, 36)
    assert set(images.labels) == set(queries.labels) == set(module.PHOTOS)
    again, _ = module.write_toy_set(tmp_path / "two", n_reference=1, n_query=2, seed=5)
    for path in images.paths:
        other = again / os.path.relpath(path, reference)
        assert np.array_equal(np.asarray(Image.open(path)), np.asarray(Image.open(other)))

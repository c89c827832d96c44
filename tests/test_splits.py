"""Seeded splits."""

from __future__ import annotations

import pytest

from lnbnn.data.folder import LabeledImages
from lnbnn.data.splits import split_images
from lnbnn.errors import InvalidInputError


def some_images(**counts):
    pairs = [(f"{label}/{n:03d}.jpg", label) for label, count in counts.items() for n in range(count)]
    return LabeledImages(tuple(path for path, _ in pairs), tuple(label for _, label in pairs))


def test_split_is_disjoint_and_of_the_asked_sizes():
    images = some_images(a=20, b=9, c=6)
    train, test = split_images(images, n_train=5, n_test=3, seed=1)
    for label, n_test in (("a", 3), ("b", 3), ("c", 1)):  # a class too small for both gives up test images
        assert train.labels.count(label) == 5
        assert test.labels.count(label) == n_test
    assert not set(train.paths) & set(test.paths)
    assert set(train.paths) | set(test.paths) <= set(images.paths)
    for part in (train, test):
        assert all(path.startswith(label + "/") for path, label in zip(part.paths, part.labels, strict=True))
        assert len(set(part.paths)) == len(part.paths)


def test_split_takes_all_others_by_default():
    images = some_images(a=20, b=9)
    train, test = split_images(images, n_train=5)
    assert sorted(train.paths + test.paths) == sorted(images.paths)


def test_split_is_seeded():
    images = some_images(a=30, b=30)
    assert split_images(images, n_train=10, seed=3) == split_images(images, n_train=10, seed=3)
    assert split_images(images, n_train=10, seed=3) != split_images(images, n_train=10, seed=4)


def test_split_is_not_the_first_ones_and_differs_between_classes():
    train, _ = split_images(some_images(a=30, b=30), n_train=10)
    chosen = [{path[2:] for path in train.paths if path.startswith(label)} for label in "ab"]
    assert chosen[0] != {f"{n:03d}.jpg" for n in range(10)}
    assert chosen[0] != chosen[1]


def test_split_of_a_class_does_not_depend_on_the_others():
    alone = split_images(some_images(b=12), n_train=4, n_test=5, seed=2)
    among = split_images(some_images(a=30, b=12, c=7), n_train=4, n_test=5, seed=2)
    for part, whole in zip(alone, among, strict=True):
        assert part.paths == tuple(path for path in whole.paths if path.startswith("b/"))


def test_split_does_not_depend_on_the_order_of_the_classes():
    images = some_images(a=9, b=9)
    turned = LabeledImages(images.paths[9:] + images.paths[:9], images.labels[9:] + images.labels[:9])
    assert split_images(images, n_train=4) == split_images(turned, n_train=4)


def test_split_by_share():
    # Rounded up: 5 of 10, 2 of 3, the only one of 1.
    train, test = split_images(some_images(a=10, b=3, c=1), n_train=0.5)
    assert [train.labels.count(label) for label in "abc"] == [5, 2, 1]
    assert [test.labels.count(label) for label in "abc"] == [5, 1, 0]


def test_bad_splits():
    images = some_images(a=5, b=9)
    with pytest.raises(InvalidInputError, match="class 'a' has 5 images; 5 for training leave none"):
        split_images(images, n_train=5)
    for n_train in (0, -1, 0.0, 1.0, 1.5):
        with pytest.raises(InvalidInputError, match=f"n_train must be .* got {n_train}"):
            split_images(images, n_train=n_train)
    with pytest.raises(InvalidInputError, match="n_test must be at least 1; got 0"):
        split_images(images, n_train=2, n_test=0)
    with pytest.raises(InvalidInputError, match="single image"):
        split_images(some_images(a=1, b=1), n_train=0.5)

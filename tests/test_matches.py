"""Matches with labeled images: contributions by hand, sums of all methods, patches compared with a slow search."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from synthetic import grating_set, make_features, small_sift
from test_evidence import WITH_EVIDENCE, fitted, query

from lnbnn import NBNN, LateFusion, LocalNBNN
from lnbnn.features import append_location
from lnbnn.trust.evidence import explain
from lnbnn.trust.matches import match_photos

# Class a: image 0 at (0, 0) and (10, 0), image 1 at (0, 20). Class b: image 2 at (100, 0).
REFERENCES = [[(0, 0), (10, 0)], [(0, 20)], [(100, 0)]]
QUERY = [(1, 0), (0, 18), (90, 0)]


def points(values):
    return make_features(np.array(values, np.uint8))


def by_hand(kind, **settings):
    classifier = kind(location_weight=0, scale_weight=0, index="exact", query_budget=None, **settings)
    return classifier.fit([points(values) for values in REFERENCES], ["a", "a", "b"])


def said(evidence):
    return [(photo.image.id, photo.support, photo.n_patches) for photo in evidence.photos]


def test_local_nbnn_by_hand():
    # k = 2, dist_B is that of the third neighbor.
    # (1, 0): 1 and 81 to image 0, 401 to image 1: a gets 400 from image 0.
    # (0, 18): 4 to image 1, 324 and 424 to image 0: a gets 420 from image 1.
    # (90, 0): 100 to image 2, 6400 and 8100 to image 0: b gets 8000 from image 2, a 1700 from image 0.
    classifier = by_hand(LocalNBNN, n_neighbors=2)
    evidence = explain(classifier, points(QUERY), label="a")
    assert said(evidence) == [(0, 2100.0, 2), (1, 420.0, 1)]
    assert [photo.share for photo in evidence.photos] == [2100 / 2520, 420 / 2520]
    assert dict(evidence.ranking) == {"a": 2520.0, "b": 8000.0}
    assert said(explain(classifier, points(QUERY))) == [(2, 8000.0, 1)]
    (matches,) = evidence.matches
    assert matches.rows.tolist() == [0, 1, 2]
    assert [int(number) & 0xFFFFF for number in matches.ids] == [0, 0, 1], "of image 0 the second patch for (90, 0)"


def test_one_class_against_another_by_hand():
    evidence = explain(by_hand(LocalNBNN, n_neighbors=2), points(QUERY), label="a", against="b")
    assert said(evidence) == [(2, -8000.0, 1), (0, 2100.0, 2), (1, 420.0, 1)]
    assert sum(photo.share for photo in evidence.photos) == pytest.approx(1.0)
    assert evidence.support.sum() == 2520 - 8000


def test_nbnn_by_hand():
    # a: 1 and 6400 to image 0, 4 to image 1; its total is what they are apart, so the evidence is negative.
    evidence = explain(by_hand(NBNN), points(QUERY), label="a")
    assert said(evidence) == [(0, -6401.0, 2), (1, -4.0, 1)]
    assert [photo.share for photo in evidence.photos] == [6401 / 6405, 4 / 6405]


def test_plain_values():
    evidence = explain(by_hand(LocalNBNN, n_neighbors=2), points(QUERY), label="a")
    found = evidence.as_json()
    assert found["photos"][1] == {
        "id": 1,
        "path": "image 1",
        "label": "a",
        "support": 420.0,
        "share": 420 / 2520,
        "n_patches": 1,
    }
    assert (found["label"], found["support"], found["n_patches"], found["itself"]) == ("a", 2520.0, 3, None)
    own = explain(by_hand(LocalNBNN, n_neighbors=2), points(REFERENCES[1]))
    assert own.as_json()["itself"] == 1
    assert own.itself.label == "a"


@pytest.mark.parametrize("method", WITH_EVIDENCE)
@pytest.mark.parametrize("against", [None, "direction 2"])
def test_photos_add_up_to_the_evidence(method, against):
    evidence = explain(fitted(method), query(), label="direction 1", against=against)
    total = sum(photo.support for photo in evidence.photos)
    assert total == pytest.approx(evidence.support.sum(), rel=1e-12)
    classes = {"direction 1"} if against is None else {"direction 1", against}
    assert {photo.image.label for photo in evidence.photos} <= classes
    if method == "local-nbnn":
        assert total == evidence.support.sum(), "whole numbers: exactly"


def test_photos_of_a_fusion_add_up_and_are_one_for_all_members():
    images, labels = grating_set(n_images=3)
    members = [("a", LocalNBNN(5, descriptor=small_sift())), ("b", NBNN(descriptor=small_sift(step_px=5)))]
    fusion = LateFusion(members).fit(images, labels)
    evidence = explain(fusion, query(), label="direction 1", against="direction 0")
    assert len(evidence.matches) == 2
    assert sum(photo.support for photo in evidence.photos) == pytest.approx(evidence.support.sum())
    assert len({photo.image.id for photo in evidence.photos}) == len(evidence.photos) <= 6
    assert len(evidence.photos[0].image.name) > 0


# ---- pairs of patches ------------------------------------------------------------------------------------------------


@pytest.fixture
def paths(tmp_path):
    images, labels = grating_set()
    found = [tmp_path / f"{number}.png" for number in range(len(images))]
    for path, image in zip(found, images, strict=True):
        Image.fromarray(image).save(path)
    return found, labels


def row_of(features, patch):
    """The descriptor that is at the place of a patch."""
    (row,) = np.flatnonzero(np.abs(features.xy - [patch.x, patch.y]).max(axis=1) < 1e-6)
    assert (patch.width, patch.height) == pytest.approx(features.scale[row] / np.array(features.size))
    return row


@pytest.mark.parametrize("kind", [LocalNBNN, NBNN])
def test_the_patches_of_a_pair_are_nearest_neighbors(paths, kind):
    classifier = kind(descriptor=small_sift(), index="exact", query_budget=None, n_jobs=1).fit(*paths)
    evidence = explain(classifier, query())
    method = classifier.method_

    def vectors(image):
        features = small_sift().extract(image)
        return features, append_location(features, method.location_weight, method.scale_weight).astype(np.int64)

    features, asked = vectors(query())
    references = [vectors(np.asarray(Image.open(path))) for path in paths[0]]
    of_class = np.concatenate([references[2][1], references[3][1]])
    found = match_photos(evidence.matches, evidence.photos)
    assert {one.photo.image.id for one in found} == {2, 3}
    for one in found:
        assert np.array_equal(one.picture[:, :, 0], np.asarray(Image.open(one.photo.image.name)))
        assert 1 <= len(one.pairs) <= 4
        theirs, known = references[one.photo.image.id]
        for pair in one.pairs:
            row = row_of(features, pair.query)
            squared = ((asked[row] - known[row_of(theirs, pair.match)]) ** 2).sum()
            assert squared == ((asked[row] - of_class) ** 2).sum(axis=1).min()
            assert pair.support == evidence.support[row]


def test_pairs_are_the_strongest_that_lie_apart(paths):
    # Patches of 16 px every 7 px: those one or two steps away overlap; 1.2 sides are 19.2 px, so three steps it is.
    classifier = LocalNBNN(5, descriptor=small_sift(), index="exact", query_budget=None, n_jobs=1).fit(*paths)
    evidence = explain(classifier, query())
    (matches,) = evidence.matches
    for found in match_photos(evidence.matches, evidence.photos, n_pairs=3):
        own = (matches.ids >> 20) == found.photo.image.id
        supports = [pair.support for pair in found.pairs]
        assert supports[0] == matches.support[own].max()
        assert supports == sorted(supports, reverse=True)
        for first, one in enumerate(found.pairs):
            for other in found.pairs[first + 1 :]:
                apart = max(abs(one.query.x - other.query.x), abs(one.query.y - other.query.y)) * 48
                assert apart == pytest.approx(round(apart / 7) * 7, abs=1e-4)
                assert apart > 20


def test_a_photo_that_is_gone_has_no_picture_and_no_patch(paths, tmp_path):
    classifier = LocalNBNN(5, descriptor=small_sift(), index="exact", query_budget=None, n_jobs=1).fit(*paths)
    evidence = explain(classifier, query())
    paths[0][2].unlink()
    Image.fromarray(grating_set(seed=9)[0][0]).save(paths[0][3])
    for found in match_photos(evidence.matches, evidence.photos):
        assert found.picture is None
        assert found.pairs
        assert all(pair.match is None for pair in found.pairs)
        assert found.as_json()[0]["match"] is None
        assert set(found.as_json()[0]) == {"image_id", "path", "label", "support", "query", "match"}

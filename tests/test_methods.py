"""Methods alone: mathematics on features, without a classifier, a descriptor or a model folder."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from synthetic import make_features

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.methods import INCREMENTAL
from lnbnn.methods.affine import AffineCorrection
from lnbnn.methods.base import no_progress
from lnbnn.methods.fisher import FisherRegression
from lnbnn.methods.joint_coding import JointCoding
from lnbnn.methods.kernel import ResponseKernel
from lnbnn.methods.local_coding import LocalCoding
from lnbnn.methods.local_nbnn import LocalMatching
from lnbnn.methods.nbnn import ClassMatching, LogOddsMatching
from lnbnn.methods.pooled_ridge import PooledRegression
from lnbnn.methods.pooled_svm import PooledLinearSVM
from lnbnn.methods.spatial_pyramid import PyramidSVM
from lnbnn.params import resolve
from lnbnn.references import Reference, References

WEIGHTS = (1.6, 0.25)
METHODS = {
    "local-nbnn": lambda settings: LocalMatching(settings, *WEIGHTS),
    "nbnn": lambda settings: ClassMatching(settings, *WEIGHTS),
    "nbnn-log-odds": lambda settings: LogOddsMatching(settings, *WEIGHTS),
    "nbnn-affine": lambda settings: AffineCorrection(settings, ClassMatching(settings, *WEIGHTS)),
    "nbnn-kernel": lambda settings: ResponseKernel(settings, ClassMatching(settings, *WEIGHTS)),
    "local-nbnn-kernel": lambda settings: ResponseKernel(settings, LocalMatching(settings, *WEIGHTS)),
    "pooled-ridge": PooledRegression,
    "pooled-svm": PooledLinearSVM,
    "fisher": FisherRegression,
    "fisher-slc": lambda settings: JointCoding(
        settings, [FisherRegression(settings), LocalCoding(settings, np.float16)]
    ),
    "slc": LocalCoding,
    "spm-hard": PyramidSVM,
    "spm-soft": PyramidSVM,
}
EXACT = INCREMENTAL - {"fisher", "fisher-slc", "slc"}  # whose codes stay those of the first fit
CHANGES = {"n_words": 8, "alpha": 0.1, "n_neighbors": 5, "index": "exact", "n_jobs": 1}


def features(seed):
    """Descriptors of three classes, by the seed's remainder."""
    rng = np.random.default_rng(seed)
    return make_features(rng.integers(40 * (seed % 3), 40 * (seed % 3) + 80, (15, 8), dtype=np.uint8), seed=seed)


IMAGES = {number: "abc"[number % 3] for number in range(9)}
QUERIES = [features(seed) for seed in range(50, 56)]


def classifier_of(name):
    kind = resolve(CLASSIFIERS, name, "method")
    return kind(**{key: value for key, value in CHANGES.items() if key in kind.param_names()})


def alone(name):
    """The method with its settings, and nothing of a classifier."""
    classifier = classifier_of(name)
    settings = {key: getattr(classifier, key) for key in ("stop_confidence",) if hasattr(classifier, key)}
    return METHODS[name](SimpleNamespace(**settings | classifier.get_params()))


def reference(number, label):
    return Reference(number, f"image {number}", label, len(features(number)))


def learned(name, images):
    """The method after learning from images: a dict of id to label, the id being the seed too."""
    method = alone(name)
    references = References(reference(number, label) for number, label in images.items())
    for image in references:
        method.add(image, method.prepare(features(image.id), None))
    method.finish(references, no_progress)
    return method


def scores(method):
    return np.stack([method.scores(method.prepare(query, None)) for query in QUERIES])


@pytest.fixture(params=sorted(CLASSIFIERS))
def name(request):
    return request.param


def test_every_method_is_tried():
    assert METHODS.keys() == CLASSIFIERS.keys()


def test_scores_are_those_of_the_classifier(name):
    method = learned(name, IMAGES)
    classifier = classifier_of(name).fit([features(number) for number in IMAGES], list(IMAGES.values()))
    assert np.array_equal(scores(method), classifier.decision_function(QUERIES))
    assert type(method) is type(classifier.method_)
    assert method.describe() == classifier.describe()
    assert method.nbytes == classifier.nbytes_
    assert method.min_descriptors() == classifier.method_.min_descriptors()


def test_held_out_scores_are_those_of_the_classifier(name):
    method = learned(name, IMAGES)
    classifier = classifier_of(name).fit([features(number) for number in IMAGES], list(IMAGES.values()))
    for alone_says, classifier_says in (
        (method.held_out_scores(), classifier.held_out_scores()),
        (method.unknown_scores(), classifier.model_.unknown_scores()),
    ):
        assert (alone_says is None) == (classifier_says is None)
        assert alone_says is None or np.array_equal(alone_says, classifier_says)


def test_what_is_kept_is_all_that_is_needed(name, tmp_path):
    method = learned(name, IMAGES)
    method.save(tmp_path)
    again = alone(name)
    again.load(tmp_path, method.references)
    assert np.array_equal(scores(again), scores(method))
    assert again.inconsistencies() == []


def test_scores_of_one_image_do_not_change_what_was_learned(name):
    method = learned(name, IMAGES)
    first = scores(method)
    assert np.array_equal(scores(method), first)


@pytest.mark.parametrize("name", sorted(EXACT))
def test_changes_lead_to_what_is_learned_at_once(name):
    method = learned(name, IMAGES)
    after = {number: label for number, label in IMAGES.items() if number != 4} | {3: "d", 12: "b"}
    method.resume()
    method.remove(reference(4, "b"))
    method.relabel(reference(3, "a"), "d")
    method.add(reference(12, "b"), method.prepare(features(12), None))
    method.finish(References(reference(number, label) for number, label in after.items()), no_progress)
    assert np.array_equal(scores(method), scores(learned(name, after)))


@pytest.mark.parametrize("name", sorted(EXACT))
def test_absorbed_images_are_as_learned_at_once(name):
    method = learned(name, {number: label for number, label in IMAGES.items() if number < 6})
    other = learned(name, {number: label for number, label in IMAGES.items() if number >= 6})
    method.resume()
    for place, image in enumerate(other.references):
        method.absorb(other, place, image)
    method.finish(References(reference(number, label) for number, label in IMAGES.items()), no_progress)
    assert np.array_equal(scores(method), scores(learned(name, IMAGES)))

"""Late fusion: by its formula, of a method with itself, of any two methods, and on disk."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from PIL import Image
from quick import MeanBrightness, quick
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from synthetic import flat_image, grating_set, small_sift

from lnbnn import NBNN, AffineNBNN, LateFusion, LocalNBNN
from lnbnn.classifiers.cross_fitting import cross_fitted_scores
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.model.calibration import corrected, fit_fusion_weights, log_probabilities
from lnbnn.trust.evaluation import evaluate
from lnbnn.trust.evidence import explain


def pair(**changes):
    return LateFusion([("nbnn", quick(NBNN)), ("local", quick(LocalNBNN))], **{"n_jobs": 1, **changes})


def images_and_labels():
    return grating_set(n_images=3)


def queries():
    return grating_set(seed=9)


@pytest.fixture(scope="module")
def fusion():
    return pair().fit(*images_and_labels())


def test_scores_are_the_formula(fusion):
    images, _ = queries()
    product = sum(
        weight * log_probabilities(member.decision_function(images) / 36, member.model_.calibration.temperature)
        for weight, member in zip(fusion.weights_, fusion.estimators_, strict=True)
    )
    expected = np.exp(product) / np.exp(product).sum(axis=1, keepdims=True)
    assert np.allclose(fusion.decision_function(images), np.log(expected))
    answers = corrected(np.log(expected), fusion.model_.calibration.confidence)
    assert np.allclose(fusion.predict_proba(images), np.exp(answers))
    assert np.allclose(fusion.predict_proba(images).sum(axis=1), 1.0)


def test_weights_are_learned_on_leave_one_out_scores(fusion):
    held_out = [
        log_probabilities(-member.reference_totals() / 36, member.model_.calibration.temperature)
        for member in fusion.estimators_
    ]
    assert np.allclose(fusion.weights_, fit_fusion_weights(held_out, fusion.places_))
    assert (fusion.weights_ >= 0).all()


def test_answers(fusion):
    images, labels = queries()
    assert fusion.predict(images).tolist() == labels
    assert fusion.score(images, labels) == 1.0
    assert fusion.classes_.tolist() == sorted(set(labels))
    assert [answer.label for answer in fusion.iter_answers(images)] == labels
    assert evaluate(fusion, images, labels).mean_per_class_accuracy == 1.0
    assert "nbnn" in fusion.describe()
    assert fusion.nbytes_ == sum(member.nbytes_ for member in fusion.estimators_)
    assert fusion.calibrate() is fusion
    assert explain(fusion, images[0]).label == labels[0]


@pytest.mark.parametrize("kind", [NBNN, LocalNBNN, AffineNBNN])
def test_a_method_with_itself_ranks_the_same(kind):
    alone = quick(kind).fit(*images_and_labels()).calibrate()
    twice = LateFusion([("a", quick(kind)), ("b", quick(kind))], n_jobs=1).fit(*images_and_labels())
    images, _ = queries()
    assert np.array_equal(
        np.argsort(-twice.decision_function(images), axis=1), np.argsort(-alone.decision_function(images), axis=1)
    )
    assert twice.weights_[0] == pytest.approx(twice.weights_[1])


def test_any_two_methods(tmp_path):
    """One that cannot leave an image out is fitted without each part; another descriptor is no hindrance."""
    other = small_sift(step_px=5)
    members = [("local", quick(LocalNBNN)), ("mean", MeanBrightness(descriptor=other, n_jobs=1))]
    images, labels = images_and_labels()
    found = LateFusion(members, n_folds=3, n_jobs=1).fit(images, labels)
    mean = found.estimators_[1]
    again = clone(mean).fit(images, labels)
    again.calibrate(cross_fitted_scores(again, images, labels, n_folds=3))
    assert mean.model_.calibration.temperature == again.model_.calibration.temperature
    assert found.predict(queries()[0]).tolist() == queries()[1]


def test_of_fitted_methods(fusion):
    images, labels = images_and_labels()
    members = [("nbnn", quick(NBNN).fit(images, labels)), ("local", quick(LocalNBNN).fit(images, labels))]
    found = LateFusion.of_fitted(members, n_jobs=1)
    assert found.estimators_[0].model_ is members[0][1].model_
    assert np.array_equal(found.weights_, fusion.weights_)
    assert np.array_equal(found.decision_function(queries()[0]), fusion.decision_function(queries()[0]))


def test_of_fitted_methods_with_scores_given():
    images, labels = images_and_labels()
    mean = MeanBrightness(descriptor=small_sift(), n_jobs=1).fit(images, labels)
    members = [("local", quick(LocalNBNN).fit(images, labels)), ("mean", mean)]
    with pytest.raises(InvalidInputError, match="'mean' cannot leave"):
        LateFusion.of_fitted(members)
    found = LateFusion.of_fitted(members, held_out={"mean": cross_fitted_scores(mean, images, labels)})
    assert found.predict(queries()[0]).tolist() == queries()[1]


def test_methods_of_other_images_or_classes():
    images, labels = images_and_labels()
    first = quick(NBNN).fit(images, labels)
    fewer = quick(LocalNBNN).fit(images[3:], labels[3:])
    with pytest.raises(InvalidInputError, match="must know the same classes; 'nbnn' knows 3, 'local-nbnn' 2"):
        LateFusion.of_fitted([("a", first), ("b", fewer)])
    turned = quick(LocalNBNN).fit(images, labels[::-1])
    with pytest.raises(InvalidInputError, match="fitted on the same labeled images"):
        LateFusion.of_fitted([("a", first), ("b", turned)])
    with pytest.raises(NotFittedError):
        LateFusion.of_fitted([("a", first), ("b", quick(LocalNBNN))])


def test_image_that_one_method_skips():
    """An image without descriptors for one of the two is left out of the weights, not of the other method."""
    images, labels = images_and_labels()
    faint = np.clip(images[0].astype(int) // 40 + 100, 0, 255).astype(np.uint8)
    blind = quick(NBNN, descriptor=small_sift(min_contrast=8.0))
    found = LateFusion([("a", blind), ("b", quick(LocalNBNN))], n_jobs=1).fit([faint, *images], [labels[0], *labels])
    assert len(found.estimators_[0].images_) == 9
    assert len(found.estimators_[1].images_) == 10
    assert found.predict(queries()[0]).tolist() == queries()[1]
    assert np.isfinite(found.decision_function([faint])).all()


def test_odd_images(fusion, tmp_path):
    assert fusion.decision_function([flat_image()]).tolist() == [[0.0, 0.0, 0.0]]
    assert np.allclose(fusion.predict_proba([flat_image()]), 1 / 3)
    answers = list(fusion.iter_answers([flat_image(), tmp_path / "missing.png"]))
    assert "no descriptors" in answers[0].reason
    assert answers[1].unreadable
    with pytest.raises(ImageReadError, match="no such file"):
        fusion.predict([tmp_path / "missing.png"])
    broken = tmp_path / "broken.png"
    broken.write_text("no picture")
    images, labels = images_and_labels()
    found = pair().fit([broken, *images], ["direction 0", *labels], on_error="skip")
    assert [name for name, _ in found.skipped_] == [str(broken)]
    assert np.array_equal(found.weights_, fusion.weights_)


def test_paths_that_come_twice(tmp_path, fusion):
    images, labels = images_and_labels()
    paths = []
    for place, image in enumerate(images):
        paths.append(tmp_path / f"{place}.png")
        Image.fromarray(image).save(paths[-1])
    found = pair().fit([*paths, paths[0]], [*labels, labels[0]])
    assert len(found.images_) == 10
    assert found.predict(queries()[0]).tolist() == queries()[1]


def test_numpy_labels():
    images, labels = images_and_labels()
    numbers = np.array([int(label[-1]) for label in labels])
    members = [("local", quick(LocalNBNN)), ("mean", MeanBrightness(descriptor=small_sift(), n_jobs=1))]
    assert LateFusion(members).fit(images, numbers).predict(queries()[0]).tolist() == [0, 0, 1, 1, 2, 2]


# ---- scikit-learn's contract -----------------------------------------------------------------------------------------


def test_constructor_only_stores():
    marks = {name: object() for name in inspect.signature(LateFusion).parameters}
    assert vars(LateFusion(**marks)) == marks


def test_clone_and_params(fusion):
    copy = clone(fusion)
    assert not hasattr(copy, "classes_")
    assert [name for name, _ in copy.estimators] == ["nbnn", "local"]
    assert copy.estimators[0][1] is not fusion.estimators[0][1]
    assert copy.get_params()["local__n_neighbors"] == 10
    assert copy.set_params(local__n_neighbors=3, n_folds=4) is copy
    assert copy.estimators[1][1].n_neighbors == 3
    assert copy.n_folds == 4
    replacement = quick(AffineNBNN)
    copy.set_params(nbnn=replacement)
    assert copy.estimators[0] == ("nbnn", replacement)
    with pytest.raises(ValueError, match="Invalid parameter 'speed'"):
        copy.set_params(speed=3)


def test_fit_works_on_clones():
    made = pair()
    made.fit(*images_and_labels())
    assert not hasattr(made.estimators[0][1], "classes_")


def test_same_for_any_number_of_jobs(fusion):
    images, _ = queries()
    many = pair(n_jobs=2).fit(*images_and_labels())
    assert many.decision_function(images).tobytes() == fusion.decision_function(images).tobytes()


def test_unfitted(tmp_path):
    for act in (pair().predict, pair().predict_proba, pair().decision_function):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            act([flat_image()])
    with pytest.raises(NotFittedError):
        pair().save(tmp_path / "model")


@pytest.mark.parametrize(
    ("estimators", "message"),
    [
        ([], "at least two"),
        ([("a", NBNN())], "at least two"),
        ((("a", NBNN()), ("b", NBNN())), "must be a list"),
        ([("a", NBNN()), ("a", NBNN())], "names of estimators must differ"),
        ([("a", NBNN()), ("b__c", NBNN())], "have no '__'"),
        ([("a", NBNN()), ("n_jobs", NBNN())], "be no setting"),
        ([("a", NBNN()), ("b", "nbnn")], "'b' must be one of this package's methods; got str"),
        ([("a", NBNN()), ("b", LateFusion([]))], "'b' must be one of this package's methods; got LateFusion"),
        ([("a", NBNN()), ("b", NBNN(location_weight=9))], "location_weight must be from 0"),
    ],
)
def test_bad_estimators(estimators, message):
    with pytest.raises(InvalidInputError, match=message):
        LateFusion(estimators).fit(*images_and_labels())


def test_bad_n_folds():
    with pytest.raises(InvalidInputError, match="n_folds must be a whole number from 2"):
        pair(n_folds=1).fit(*images_and_labels())

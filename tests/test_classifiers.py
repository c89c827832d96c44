"""The contract of a classifier, over every method in the registry."""

from __future__ import annotations

import inspect
import json
import logging
import os
import pickle

import numpy as np
import pytest
from forged import forge_manifest
from PIL import Image
from quick import KERNEL_METHODS, NEIGHBOR_METHODS, SIFT_PARAMS, fitted, known, make, queries
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from synthetic import flat_image, grating, grating_set, make_features, small_sift

from lnbnn import DenseSIFT, FeatureStore, load
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.cross_fitting import cross_fitted_scores
from lnbnn.errors import ImageReadError, InvalidInputError, UnknownNameError
from lnbnn.methods import INCREMENTAL
from lnbnn.params import plain, resolve


@pytest.fixture(params=sorted(CLASSIFIERS))
def method(request):
    return request.param


# ---- scikit-learn's contract -----------------------------------------------------------------------------------------


def test_constructor_only_stores(method):
    kind = resolve(CLASSIFIERS, method, "method")
    marks = {name: object() for name in inspect.signature(kind).parameters}
    made = kind(**marks)
    assert vars(made) == marks
    assert kind.method == method


def test_get_and_set_params(method):
    classifier = make(method)
    assert classifier.get_params(deep=False)["random_state"] == 0
    assert classifier.set_params(random_state=5) is classifier
    assert classifier.random_state == 5
    with pytest.raises(ValueError, match="Invalid parameter 'speed'"):
        classifier.set_params(speed=3)


def test_clone(method):
    classifier = fitted(method, random_state=7)
    copy = clone(classifier)
    assert copy is not classifier
    assert copy.get_params() == classifier.get_params()
    assert not hasattr(copy, "classes_")


def test_clone_with_a_descriptor_object(method):
    classifier = make(method, descriptor=small_sift(), descriptor_params=None)
    copy = clone(classifier)
    assert copy.descriptor.settings() == small_sift().settings()
    assert np.array_equal(copy.fit(*grating_set()).predict(queries()[0]), queries()[1])


def test_pickle_of_an_unfitted_one(method):
    for classifier in (make(method), make(method, descriptor=small_sift(), descriptor_params=None)):
        again = pickle.loads(pickle.dumps(classifier))
        assert np.array_equal(again.fit(*grating_set()).predict(queries()[0]), queries()[1])


def test_grid_search(method):
    images, labels = grating_set(n_images=4)
    search = GridSearchCV(make(method), {"random_state": [0, 1]}, cv=2, n_jobs=1)
    search.fit(images, labels)
    assert search.best_score_ == 1.0


def test_fit_returns_self_and_sets_what_it_promises(method):
    classifier = make(method)
    images, labels = grating_set()
    assert classifier.fit(images, labels) is classifier
    assert classifier.classes_.tolist() == sorted(set(labels))
    assert [image.name for image in classifier.images_] == [f"image {place}" for place in range(len(images))]
    assert [image.label for image in classifier.images_] == labels
    assert classifier.classes_[classifier.places_].tolist() == labels
    assert all(image.n_descriptors == 36 for image in classifier.images_)
    assert classifier.skipped_ == []
    assert isinstance(classifier.describe(), str)
    assert classifier.nbytes_ >= (6 * 36 * 130 if method in NEIGHBOR_METHODS else 6 * 128)


def test_fit_does_not_change_the_settings(method):
    classifier = make(method)
    before = classifier.get_params()
    classifier.fit(*grating_set()).predict(queries()[0])
    assert classifier.get_params() == before


@pytest.mark.parametrize("act", ["predict", "decision_function"])
def test_unfitted(method, act):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(make(method), act)([flat_image()])


def test_unfitted_answers(method):
    with pytest.raises(NotFittedError):
        list(make(method).iter_answers([flat_image()]))


def test_unfitted_save(method, tmp_path):
    with pytest.raises(NotFittedError):
        make(method).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_answers_are_right_and_agree(method):
    classifier = fitted(method)
    images, labels = queries()
    scores = classifier.decision_function(images)
    assert scores.shape == (6, 3)
    assert classifier.predict(images).tolist() == labels
    assert np.array_equal(classifier.predict(images), classifier.classes_[scores.argmax(axis=1)])
    assert classifier.score(images, labels) == 1.0
    wrong = [labels[0], *reversed(labels[1:])]
    expected = np.mean([a == b for a, b in zip(wrong, labels, strict=True)])
    assert classifier.score(images, wrong) == expected
    for row, answer in enumerate(classifier.iter_answers(images)):
        assert answer.name == f"image {row}"
        assert answer.label == labels[row]
        assert [label for label, _ in answer.ranking] == classifier.classes_[np.argsort(-scores[row])].tolist()
        assert [score for _, score in answer.ranking] == sorted(scores[row], reverse=True)
        assert answer.reason is None


def test_no_images_to_classify(method):
    classifier = fitted(method)
    assert classifier.decision_function([]).shape == (0, 3)
    assert classifier.predict([]).shape == (0,)
    assert list(classifier.iter_answers([])) == []


@pytest.mark.parametrize(
    "rename",
    [
        lambda place: place,
        lambda place: 10 - 5 * place,
        lambda place: ["zebra", "a class with spaces", "-ünï 犬"][place],
        lambda place: str(place),
    ],
)
def test_string_and_integer_labels(method, rename):
    images, labels = grating_set()
    renamed = [rename(int(label[-1])) for label in labels]
    classifier = make(method).fit(images, renamed)
    assert classifier.classes_.tolist() == sorted(set(renamed))
    assert classifier.predict(queries()[0]).tolist() == renamed
    assert [answer.label for answer in classifier.iter_answers(queries()[0])] == renamed
    forms = [np.array(renamed), tuple(renamed)]
    if isinstance(renamed[0], str):
        forms.append(np.array(renamed, dtype=object))  # as a column of a table comes
    for as_given in forms:
        assert make(method).fit(images, as_given).predict(queries()[0]).tolist() == renamed


def test_order_of_the_images_does_not_matter(method):
    images, labels = grating_set()
    expected = make(method).fit(images, labels).decision_function(queries()[0])
    order = np.random.default_rng(0).permutation(len(images))
    shuffled = make(method).fit([images[i] for i in order], [labels[i] for i in order])
    assert np.array_equal(shuffled.decision_function(queries()[0]), expected)


def test_order_of_the_queries_does_not_matter(method):
    classifier = fitted(method, **known(method, {"query_budget": 10}))
    images, _ = queries()
    assert np.array_equal(classifier.decision_function(images[::-1])[::-1], classifier.decision_function(images))


def test_refit_forgets(method):
    images, labels = grating_set()
    classifier = make(method).fit(images[:4], ["x", "x", "y", "y"])
    classifier.fit(images, labels)
    assert np.array_equal(
        classifier.decision_function(queries()[0]), make(method).fit(images, labels).decision_function(queries()[0])
    )
    assert classifier.classes_.tolist() == sorted(set(labels))
    assert len(classifier.images_) == 6


def test_one_class(method):
    images, _ = grating_set()
    classifier = make(method).fit(images[:2], ["only", "only"])
    assert classifier.predict(queries()[0]).tolist() == ["only"] * 6
    assert classifier.decision_function(queries()[0]).shape == (6, 1)


def test_class_with_one_image(method):
    images, labels = grating_set()
    if method in KERNEL_METHODS:
        with pytest.raises(InvalidInputError, match=r"at least 2 usable images per class; class .*direction 0.* has 1"):
            make(method).fit(images[1:], labels[1:])
        return
    classifier = make(method).fit(images[1:], labels[1:])
    assert classifier.predict(queries()[0]).tolist() == labels


def test_inputs_are_not_changed(method):
    images, labels = grating_set()
    labels = np.array(labels)
    copies = [image.copy() for image in images]
    for array in (*images, labels):
        array.flags.writeable = False
    make(method).fit(images, labels).predict(images)
    assert all(np.array_equal(image, copy) for image, copy in zip(images, copies, strict=True))
    assert labels.tolist() == grating_set()[1]


def test_paths_arrays_and_features_agree(method, tmp_path):
    images, labels = grating_set()
    paths = []
    for place, image in enumerate(images):
        paths.append(tmp_path / f"{place}.png")
        Image.fromarray(image).save(paths[-1])
    features = [small_sift().extract(image) for image in images]
    expected = fitted(method).decision_function(images)
    texts = [str(path) for path in paths]
    for form in (paths, texts, features):
        assert np.array_equal(make(method).fit(form, labels).decision_function(form), expected)
    mixed = [paths[0], images[1], features[2], texts[3], images[4], features[5]]
    classifier = make(method).fit(mixed, labels)
    assert np.array_equal(classifier.decision_function(mixed), expected)
    assert [image.name for image in classifier.images_][:2] == [texts[0], "image 1"]
    assert [answer.name for answer in classifier.iter_answers(mixed)][3] == texts[3]


def test_features_of_any_kind(method):
    """Descriptors of another length and type, as a network gives them."""
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(2, 10))
    sets = [make_features((centers[c] + 0.1 * rng.normal(size=(20, 10))).astype(np.float32)) for c in (0, 1) * 3]
    classifier = make(method).fit(sets[:4], [0, 1, 0, 1])
    assert classifier.predict(sets[4:]).tolist() == [0, 1]
    with pytest.raises(
        InvalidInputError, match=r"queries must be float32 of shape \(n, 1[03]\)|must have the length 10"
    ):
        classifier.predict([grating(20, seed=5)])


def test_same_for_any_number_of_jobs(method):
    images, labels = grating_set()
    changes = known(method, {"query_budget": 20})
    one = make(method, n_jobs=1, **changes).fit(images, labels)
    expected = one.decision_function(queries()[0])
    for n_jobs in (2, None):
        other = make(method, n_jobs=n_jobs, **changes).fit(images, labels)
        assert other.decision_function(queries()[0]).tobytes() == expected.tobytes()
        assert other.images_ == one.images_


@pytest.mark.parametrize("n_jobs", [0, -1, 1.5])
def test_bad_n_jobs(method, n_jobs):
    with pytest.raises(InvalidInputError, match=f"n_jobs must be a whole number, at least 1, .* got {n_jobs}"):
        make(method, n_jobs=n_jobs).fit(*grating_set())


def test_progress_is_reported(method):
    seen = []
    classifier = make(method).fit(*grating_set(), progress=lambda *call: seen.append(call))
    assert [call for call in seen if call[0] == "reading images"] == [("reading images", n, 6) for n in range(1, 7)]
    assert {stage for stage, _, _ in seen} > {"reading images"}
    seen.clear()
    classifier.decision_function(queries()[0], progress=lambda *call: seen.append(call))
    assert seen == [("classifying", n, 6) for n in range(1, 7)]


# ---- images without descriptors, bad files ---------------------------------------------------------------------------


def test_query_without_descriptors(method):
    classifier = fitted(method)
    assert classifier.decision_function([flat_image()]).tolist() == [[0.0, 0.0, 0.0]]
    with pytest.warns(UserWarning, match=r"1 of 1 images get no label \(None\): image 0: no descriptors"):
        assert classifier.predict([flat_image()]).tolist() == [None]
    good = queries()[0][0]
    with pytest.warns(UserWarning, match=r"1 of 2 images get no label \(None\): image 1: no descriptors"):
        labels = classifier.predict([good, flat_image()])
    assert labels.tolist() == ["direction 0", None]
    with pytest.warns(UserWarning, match="no descriptors"):
        assert classifier.score([good, flat_image()], ["direction 0", "direction 0"]) == 0.5
    assert classifier.predict([good]).dtype == classifier.classes_.dtype, "of objects only where one is None"
    answers = list(classifier.iter_answers([flat_image(), good]))
    assert (answers[0].label, answers[0].ranking, answers[0].unreadable) == (None, (), False)
    assert "no descriptors" in answers[0].reason
    assert answers[1].label == "direction 0"


def test_files_without_descriptors_are_named(tmp_path):
    paths = [tmp_path / f"flat {number}.png" for number in range(12)]
    for path in paths:
        Image.fromarray(flat_image()).save(path)
    with pytest.warns(UserWarning, match="12 of 12 images get no label") as caught:
        assert fitted("local-nbnn").predict(paths).tolist() == [None] * 12
    (warning,) = caught
    text = str(warning.message)
    assert warning.filename == __file__
    assert all(str(path) in text for path in paths[:10])
    assert str(paths[10]) not in text
    assert "and 2 more: no descriptors" in text


def test_cross_validation_counts_an_image_without_descriptors_as_wrong():
    images, labels = grating_set(n_images=4)
    assert cross_val_score(make("local-nbnn"), images, labels, cv=2, scoring="accuracy").tolist() == [1.0, 1.0]
    images[0] = flat_image()  # in the first of two parts of six images
    with pytest.warns(UserWarning, match="1 of 6 images get no label"):
        found = cross_val_score(make("local-nbnn"), images, labels, cv=2)
    assert found.tolist() == [5 / 6, 1.0]


def test_training_image_without_descriptors_has_no_effect(method):
    images, labels = grating_set()
    classifier = make(method).fit([flat_image(), *images], ["direction 2", *labels])
    assert np.array_equal(classifier.decision_function(queries()[0]), fitted(method).decision_function(queries()[0]))
    assert classifier.predict(queries()[0]).tolist() == labels


def test_class_without_descriptors_is_never_answered(method, caplog):
    images, labels = grating_set()
    with caplog.at_level(logging.WARNING, logger="lnbnn"):
        classifier = make(method).fit([flat_image(), *images], ["a blank", *labels])
    assert "a blank" in caplog.text
    assert classifier.predict([*queries()[0], *images]).tolist() == [*labels, *labels]


def test_no_descriptors_at_all(method):
    with pytest.raises(InvalidInputError, match="flat or too small"):
        make(method).fit([flat_image(), flat_image(3)], ["a", "b"])


def test_bad_file_stops_or_is_skipped(method, tmp_path):
    images, labels = grating_set()
    missing = tmp_path / "missing.png"
    broken = tmp_path / "broken.jpg"
    broken.write_text("this is no picture")
    with pytest.raises(ImageReadError, match=r"missing\.png: no such file"):
        make(method).fit([missing, *images], ["direction 0", *labels])
    X, y = [*images[:3], missing, *images[3:], broken], [*labels[:3], "direction 1", *labels[3:], "direction 2"]
    classifier = make(method).fit(X, y, on_error="skip")
    assert [name for name, _ in classifier.skipped_] == [str(missing), str(broken)]
    assert "not a picture" in classifier.skipped_[1][1]
    assert np.array_equal(classifier.decision_function(queries()[0]), fitted(method).decision_function(queries()[0]))
    with pytest.raises(InvalidInputError, match="on_error must be 'raise' or 'skip'; got 'ignore'"):
        make(method).fit(images, labels, on_error="ignore")


def test_all_files_bad(method, tmp_path):
    with pytest.raises(InvalidInputError, match="no such file"):
        make(method).fit([tmp_path / "a.png", tmp_path / "b.png"], ["a", "b"], on_error="skip")


def test_bad_query_file(method, tmp_path):
    classifier = fitted(method)
    good = queries()[0][0]
    with pytest.raises(ImageReadError, match="no such file"):
        classifier.predict([good, tmp_path / "missing.png"])
    answers = list(classifier.iter_answers([tmp_path / "missing.png", good]))
    assert answers[0].unreadable
    assert answers[0].label is None
    assert "no such file" in answers[0].reason
    assert answers[1].label == "direction 0"


def test_store_is_used(method, tmp_path):
    images, labels = grating_set()
    paths = []
    for place, image in enumerate(images):
        paths.append(tmp_path / f"{place}.png")
        Image.fromarray(image).save(paths[-1])
    store = FeatureStore(tmp_path / "store")
    first = make(method).fit(paths, labels, store=store)
    assert len(list((tmp_path / "store").rglob("*.npz"))) == 6
    assert np.array_equal(
        make(method).fit(paths, labels, store=store).decision_function(images), first.decision_function(images)
    )
    kept = [answer.ranking for answer in first.iter_answers(paths, store=store)]
    assert kept == [answer.ranking for answer in first.iter_answers(images)]


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"], r"y must hold one label per image \(6\); got shape \(1,\)"),
        ([["a"]] * 6, r"got shape \(6, 1\)"),
        ([0.5] * 6, "labels must be all strings or all whole numbers; got dtype float64"),
        ([True, False] * 3, "got dtype bool"),
        ([None] * 6, "got dtype object"),
        (np.array(["a", 1] * 3, dtype=object), "all strings or all whole numbers"),
        ([b"a", b"b"] * 3, "all strings or all whole numbers"),
        (["a", "a\0"] * 3, "must not hold a NUL character"),
    ],
)
def test_bad_labels(method, labels, message):
    with pytest.raises(InvalidInputError, match=message):
        make(method).fit(grating_set()[0], labels)


def test_no_images(method):
    with pytest.raises(InvalidInputError, match="at least one image"):
        make(method).fit([], [])


def test_not_an_image(method):
    with pytest.raises(InvalidInputError, match="an image must be a path, an array or ImageFeatures; got int"):
        make(method).fit([3, 4], ["a", "b"])
    with pytest.raises(InvalidInputError, match=r"an image array must have shape"):
        fitted(method).predict(grating(0, seed=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"descriptor_params": {"step_px": 0}}, "step_px"),
        ({"descriptor": DenseSIFT()}, "descriptor_params goes with a descriptor's name"),
        ({"descriptor": DenseSIFT(step_px=0), "descriptor_params": None}, "step_px"),
    ],
)
def test_bad_settings(method, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        make(method, **changes).fit(*grating_set())


def test_unknown_descriptor(method):
    with pytest.raises(UnknownNameError, match="choose one of"):
        make(method, descriptor="hog").fit(*grating_set())


@pytest.mark.parametrize("seed", [-1, "abc", 1.5])
def test_bad_random_state(method, seed):
    """Found out by ``fit``, not by the first query after a long fit."""
    with pytest.raises(InvalidInputError, match="random_state"):
        make(method, random_state=seed).fit(*grating_set())


# ---- models on disk --------------------------------------------------------------------------------------------------


def assert_same_model(again, classifier):
    assert type(again) is type(classifier)
    assert again.classes_.tolist() == classifier.classes_.tolist()
    assert again.images_ == classifier.images_
    assert again.describe() == classifier.describe()
    assert again.decision_function(queries()[0]).tobytes() == classifier.decision_function(queries()[0]).tobytes()
    assert again.predict(queries()[0]).tolist() == classifier.predict(queries()[0]).tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"index": "faiss"},
        {"index": "faiss", "index_params": {"form": "ivf-8bit", "n_lists": 2}},
        {"query_budget": 0.5, "random_state": 3},
        {"location_weight": 0},
        {"scale_weight": 0.1},
    ],
)
def test_save_and_load(method, changes, tmp_path):
    classifier = fitted(method, **known(method, changes))
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert_same_model(again, classifier)
    expected = {**classifier.get_params(deep=False), "n_jobs": None}  # threads belong to a machine, not to a model
    if "location_weight" in expected:
        expected["location_weight"] = classifier.used_location_weight()
        expected["scale_weight"] = classifier.used_scale_weight()
    assert plain(again.get_params(deep=False)) == plain(expected)  # JSON has lists only
    again.save(tmp_path / "copy")
    assert_same_model(load(tmp_path / "copy"), classifier)


def test_a_model_made_before_scale_weight_ignores_sizes(tmp_path):
    classifier = fitted("local-nbnn", scale_weight=0.0)
    classifier.save(tmp_path / "model")
    params = {name: value for name, value in classifier.plain_params().items() if name != "scale_weight"}
    forge_manifest(tmp_path / "model", params=params)
    again = load(tmp_path / "model")
    assert again.scale_weight == 0.0
    assert_same_model(again, classifier)


def test_save_integer_labels(method, tmp_path):
    classifier = make(method).fit(grating_set()[0], [7, 7, -1, -1, 30, 30])
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.predict(queries()[0]).tolist() == [7, 7, -1, -1, 30, 30]
    assert again.classes_.dtype.kind == "i"


def test_save_a_descriptor_object(method, tmp_path):
    classifier = make(method, descriptor=small_sift(), descriptor_params=None).fit(*grating_set())
    classifier.save(tmp_path / "model")
    assert_same_model(load(tmp_path / "model"), classifier)


@pytest.mark.parametrize(
    "changes",
    [
        {"query_budget": np.int64(20)},
        {"location_weight": np.float32(1.5)},
        {"random_state": np.int64(3)},
        {"descriptor_params": {**SIFT_PARAMS, "step_px": np.int64(7)}},
        {"descriptor_params": {**SIFT_PARAMS, "bin_sizes": np.array([4])}},
    ],
)
def test_save_with_numpy_settings(method, changes, tmp_path):
    """A grid of settings made with NumPy holds NumPy's numbers."""
    classifier = fitted(method, **known(method, changes))
    classifier.save(tmp_path / "model")
    assert_same_model(load(tmp_path / "model"), classifier)


def test_manifest_is_plain_json(method, tmp_path):
    fitted(method).save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["method"] == method
    assert manifest["classes"] == ["direction 0", "direction 1", "direction 2"]
    assert manifest["params"]["descriptor_params"]["step_px"] == 7


def test_save_refuses_to_overwrite(method, tmp_path):
    classifier = fitted(method)
    classifier.save(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="a model is here already"):
        classifier.save(tmp_path / "model")
    other = make(method).fit(grating_set()[0], [0, 0, 1, 1, 2, 2])
    other.save(tmp_path / "model", overwrite=True)
    assert load(tmp_path / "model").classes_.tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "nothing is left beside the model"


@pytest.mark.skipif(os.name == "nt", reason="file names are bytes on POSIX only")
def test_file_name_that_is_no_utf_8(method, tmp_path):
    images, labels = grating_set()
    path = os.path.join(tmp_path, os.fsdecode(b"caf\xe9.png"))
    try:
        Image.fromarray(images[0]).save(path)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    classifier = make(method).fit([path, *images[1:]], labels)
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.predict(queries()[0]).tolist() == labels


def test_a_setting_has_one_default_in_all_methods():
    """scikit-learn wants every setting in every constructor; the defaults of one name must not drift apart."""
    defaults = {}
    for name in CLASSIFIERS:
        for setting, parameter in inspect.signature(resolve(CLASSIFIERS, name, "method")).parameters.items():
            defaults.setdefault(setting, {})[name] = parameter.default
    own = {"C", "beta", "n_levels", "n_samples", "norm", "pooling"}  # what tells the methods apart
    differing = {setting: found for setting, found in defaults.items() if len(set(map(repr, found.values()))) > 1}
    assert set(differing) <= own, differing


def test_which_methods_are_incremental():
    assert sorted(INCREMENTAL) == ["fisher", "fisher-slc", "local-nbnn", "nbnn", "nbnn-log-odds", "pooled-ridge", "slc"]
    made = {name: make(name).make_method(small_sift()) for name in CLASSIFIERS}
    assert {name for name, method in made.items() if method.is_incremental} == INCREMENTAL


@pytest.mark.parametrize(
    "method", sorted(INCREMENTAL - {"fisher", "fisher-slc", "slc"})
)  # whose codes stay those of the first fit
def test_images_added_step_by_step_are_as_fitted_at_once(method, tmp_path):
    images, labels = grating_set(n_classes=3, n_images=3)
    order = [8, 0, 7, 1, 3, 2, 6, 5, 4]  # class 2 first, class 1 last: new classes come between known ones
    images, labels = [images[i] for i in order], [labels[i] for i in order]
    settings = {"alpha": 0.3} if method == "pooled-ridge" else {}  # it would stay that of the first fit
    stepwise = make(method, **settings).partial_fit(images[:3], labels[:3])
    stepwise.decision_function(queries()[0])  # the index is built and used in between
    stepwise.partial_fit(images[3:5], labels[3:5])
    stepwise.save(tmp_path / "model")
    stepwise = load(tmp_path / "model").partial_fit(images[5:], labels[5:])
    at_once = make(method, **settings).fit(images, labels)
    assert np.array_equal(stepwise.decision_function(queries()[0]), at_once.decision_function(queries()[0]))
    assert [image.label for image in stepwise.images_] == [image.label for image in at_once.images_]
    assert stepwise.classes_.tolist() == at_once.classes_.tolist()


@pytest.mark.parametrize("method", sorted(INCREMENTAL))
def test_a_bad_image_changes_nothing_that_was_fitted(method, tmp_path):
    classifier = fitted(method)
    before = classifier.decision_function(queries()[0])
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    with pytest.raises(ImageReadError, match=r"bad\.jpg"):
        classifier.partial_fit([grating(20, seed=5), tmp_path / "bad.jpg"], ["new", "new"])
    with pytest.raises(InvalidInputError, match="labels must be of the kind of 'direction 0'"):
        classifier.partial_fit([grating(20, seed=5)], [7])
    assert np.array_equal(classifier.decision_function(queries()[0]), before)


@pytest.mark.parametrize("method", sorted({*CLASSIFIERS} - {*INCREMENTAL}))
def test_a_method_that_learns_says_that_it_is_not_incremental(method):
    with pytest.raises(InvalidInputError, match=f"method '{method}' learns from all images together; fit it again"):
        fitted(method).partial_fit([grating(20, seed=5)], ["new"])


# ---- scores of images that were not seen ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(CLASSIFIERS))
def test_every_method_gives_probabilities(method, tmp_path):
    images, labels = grating_set(n_images=3)
    classifier = make(method).fit(images, labels)
    try:
        classifier.calibrate()
    except InvalidInputError:
        classifier.calibrate(cross_fitted_scores(classifier, images, labels, n_folds=3))
    found = classifier.predict_proba(queries()[0])
    assert np.allclose(found.sum(axis=1), 1.0)
    assert np.array_equal(classifier.classes_[found.argmax(axis=1)], classifier.predict(queries()[0]))
    classifier.save(tmp_path / "model")
    assert load(tmp_path / "model").predict_proba(queries()[0]).tobytes() == found.tobytes()

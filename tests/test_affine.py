"""The affine correction: by hand, against slow versions of its formulas, and on distances made unequal on purpose."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from synthetic import grating_set, make_features, small_sift

from lnbnn import NBNN, AffineNBNN, load
from lnbnn.errors import InvalidInputError, ModelFormatError
from lnbnn.lab.records import read_record
from lnbnn.methods.affine_correction import apply_affine, cross_fit_affine, fit_affine, hinge_objective
from lnbnn.trust.evidence import explain

HERE = Path(__file__).resolve().parent.parent


def made_distances(n_classes=4, n_images=6, *, offsets=0.0, seed=0, noise=1.0):
    """Image-to-class distances near 20, lower for the true class, plus an offset a class; and the labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), n_images)
    distances = 20.0 + rng.normal(0, 2.0, (len(labels), 1)) + rng.normal(0, noise, (len(labels), n_classes))
    distances[np.arange(len(labels)), labels] -= 4.0
    return distances + offsets, labels


def share_right(distances, labels):
    return float(np.mean(distances.argmin(axis=1) == labels))


# ---- the learning problem --------------------------------------------------------------------------------------------


def test_by_hand():
    # Two classes, two images each. Distances to (a, b):  a: (5, 4), (5, 4);  b: (7, 2), (7, 2).
    # NBNN answers b for all. Gaps |d_wrong - d_true|: 1, 1, 5, 5, so the margin is 3. Without correction the hinge of
    # the images of a is 3 + 5 - 4 = 4, of b max(0, 3 + 2 - 7) = 0: mean 2, over the margin 2/3.
    distances = np.array([[5.0, 4.0], [5.0, 4.0], [7.0, 2.0], [7.0, 2.0]])
    labels = np.array([0, 0, 1, 1])
    identity = np.ones(2), np.zeros(2)
    assert hinge_objective(distances, labels, *identity, regularization=0.01) == pytest.approx(2 / 3)
    # A shift of a by -2 costs nothing for b (margin 3 = 5 - 2) and halves the loss of a: 2 -> 1, over 3.
    # The penalty: lambda / 2 classes * |shift| 2 / margin 3.
    shifted = hinge_objective(distances, labels, np.ones(2), np.array([-2.0, 0.0]), regularization=0.01)
    assert shifted == pytest.approx(1 / 3 + 0.01 / 2 * 2 / 3)
    alpha, beta = fit_affine(distances, labels, regularization=0.01)
    assert hinge_objective(distances, labels, alpha, beta, regularization=0.01) <= shifted
    assert apply_affine(distances, alpha, beta).argmin(axis=1).tolist() == [0, 0, 1, 1]


def slow_objective(distances, labels, alpha, beta, regularization, balance):
    """The formula in the notes of ``fit_affine``, loop by loop."""
    n_images, n_classes = distances.shape
    gaps = [abs(distances[j, c] - distances[j, labels[j]]) for j in range(n_images) for c in range(n_classes)]
    margin = sum(gaps) / (n_images * (n_classes - 1))
    counts = {c: sum(labels == c) for c in range(n_classes)}
    weights = [1.0 / counts[labels[j]] ** balance for j in range(n_images)]
    loss = 0.0
    for j in range(n_images):
        y = labels[j]
        own = alpha[y] * distances[j, y] + beta[y]
        others = [max(0.0, margin + own - alpha[c] * distances[j, c] - beta[c]) for c in range(n_classes) if c != y]
        loss += weights[j] / sum(weights) * sum(others) / (n_classes - 1)
    m, sd = distances.mean(), distances.std()
    penalty = sum(abs(alpha[c] - 1) * sd + abs(alpha[c] * m + beta[c] - m) for c in range(n_classes))
    return (loss + regularization / n_classes * penalty) / margin


def whole_programme(distances, labels, regularization, balance):
    """The lowest objective by the primal programme with every constraint and a dense matrix."""
    n_images, n_classes = distances.shape
    own = distances[np.arange(n_images), labels]
    margin = np.abs(distances - own[:, None]).sum() / (n_images * (n_classes - 1))
    weights = 1.0 / np.bincount(labels)[labels] ** balance
    weights = weights / weights.sum() / (n_classes - 1) / margin
    pairs = [(j, c) for j in range(n_images) for c in range(n_classes) if c != labels[j]]
    n = n_classes  # columns: alpha, beta, |alpha - 1|, |shift|, slacks
    rows, bounds = [], []
    for number, (j, c) in enumerate(pairs):
        row = np.zeros(4 * n + len(pairs))
        row[labels[j]], row[n + labels[j]] = own[j], 1.0
        row[c], row[n + c] = -distances[j, c], -1.0
        row[4 * n + number] = -1.0
        rows.append(row)
        bounds.append(-margin)
    m = distances.mean()
    for c in range(n):
        for sign in (1.0, -1.0):
            row = np.zeros(4 * n + len(pairs))
            row[c], row[2 * n + c] = sign, -1.0
            rows.append(row)
            bounds.append(sign)
            row = np.zeros(4 * n + len(pairs))
            row[c], row[n + c], row[3 * n + c] = sign * m, sign, -1.0
            rows.append(row)
            bounds.append(sign * m)
    price = regularization / n_classes / margin
    cost = [np.zeros(2 * n), np.full(n, price * distances.std()), np.full(n, price), [weights[j] for j, _ in pairs]]
    limits = [(0, None)] * n + [(None, None)] * n + [(0, None)] * (2 * n + len(pairs))
    return linprog(np.concatenate(cost), A_ub=np.array(rows), b_ub=bounds, bounds=limits, method="highs").fun


@pytest.mark.parametrize("balance", [0, 0.5, 1])
@pytest.mark.parametrize("regularization", [0.003, 0.1])
@pytest.mark.parametrize("n_classes", [2, 5, 14])
def test_against_the_whole_programme(n_classes, regularization, balance):
    offsets = np.linspace(-3, 3, n_classes)
    distances, labels = made_distances(n_classes, 5, offsets=offsets, seed=n_classes, noise=2.0)
    distances, labels = distances[3:], labels[3:]  # unequal: two images in the first class
    choices = {"regularization": regularization, "balance": balance}
    alpha, beta = fit_affine(distances, labels, **choices)
    found = hinge_objective(distances, labels, alpha, beta, **choices)
    assert alpha.min() >= 0.0
    assert found == pytest.approx(slow_objective(distances, labels, alpha, beta, regularization, balance))
    assert found == pytest.approx(whole_programme(distances, labels, regularization, balance), rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_no_other_correction_is_better(seed):
    rng = np.random.default_rng(seed)
    distances, labels = made_distances(3, 4, offsets=rng.normal(0, 3, 3), seed=seed)
    best = hinge_objective(distances, labels, *fit_affine(distances, labels))
    for _ in range(20):
        other = np.abs(rng.normal(1, 0.3, 3)), rng.normal(0, 4, 3)
        assert best <= hinge_objective(distances, labels, *other) + 1e-9


@pytest.mark.parametrize("offset", [-6.0, 6.0])
def test_an_offset_of_a_class_is_corrected(offset):
    offsets = np.array([0.0, 0.0, offset, 0.0])
    distances, labels = made_distances(n_images=12, offsets=offsets)
    unseen, unseen_labels = made_distances(n_images=30, offsets=offsets, seed=1)
    alpha, beta = fit_affine(distances, labels)
    plain, corrected = share_right(unseen, unseen_labels), share_right(apply_affine(unseen, alpha, beta), unseen_labels)
    fair = share_right(unseen - offsets, unseen_labels)
    assert plain < 0.8
    assert corrected > fair - 0.05


def test_a_factor_of_a_class_is_corrected():
    factors = np.array([1.0, 1.5, 1.0, 0.7])
    distances, labels = made_distances(n_images=20)
    unseen, unseen_labels = made_distances(n_images=30, seed=1)
    alpha, beta = fit_affine(distances * factors, labels, regularization=0.001)
    assert share_right(unseen * factors, unseen_labels) < 0.5
    assert share_right(apply_affine(unseen * factors, alpha, beta), unseen_labels) > 0.9


def test_units_do_not_matter():
    distances, labels = made_distances(offsets=np.array([3.0, 0.0, 0.0, -3.0]))
    alpha, beta = fit_affine(distances, labels)
    scaled_alpha, scaled_beta = fit_affine(distances * 1000.0, labels)
    assert np.allclose(scaled_alpha, alpha)
    assert np.allclose(scaled_beta, 1000.0 * beta, atol=1e-6)


def test_order_of_the_images_does_not_matter():
    distances, labels = made_distances(offsets=np.array([3.0, 0.0, 0.0, -3.0]))
    order = np.random.default_rng(0).permutation(len(labels))
    for first, second in zip(fit_affine(distances, labels), fit_affine(distances[order], labels[order]), strict=True):
        assert first.tobytes() == second.tobytes()
    cross = cross_fit_affine(distances, labels)
    assert np.array_equal(cross_fit_affine(distances[order], labels[order]), cross[order])


def test_strong_regularization_leaves_the_distances_alone():
    distances, labels = made_distances(offsets=np.array([3.0, 0.0, 0.0, -3.0]))
    alpha, beta = fit_affine(distances, labels, regularization=1e6)
    assert alpha.tolist() == [1.0] * 4
    assert beta.tolist() == [0.0] * 4


def test_a_large_class_does_not_decide_alone_when_balanced():
    # Class 0 is too near for all. Its own images gain from that, and they are many.
    distances, labels = made_distances(2, 40, offsets=np.array([-4.0, 0.0]), noise=5.0)
    distances, labels = distances[:48], labels[:48]
    unseen, _ = made_distances(2, 100, offsets=np.array([-4.0, 0.0]), noise=5.0, seed=1)
    shares = []
    for balance in (1, 0):
        alpha, beta = fit_affine(distances, labels, balance=balance)
        answers = apply_affine(unseen, alpha, beta).argmin(axis=1)
        shares.append(np.mean(answers == 0))
    assert abs(shares[0] - 0.5) < abs(shares[1] - 0.5)


def test_a_class_of_one_image_is_left_alone():
    distances, labels = made_distances(offsets=np.array([5.0, 0.0, 0.0, 0.0]))
    distances, labels = distances[:-5], labels[:-5]  # one image of class 3, far from it once left out
    distances[-1, 3] = 1000.0
    alpha, beta = fit_affine(distances, labels)
    assert (alpha[3], beta[3]) == (1.0, 0.0)
    assert beta[0] < -1.0 or alpha[0] < 1.0
    without = distances[:-1].copy(), labels[:-1]
    assert np.array_equal(fit_affine(*without)[0], alpha)


@pytest.mark.parametrize(
    ("distances", "labels"),
    [(np.ones((4, 1)), np.zeros(4, int)), (np.ones((3, 3)), np.arange(3)), (np.ones((4, 2)), np.array([0, 0, 1, 1]))],
)
def test_nothing_to_learn_from(distances, labels):
    alpha, beta = fit_affine(distances, labels)
    assert (alpha == 1.0).all()
    assert (beta == 0.0).all()


def test_cross_fitting_has_not_seen_the_image():
    distances, labels = made_distances(offsets=np.array([3.0, 0.0, 0.0, -3.0]))
    expected = cross_fit_affine(distances, labels, n_folds=len(labels))
    rest = np.arange(len(labels)) != 7
    alone = apply_affine(distances[7], *fit_affine(distances[rest], labels[rest]))
    assert np.allclose(expected[7], alone)


def test_inputs_are_not_changed():
    distances, labels = made_distances()
    copy = distances.copy()
    distances.flags.writeable = labels.flags.writeable = False
    fit_affine(distances, labels)
    assert np.array_equal(distances, copy)


@pytest.mark.parametrize(
    ("distances", "labels", "choices", "message"),
    [
        (np.ones(4), np.zeros(4, int), {}, r"shape \(n_images, n_classes\)"),
        (np.ones((4, 2)), np.zeros(3, int), {}, r"got shapes \(4, 2\) and \(3,\)"),
        (np.full((4, 2), np.inf), np.zeros(4, int), {}, "distances must be finite"),
        (np.ones((4, 2)), np.array([0, 1, 2, 0]), {}, "labels must be from 0 to 1; got 0 to 2"),
        (np.ones((4, 2)), np.zeros(4, int), {"regularization": 0.0}, "regularization must be a number above 0; got 0"),
    ],
)
def test_bad_input(distances, labels, choices, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_affine(distances, labels, **choices)


# ---- the classifier --------------------------------------------------------------------------------------------------


def unequal_features(seed=0):
    """Two classes of overlapping descriptors: 2 images of "small", 12 of "large"; and 20 of each to ask for."""
    rng = np.random.default_rng(seed)

    def image(label):
        centre = {"small": 0.0, "large": 1.0}[label]
        return make_features(rng.normal(centre, 2.0, (20, 4)).astype(np.float32))

    train = ["small"] * 3 + ["large"] * 15
    test = ["small"] * 20 + ["large"] * 20
    return [image(label) for label in train], train, [image(label) for label in test], test


def affine(**changes):
    return AffineNBNN(**{"location_weight": 0, "index": "exact", "n_jobs": 1, **changes})


def test_plain_nbnn_leans_to_the_large_class_and_the_correction_does_not():
    train, labels, test, truth = unequal_features()
    plain = NBNN(location_weight=0, index="exact").fit(train, labels).predict(test)
    corrected = affine().fit(train, labels).predict(test)
    assert np.mean(plain == "large") > 0.9
    assert abs(np.mean(corrected == "large") - 0.5) < 0.2
    assert np.mean(corrected == truth) > np.mean(plain == truth) + 0.2


def test_without_correction_it_is_nbnn():
    images, labels = grating_set(n_images=3)
    classifier = affine(regularization=1e9, descriptor=small_sift()).fit(images, labels)
    assert classifier.alpha_.tolist() == [1.0] * 3
    queries = grating_set(seed=9)[0]
    plain = NBNN(location_weight=0, index="exact", descriptor=small_sift()).fit(images, labels).totals(queries)
    n = len(classifier.query_features(queries[0]))
    assert np.allclose(classifier.totals(queries), plain / n)
    assert np.array_equal(np.argsort(classifier.totals(queries)), np.argsort(plain))


def test_totals_are_the_formula():
    train, labels, test, _ = unequal_features()
    classifier = affine(query_budget=7).fit(train, labels)
    totals = classifier.totals(test[:3])
    for row, image in enumerate(test[:3]):
        queries = classifier.query_features(image).descriptors
        assert len(queries) == 7
        for place, label in enumerate(classifier.classes_):
            own = np.vstack([f.descriptors for f, y in zip(train, labels, strict=True) if y == label])
            nearest = ((queries[:, None] - own[None]) ** 2).sum(axis=2).min(axis=1)
            expected = classifier.alpha_[place] * nearest.mean() + classifier.beta_[place]
            assert totals[row, place] == pytest.approx(expected, rel=1e-5)


def test_parameters_come_from_distances_with_every_class_one_image_short():
    train, labels, _, _ = unequal_features()
    classifier = affine().fit(train, labels)
    places = classifier.places_
    found = classifier.reference_distances_
    plain = NBNN(location_weight=0, index="exact").fit(train, labels)
    own = np.arange(len(train)), places
    assert np.allclose(found[own], plain.reference_totals()[own] / 20)  # its own class lacks the image itself
    short = {label: set() for label in (0, 1)}
    for row, image in enumerate(train):
        other = 1 - places[row]
        members = np.flatnonzero(places == other)
        gaps = [
            ((image.descriptors[:, None] - train[i].descriptors[None]) ** 2).sum(axis=2).min(axis=1) for i in members
        ]
        choices = [np.mean(np.min(np.delete(gaps, i, axis=0), axis=0)) for i in range(len(members))]
        fits = np.flatnonzero(np.isclose(found[row, other], choices))
        assert len(fits)  # the other class lacks one of its images
        if len(fits) == 1:
            short[other].add(int(fits[0]))
    # In turn: the 3 small images miss 3 different ones of the 15 large, the 15 large ones each of the 3 small.
    assert [len(short[0]), len(short[1])] == [3, 3]
    alpha, beta = fit_affine(found, places)
    assert np.array_equal(classifier.alpha_, alpha)
    assert np.array_equal(classifier.beta_, beta)


def test_what_is_learnt_does_not_depend_on_the_order_of_the_images():
    train, labels, _, _ = unequal_features()
    order = np.random.default_rng(0).permutation(len(train))
    first = affine().fit(train, labels)
    second = affine().fit([train[i] for i in order], [labels[i] for i in order])
    assert np.allclose(first.reference_distances_[order], second.reference_distances_)
    assert np.allclose(first.alpha_, second.alpha_)
    assert np.allclose(first.beta_, second.beta_)


def test_a_class_of_one_image_stays_whole_for_the_others():
    train, labels, _, _ = unequal_features()
    classifier = affine().fit(train[2:], labels[2:])
    plain = NBNN(location_weight=0, index="exact").fit(train[2:], labels[2:])
    lone = classifier.classes_.tolist().index("small")
    assert np.allclose(classifier.reference_distances_[1:, lone], plain.reference_totals()[1:, lone] / 20)
    assert (classifier.alpha_[lone], classifier.beta_[lone]) == (1.0, 0.0)


def test_saved_and_loaded(tmp_path):
    train, labels, test, _ = unequal_features()
    classifier = affine(balance=0.25, regularization=0.05).fit(train, labels)
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.balance == 0.25
    for name in ("alpha_", "beta_", "reference_distances_"):
        assert getattr(again, name).tobytes() == getattr(classifier, name).tobytes()
    assert again.totals(test).tobytes() == classifier.totals(test).tobytes()


@pytest.mark.parametrize("value", [np.ones(3), np.array([1.0, np.nan])])
def test_damaged_correction(tmp_path, value):
    train, labels, _, _ = unequal_features()
    classifier = affine().fit(train, labels)
    classifier.method_.alpha = value
    classifier.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match=r"alpha\.npy does not fit the classes and images; fit the model again"):
        load(tmp_path / "model")


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "strong", True, None])
def test_bad_regularization(value):
    with pytest.raises(InvalidInputError, match="regularization must be a number above 0"):
        affine(regularization=value).fit(*grating_set())


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "even", True, None])
def test_bad_balance(value):
    with pytest.raises(InvalidInputError, match="balance must be a number from 0 to 1"):
        affine(balance=value).fit(*grating_set())


def test_evidence_sums_to_the_difference_of_the_totals():
    images, labels = grating_set(n_images=3)
    classifier = affine(descriptor=small_sift()).fit(images, labels)
    query = grating_set(seed=9)[0][0]
    evidence = explain(classifier, query, label="direction 0", against="direction 1")
    totals = classifier.totals([query])[0]
    assert evidence.support.sum() == pytest.approx(totals[1] - totals[0])


def test_defaults_are_those_chosen_on_training_images():
    record = read_record(HERE / "results" / "unequal-choice.json")
    rows, chosen = record.results["settings"], record.results["chosen"]
    best = max(row["accuracy"] for row in rows)
    equal = [row for row in rows[1:] if row["accuracy"] >= best - record.settings["tolerance"]]
    assert chosen == min(equal, key=lambda row: abs(row["answers_large"] - 50))
    assert chosen["left_out"] == "one of each class"
    for defaults in (AffineNBNN().get_params(), signature_of(fit_affine), signature_of(cross_fit_affine)):
        assert (defaults["regularization"], defaults["balance"]) == (chosen["regularization"], chosen["balance"])
    page = (HERE / "docs" / "unequal-classes.md").read_text(encoding="utf-8")
    shown = [row for row in rows if row["regularization"] in (None, chosen["regularization"])]
    for row in shown:
        figures = [row[name] for name in ("accuracy", "accuracy_small", "accuracy_large", "answers_large")]
        assert f"| {' | '.join(f'{value:.1f}' for value in figures)} |" in page, row


def signature_of(function):
    return {name: value.default for name, value in inspect.signature(function).parameters.items()}


def test_documented_figures_are_the_record():
    record = read_record(HERE / "results" / "unequal.json").results
    page = (HERE / "docs" / "unequal-classes.md").read_text(encoding="utf-8")
    for method, figures in record.items():
        if method != "runs":
            assert f"| {' | '.join(f'{value:.1f}' for value in figures.values())} |" in page, method
    assert record["nbnn"]["answers_large"] > 80, "plain NBNN leans to the large classes"
    assert record["nbnn-affine"]["accuracy"] > record["nbnn"]["accuracy"] + 5
    for method in ("nbnn", "nbnn-affine"):
        for measure, value in record[method].items():
            mean = np.mean([run[method][measure] for run in record["runs"]])
            assert value == pytest.approx(mean, abs=0.006)

"""Parts that several experiments share, by hand: responses with each image left out, kernels on them, times."""

from types import SimpleNamespace

import numpy as np
import pytest
from tiny_lab import PLAIN, TinyLab, grating_lab, image

from lnbnn.classifiers.kernels import LocalNBNNKernel
from lnbnn.lab import figure_computation, figure_scaling, parts
from lnbnn.lab.base import Part
from lnbnn.lab.parts import (
    accuracy,
    full_params,
    kernel_part,
    per_class,
    response_rows,
    responses_part,
    scores_part,
    timed_totals,
)
from lnbnn.scoring import Updates

SPLIT = {"n_train": 2, "n_test": 1, "seed": 0}
LINE = {"a": [image((1, 0)), image((4, 0))], "b": [image((2, 0)), image((7, 0))]}
ASKED = {"a": [image((0, 0))], "b": [image((9, 0))]}


@pytest.fixture
def line(tmp_path):
    """Reference descriptors at 1 and 4 (class a), 2 and 7 (class b); queries at 0 (a) and 9 (b)."""
    return TinyLab(tmp_path, LINE, ASKED)


def test_responses_by_hand(line):
    found = line.get(responses_part("local-nbnn", SPLIT, PLAIN | {"n_neighbors": 1}))
    # k = 1. The query at 0 finds a at 1, then b at 4: a is 1 - 4. The one at 9 finds b at 4, then a at 25.
    assert found["totals"][:, 0].tolist() == [[-3.0, 0.0], [0.0, -21.0]]
    assert (found["truth"].tolist(), found["labels"].tolist()) == ([0, 1], [0, 0, 1, 1])
    # Each reference with itself left out: 1 finds b at 1, then a at 9; 4 finds b at 4, then 9; 2 finds a at 1, then 4;
    # 7 finds a at 9, then b at 25.
    assert found["reference_totals"][:, 0].tolist() == [[0.0, -8.0], [0.0, -5.0], [-3.0, 0.0], [-16.0, 0.0]]
    assert (found["n_descriptors"].tolist(), found["n_reference_descriptors"].tolist()) == ([1, 1], [1, 1, 1, 1])
    assert found["totals"].shape == (2, 5, 2)


def test_quarters_by_hand(tmp_path):
    # Alike but for the place: top right and bottom left. Three quarters of an image without descriptors are zero.
    train = {"a": [image((1, 0), xy=(0.9, 0.1))], "b": [image((9, 0), xy=(0.1, 0.9))]}
    lab = TinyLab(tmp_path, train, {"a": [image((1, 0), xy=(0.9, 0.1))]})
    found = lab.get(responses_part("nbnn", SPLIT, PLAIN | {"location_weight": 1.0}))
    whole, *quarters = found["totals"][0]
    assert whole[0] == 0.0 < whole[1]
    assert np.array_equal(quarters[1], whole)
    assert not np.any([quarters[0], quarters[2], quarters[3]])


def test_rows_of_responses_by_hand():
    totals = np.array([[[-3.0, -1.0], [-4.0, 3.0]]])
    own, rows = response_rows(totals, np.array([2]), "mean", 2)
    assert own.tolist() == [[1.0, -1.0]]  # of the whole image, standardized, higher is better
    assert rows.tolist() == [[-1.5, -0.5, -2.0, 1.5]]
    assert response_rows(totals, np.array([2]), "mean", 1)[1].tolist() == [[-1.5, -0.5]]


def kept_responses(lab, monkeypatch):
    """Responses of which the references' say the class plainly, and the queries' are swapped."""
    labels = np.repeat([0, 1], 6)
    known = np.where(np.eye(2)[labels], -5.0, -1.0) + np.linspace(0.0, 0.1, 24).reshape(12, 2)
    kept = {"labels": labels, "truth": np.array([0, 1]), "n_descriptors": np.array([1, 1])}
    kept |= {"reference_totals": np.repeat(known[:, None], 5, axis=1), "n_reference_descriptors": np.ones(12, int)}
    kept |= {"totals": np.repeat(np.array([[-1.0, -5.0], [-5.0, -1.0]])[:, None], 5, axis=1)}
    responses = responses_part("local-nbnn", SPLIT, PLAIN)
    monkeypatch.setattr(lab, "get", lambda part: kept if part is responses else pytest.fail("another part"))
    return responses


@pytest.mark.parametrize(
    "how", [{"machine": "svm", "blend": 0.0}, {"machine": "logistic"}, {"response": "unit", "levels": 2}]
)
def test_a_kernel_learns_from_the_references_and_scores_the_queries(line, monkeypatch, how):
    part = kernel_part("local-nbnn-kernel", how, kept_responses(line, monkeypatch))
    found = part.compute(line, part.settings)
    assert np.argmax(found["scores"], axis=1).tolist() == [1, 0]  # swapped: what the queries' responses say
    assert found["totals"].tolist() == [[-1.0, -5.0], [-5.0, -1.0]]
    assert found["truth"].tolist() == [0, 1]
    if how.get("blend") == 0.0:
        assert found["chosen"][1] == 0.0


def test_kernels_use_the_cells_and_the_blend_they_are_told(line, monkeypatch):
    seen = []
    train = parts.train_linear_classifier

    def spied(own, rows, labels, **how):
        seen.append((rows.shape, how["blend"], how["kind"]))
        return train(own, rows, labels, **how)

    monkeypatch.setattr(parts, "train_linear_classifier", spied)
    responses = kept_responses(line, monkeypatch)
    for how in ({"levels": 1, "blend": 0.0, "machine": "svm"}, {"levels": 2}):
        part = kernel_part("local-nbnn-kernel", how, responses)
        part.compute(line, part.settings)
    assert seen == [((12, 2), 0.0, "svm"), ((12, 10), None, "logistic")]


def test_scores_of_a_method_by_hand(line):
    found = line.get(scores_part("nbnn", SPLIT, PLAIN))
    assert found["truth"].tolist() == [0, 1]
    assert found["scores"].tolist() == [[-1.0, -4.0], [-25.0, -4.0]]  # the nearest of each class, less is better


class Clock:
    """CPU time that passes only when told."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(parts.time, "process_time", lambda: self.now)

    def spend(self, seconds, result=None):
        self.now += seconds
        return result


def test_only_search_and_scoring_are_timed(monkeypatch, line):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(parts, "features_of", lambda path, *_: clock.spend(7.0, path))
    told = []
    line.progress = lambda *words: told.append(words) or clock.spend(3.0)
    costs = [50.0, 0.25, 0.5]  # what is made on first use, then two images

    def updates(path):
        return clock.spend(costs.pop(0), Updates(np.array([[-1.0], [-2.0]]), np.array([[0], [1]])))

    classifier = SimpleNamespace(updates=updates, descriptor_=None, classes_=["a", "b"])
    totals, seconds = timed_totals(classifier, ["x", "y"], line, "asking")
    assert seconds.tolist() == [0.25, 0.5]
    assert totals.tolist() == [[-1.0, -2.0], [-1.0, -2.0]]
    assert told == [("asking", 1, 2), ("asking", 2, 2)]


def test_a_sweep_sets_the_knob_of_the_index(line, monkeypatch):
    pytest.importorskip("pyflann_ibeis")
    checks = []

    def timed(classifier, paths, lab, stage):
        checks.append([index.checks for index, _ in classifier.matching_.indexes()])
        right, wrong = np.array([[-2.0, 0.0], [0.0, -2.0]]), np.array([[-2.0, 0.0], [-2.0, 0.0]])
        return (right if checks[-1][0] == 8 else wrong), np.array([0.002, 0.004])

    monkeypatch.setattr(figure_computation, "timed_totals", timed)
    sweep = ["nbnn", "flann", "checks", [4, 8]]
    (part,) = figure_computation.plan(SPLIT | {"params": PLAIN, "sweeps": [sweep]})
    found = part.compute(line, part.settings)
    assert checks == [[4, 4], [8, 8]]
    assert found["accuracy"].tolist() == [50.0, 100.0]
    assert found["image_seconds"].tolist() == [[0.002, 0.004]] * 2


def test_milliseconds_of_the_sweeps_are_medians():
    names = {"method": "nbnn", "index": "flann", "knob": "checks", "values": [4, 8]}
    arrays = {
        "accuracy": np.array([50.0, 60.126]),
        "image_seconds": np.array([[0.001, 0.002, 0.9], [0.003, 0.003, 0.9]]),
    }
    (curve,) = figure_computation.summarize({}, [(Part("sweep", names, None), arrays)])["curves"]
    assert curve == names | {"accuracy": [50.0, 60.13], "cpu_ms": [2.0, 3.0]}
    table = figure_computation.tabulate({"curves": [curve]}).splitlines()
    assert table[3] == "| `nbnn` | `flann` | checks 8 | 60.1 | 3.0 |"


def scaling_outcomes():
    """NBNN takes 10 ms per class; Local NBNN 4 ms at 2 classes and 5 ms at 4."""
    for method, index, seconds in (("local-nbnn", "faiss", [0.004, 0.005]), ("nbnn", "flann", [0.02, 0.04])):
        part = Part("classes", {"method": method, "index": index, "index_params": {}}, None)
        image_seconds = np.array([[second, second, 9.0] for second in seconds])
        yield part, {"n_classes": np.array([2, 4]), "image_seconds": image_seconds}


def test_scaling_by_hand():
    results = figure_scaling.summarize({}, list(scaling_outcomes()))
    local, nbnn = results["curves"]
    assert (local["cpu_ms"], nbnn["cpu_ms"]) == ([4.0, 5.0], [20.0, 40.0])
    assert nbnn["exponent"] == 1.0
    assert results["nbnn_to_local_at_the_right_end"] == {"local-nbnn faiss": 8.0}
    table = figure_scaling.tabulate(results).splitlines()
    assert table[0] == "| method | index | 2 classes | 4 classes | grows as n^p, p | times NBNN's speed |"
    assert table[2].endswith(" | (8.0 across engines) |")
    assert table[3] == "| `nbnn` | `flann` | 20.0 ms | 40.0 ms | 1.00 |  |"


def test_scaling_asks_the_same_images_of_the_first_two_classes(tmp_path, monkeypatch):
    train = {label: [image((place, 0)), image((place, 9))] for place, label in enumerate("abcd")}
    lab = TinyLab(tmp_path, train, {label: [image((place, 0))] for place, label in enumerate("abcd")})
    monkeypatch.setattr(lab, "shuffled_classes", lambda seed: list("cadb"))
    asked = []

    def timed(classifier, paths, lab, stage):
        asked.append((list(classifier.classes_), [one.descriptors[0, 0] for one in paths], stage))
        return None, np.full(len(paths), 0.5)

    monkeypatch.setattr(figure_scaling, "timed_totals", timed)
    runs = [["nbnn", "exact", {}]]
    (part,) = figure_scaling.plan(SPLIT | {"n_classes": [2, 3, 9], "params": PLAIN, "runs": runs})
    found = part.compute(lab, part.settings)
    assert found["n_classes"].tolist() == [2, 3]
    assert asked == [(["a", "c"], [0, 2], "2 classes"), (["a", "c", "d"], [0, 2], "3 classes")]
    assert found["image_seconds"].tolist() == [[0.5, 0.5]] * 2


@pytest.mark.parametrize("module", [figure_computation, figure_scaling])
def test_curves_are_drawn_as_they_are(module):
    curve = {"method": "nbnn", "index": "flann", "knob": "checks", "values": [4, 8], "accuracy": [50.0, 60.0]}
    curve |= {"cpu_ms": [20.0, 40.0], "n_classes": [2, 4], "exponent": 1.0}
    (axes,) = module.draw({"curves": [curve]}).axes
    x, y = ("cpu_ms", "accuracy") if module is figure_computation else ("n_classes", "cpu_ms")
    assert list(axes.lines[0].get_xdata()) == curve[x]
    assert list(axes.lines[0].get_ydata()) == curve[y]


@pytest.mark.parametrize(
    ("times", "exponent", "exact"),
    [(lambda n: 3.0 * n, 1.0, "linear_error"), (lambda n: 2.0 + np.log(n), None, "log_error")],
)
def test_growth_by_hand(times, exponent, exact):
    n = np.array([2.0, 4.0, 8.0, 16.0])
    found = figure_scaling.growth(n, times(n))
    other = {"linear_error": "log_error", "log_error": "linear_error"}[exact]
    assert found[exact] == 0.0
    assert found[other] > 0.05
    assert found["exponent"] < 0.5 if exponent is None else found["exponent"] == exponent


def test_accuracy_by_hand():
    # Class 0: one of two right; class 1: one of one. The mean over the classes is 75 %.
    scores, truth = np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 3.0]]), np.array([0, 0, 1])
    assert accuracy(scores, truth) == 75.0
    assert per_class(scores, truth).tolist() == [0.5, 1.0]


def test_a_changed_default_is_another_part():
    params = full_params("local-nbnn", {"n_neighbors": 3})
    assert params["n_neighbors"] == 3
    assert params["location_weight"] == 1.6
    assert params["descriptor_params"]["longest_side"] == 300
    assert "n_probes" in params["index_params"]


@pytest.mark.parametrize("kind", ["logistic", "svm"])
def test_kernel_part_scores_as_the_kernel_itself(tmp_path, kind):
    lab = grating_lab(tmp_path)
    params = {"index": "exact", "descriptor_params": {"bin_sizes": [4], "step_px": 7, "longest_side": 48}}
    split = {"n_train": 4, "n_test": 2, "seed": 0}
    arrays = lab.get(kernel_part("local-nbnn-kernel", {"machine": kind}, responses_part("local-nbnn", split, params)))
    train, test = lab.split_of({"n_train": 4, "n_test": 2, "seed": 0})
    kernel = LocalNBNNKernel(classifier=kind, **params).fit(train.paths, train.labels)
    assert arrays["totals"] == pytest.approx(kernel.totals(test.paths), rel=1e-5)
    assert arrays["scores"] == pytest.approx(kernel.decision_function(test.paths), rel=1e-3, abs=1e-3)
    assert accuracy(-arrays["totals"], arrays["truth"]) == 100.0

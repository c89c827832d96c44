"""Finding settings by images held out."""

from __future__ import annotations

import json

import pytest
from networks import mean_network, write_network
from PIL import Image
from synthetic import grating_set

from lnbnn.data.folder import read_images
from lnbnn.errors import InvalidInputError
from lnbnn.lab import tuning
from lnbnn.lab.tuning import Trial, best_of, tune

SMALL = {"bin_sizes": [4], "min_contrast": 0.5, "longest_side": 64}


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Three classes of three gratings, and two quick grids to try."""
    monkeypatch.setattr(tuning, "GRIDS", ({**SMALL, "step_px": 4}, {**SMALL, "step_px": 12}))
    for number, (image, label) in enumerate(zip(*grating_set(n_images=3), strict=True)):
        (tmp_path / "photos" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "photos" / label / f"{number}.png")
    return tmp_path / "photos"


def trial(accuracy, ms, name="x"):
    return Trial({"name": name}, accuracy, ms, 1)


def test_best_by_hand():
    trials = [trial(0.9, 30), trial(0.8, 10), trial(0.8, 12), trial(0.5, 2)]
    assert best_of(trials) == trials[0]
    assert best_of(trials, max_ms=20) == trials[1], "of equally accurate ones the quicker"
    assert best_of(trials, max_ms=2) == trials[3]
    assert best_of(trials, max_ms=1) == trials[3], "nothing is that quick: the quickest"


def test_every_combination_is_tried(photos):
    counts = []
    trials = list(tune(read_images(photos), n_jobs=1, progress=lambda _, done, total: counts.append((done, total))))
    assert len(trials) == 2 * (3 + 3)
    assert counts == [(n, 12) for n in range(1, 13)]
    assert all(0 <= found.accuracy <= 1 and found.ms_per_image > 0 for found in trials)
    assert max(found.accuracy for found in trials) == 1.0, "gratings are told apart"
    weights = [found.settings["location_weight"] for found in trials[:3]]
    assert weights == [1.6, 0.8, 0.0]
    assert trials[5].settings.keys() == {
        "descriptor_params",
        "location_weight",
        "query_budget",
        "stop_confidence",
        "index_params",
    }
    assert trials[0].memory_bytes > trials[6].memory_bytes, "the coarser grid takes less"


def test_grids_beyond_the_memory_are_left_out(photos):
    images = read_images(photos)
    free = list(tune(images, n_jobs=1))
    limit = (free[0].memory_bytes + free[6].memory_bytes) // 2
    kept = list(tune(images, n_jobs=1, max_memory=limit))
    assert [found.settings["descriptor_params"]["step_px"] for found in kept] == [12] * 6
    with pytest.raises(InvalidInputError, match="no grid keeps a fit of these images within the limit"):
        list(tune(images, n_jobs=1, max_memory=1000))


def test_the_command_ends_with_a_command_that_works(photos, tmp_path, run):
    outcome = run("tune", photos, "--format", "json", "--jobs", 1)
    trials = [json.loads(line) for line in outcome.out.splitlines()]
    assert len(trials) == 12
    words = outcome.err.split()
    start = words.index("fit")
    assert words[start - 1] == "lnbnn"
    options = [word if word != "MODEL" else tmp_path / "model" for word in words[start:]]
    assert run(*options).code == 0
    assert "accuracy" in run("tune", photos, "--jobs", 1, "--max-ms", 0).out


def test_layer_size_place_and_k_of_a_network_are_tried(photos, tmp_path):
    path = write_network(tmp_path / "net.onnx", mean_network())
    trials = list(tune(read_images(photos), descriptor=f"onnx:{path}", n_jobs=1))
    assert len(trials) == 2 * (3 + 2)
    assert {found.settings["descriptor"] for found in trials} == {f"onnx:{path}"}
    assert {found.settings["descriptor_params"]["longest_side"] for found in trials} == {64, 48}
    assert [found.settings.get("n_neighbors") for found in trials[:5]] == [None, None, None, 20, 5]


def test_deep_stands_for_its_layers():
    choices, _ = tuning._choices("deep")
    assert [choice["descriptor"] for choice in choices] == ["deep", "deep", "deep@stage6", "deep@stage6"]
    assert [choice["descriptor_params"] for choice in choices] == [{"longest_side": 288}, {"longest_side": 216}] * 2
    choices, _ = tuning._choices("root-sift")
    assert {choice["descriptor"] for choice in choices} == {"root-sift"}


def test_a_network_of_a_fixed_size_keeps_it(tmp_path):
    path = write_network(tmp_path / "net.onnx", mean_network(sides=(64, 64)))
    assert tuning._choices(f"onnx:{path}")[0] == [{"descriptor": f"onnx:{path}"}]


def test_the_command_names_the_descriptor(photos, tmp_path, run):
    path = write_network(tmp_path / "net.onnx", mean_network())
    outcome = run("tune", photos, "--descriptor", f"onnx:{path}", "--jobs", "1")
    assert outcome.code == 0
    assert f"--descriptor onnx:{path} -D longest_side=" in outcome.err

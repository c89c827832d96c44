"""Every benchmark plans its parts, runs in small, and finds again what it has done."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from synthetic import grating

from lnbnn.data.folder import scan_folder
from lnbnn.lab import EXPERIMENTS, Experiment, Lab
from lnbnn.lab.records import read_record
from lnbnn.lab.reproduce import reproduce

HERE = Path(__file__).resolve().parent.parent
SHARED = {"common", "differences", "write_tables"}
NAMES = sorted({path.stem for path in (HERE / "benchmarks").glob("*.py")} - SHARED)
NETWORKS = {"deep", "deep_choice"}
IN_SMALL = {  # what a run on a few gratings changes in the quick settings; the others start processes or train long
    "dense_sift": {},
    "paper_setup": {},
    "probabilities": {"n_train": 4},
    "responses": {},
    "search": {},
    "spatial_pyramid": {},
    "unequal": {},
    "unequal_choice": {},
    "unknown": {"n_known": 3},
}


sys.path.append(str(HERE / "benchmarks"))


def module_of(name):
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Five classes of gratings, ten images each."""
    folder = tmp_path_factory.mktemp("gratings")
    for place in range(5):
        (folder / f"direction {place}").mkdir()
        for number in range(10):
            image = grating(36.0 * place, seed=100 * place + number, side=44)
            Image.fromarray(image).save(folder / f"direction {place}" / f"{number}.png")
    return scan_folder(folder)


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_is_whole(name):
    if name in NETWORKS:
        pytest.importorskip("onnxruntime")
    experiment = module_of(name).EXPERIMENT
    assert experiment.name == name.replace("_", "-")
    assert experiment.title.splitlines()[0].endswith((".", "?"))
    assert set(experiment.quick) <= set(experiment.settings)
    assert experiment.name not in EXPERIMENTS
    for settings in (experiment.settings, experiment.settings | experiment.quick):
        parts = experiment.plan(settings)
        assert parts
        keys = [json.dumps([part.kind, part.settings], sort_keys=True) for part in parts]
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", IN_SMALL)
def test_a_small_run_is_recorded_and_found_again(name, images, tmp_path):
    pytest.importorskip("skimage")
    experiment = module_of(name).EXPERIMENT
    settings = experiment.settings | experiment.quick | IN_SMALL[name]
    lab = Lab("gratings", images, tmp_path / "runs", n_jobs=1)
    told = []
    done = reproduce(experiment, settings, lab, command="x", output=tmp_path, on_part=told.append)
    assert done.record == read_record(done.path)
    assert not any(status.kept for status in told)
    assert experiment.tabulate(done.record.results).count("|") > 3
    assert (done.picture is not None) == (experiment.draw is not None)
    again = reproduce(experiment, settings, lab, command="x", output=tmp_path, on_part=told.append)
    assert all(status.kept for status in told[len(told) // 2 :])
    assert again.record.results == done.record.results


def test_settings_are_options_and_stand_in_the_command(tmp_path, capsys):
    common = module_of("common")
    experiment = Experiment(
        name="x-y",
        title="X.",
        settings={"n_train": 2, "seeds": [0, 1], "share": 0.5, "loaded": False, "grid": {"a": 1}},
        plan=common.parts_over("x", lambda lab, settings: {"found": settings}, seeds="seed"),
        summarize=lambda settings, outcomes: {"found": [found["found"] for _, found in outcomes]},
        tabulate=lambda results: f"{len(results['found'])} parts",
        dataset="",
    )
    folders = ["--runs", str(tmp_path / "runs"), "--output", str(tmp_path)]
    path = common.run(experiment, ["--train", "3", "--seeds", "4", "5", "--loaded", *folders])
    assert "2 parts" in capsys.readouterr().out
    record = read_record(path)
    assert record.command == "python benchmarks/x_y.py --train 3 --seeds 4 5 --loaded"
    assert record.seeds == [4, 5]
    expected = {"n_train": 3, "share": 0.5, "loaded": True, "grid": {"a": 1}}
    assert record.results["found"] == [expected | {"seed": 4}, expected | {"seed": 5}]


def test_parts_say_all_parameters_of_presets_descriptors_and_recipes():
    plan = module_of("common").parts_over("x", None, presets="preset", ways="way")
    settings = {
        "presets": ["fast"],
        "descriptor": "dense-sift",
        "ways": {"coarse": {"descriptor_params": {"step_px": 12}}, "usual": {}},
        "members": {"a": ["local-nbnn", {"n_neighbors": 3}]},
    }
    coarse, usual = plan(settings)
    assert (coarse.kind, usual.kind) == ("x fast coarse", "x fast usual")
    assert coarse.settings["params"]["query_budget"] == 1000
    assert coarse.settings["descriptor_params"]["step_px"] == 12
    assert usual.settings["descriptor_params"]["step_px"] == 8
    method, params = usual.settings["members"]["a"]
    assert (method, params["n_neighbors"], params["location_weight"]) == ("local-nbnn", 3, 1.6)
    assert "n_probes" in params["index_params"]


def test_means_and_tables_by_hand():
    common = module_of("common")
    runs = [{"a": 1, "b": [1.0, 3.0]}, {"a": 2, "b": [2.0, 3.0]}]
    assert common.mean_of(runs) == {"a": 1.5, "b": [1.5, 3.0]}
    assert common.table("a | b", [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert common.values_of({"x": 1, "y": np.array(2)}) == {"x": 1}


def test_a_process_is_watched():
    common = module_of("common")
    done = common.python("-c", "print('hello')")
    assert (done.text, done.peak_mib > 1, done.wall_s > 0, done.cpu_s > 0) == ("hello\n", True, True, True)
    with pytest.raises(SystemExit, match="ended with 3"):
        common.python("-c", "raise SystemExit(3)")

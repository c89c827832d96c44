"""Every benchmark plans its parts, runs in small, and finds again what it has done."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from synthetic import grating

from lnbnn.data.folder import scan_folder
from lnbnn.lab import EXPERIMENTS, Experiment, Lab
from lnbnn.lab.records import read_record
from lnbnn.lab.reproduce import reproduce

HERE = Path(__file__).resolve().parent.parent
SHARED = {"common", "differences", "paper_figures", "scale", "write_tables", "prose"}
NAMES = sorted({path.stem for path in (HERE / "benchmarks").glob("*.py")} - SHARED)
NETWORKS = {"deep", "deep_choice"}
IN_SMALL = {  # what a run on a few gratings changes in the quick settings; the others start processes or train long
    "dense_sift": {},
    "paper_setup": {},
    "probabilities": {"n_train": 4},
    "responses": {},
    "search": {},
    "sift": {},
    "sift_choice": {},
    "spatial_pyramid": {},
    "unequal": {},
    "unequal_choice": {},
    "unknown": {},
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


def test_memory_of_a_milvus_option_is_what_it_adds_to_an_empty_server():
    module = module_of("milvus_options")
    found = {"n_descriptors": 1 << 20, "build_s": 90, "empty_mib": 200, "resident_mib": 720, "us_a_descriptor": 400.0}
    found |= {"in_files_mib": 80}
    outcome = {**found, "recall": 0.9, "cpu_s": np.zeros(2)}
    results = module.summarize({}, [(SimpleNamespace(settings={"option": "HNSW, mmap"}), outcome)])
    header, _, row = module.tabulate(json.loads(json.dumps(results))).splitlines()[:3]
    assert row == "| `HNSW`, `mmap` | 90 | 720 | 80 | 520 | 400 | 90.0 |"
    assert header.count("|") == row.count("|")
    assert "`DISKANN` is refused by this server" in module.tabulate(results)


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


def test_a_benchmark_takes_another_set(tmp_path, monkeypatch, images):
    common, asked = module_of("common"), []
    monkeypatch.setattr(common, "find_images", lambda dataset, *_, **__: asked.append(dataset) or images)
    plan = common.parts_over("x", lambda lab, settings: {"n": len(lab.data)}, seeds="seed")
    experiment = Experiment("x-y", "X.", {"seeds": [0]}, plan, lambda *_: {}, str)
    folders = ["--runs", str(tmp_path / "runs"), "--output", str(tmp_path)]
    record = read_record(common.run(experiment, ["--dataset", "caltech256", *folders]))
    assert (asked, record.name) == (["caltech256"], "x-y-caltech256")
    assert record.command == "python benchmarks/x_y.py --dataset caltech256"
    assert record.settings["data"]["n_images_published"] == 29780
    assert read_record(common.run(experiment, folders)).command == "python benchmarks/x_y.py"
    assert asked[1] == "caltech101"


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


def preset_split(accuracy, seconds):
    times = dict.fromkeys(("fit_s", "evaluate_s", "predict_first_answer_s"), seconds)
    memory = {"fit_peak_mib": 1024, "evaluate_peak_mib": 1536}
    return {"preset": "fast", "mean_per_class_accuracy": accuracy, "n_descriptors": 2_000_000} | times | memory


def test_presets_by_hand():
    caltech101 = module_of("caltech101")
    found = [preset_split(0.6, 10.0), preset_split(0.7, 11.0), preset_split(0.65, 30.0)]
    outcomes = [(None, split | {"predict_ms_an_image": 14.0, "x": np.zeros(3)}) for split in found]
    results = caltech101.summarize({}, outcomes)
    assert (results["accuracy_mean"], results["accuracy_sd"]) == (65.0, 5.0)
    assert len(results["splits"]) == 3
    assert caltech101.tabulate(results).splitlines()[2] == (
        "| `fast` | 65.0 ± 5.0 (3 splits) | 2.0 million | 11 s | 11 s | 1.5 GiB | 11.0 s | 14 ms |"
    )
    sift = {"ours_ms_median": 8.0, "opencv_ms_median": 200.0, "ratio_median": 31.0}
    sift |= {"kornia_ms_median": 80.0, "kornia_ratio_median": 12.0}
    records = {"dense-sift": SimpleNamespace(results=sift)}
    records["caltech101-balanced-15"] = SimpleNamespace(results=results, machine={"cores": 2, "cpu": "x"})
    said = caltech101.render(records.get)
    assert "takes 8.0 ms per image on one core, 25 times as fast as OpenCV's SIFT on the same grid (200 ms)" in said
    assert "10 times as fast as kornia's (80 ms)" in said


def test_an_accuracy_on_a_few_images_is_not_shown():
    way = {"way": "x", "us_a_descriptor": 2.0, "times_ours": 1.0, "build_cpu_s": 1.0, "accuracy": 100.0}
    ways = [way | {"accuracy_lnbnn_same_images": 90.0, "n_images": n} for n in (30, 3)]
    results = {"ways": ways, "stopping": {"ms_an_image": 1.0, "accuracy": 91.0}}
    results |= {"n_classes": 6, "n_descriptors": 300_000, "queries_an_image": 500}
    rows = module_of("search").tabulate(results).splitlines()[2:4]
    assert rows == [
        "| x | 2 | 1.0 | 1.0 | 100.0 (90.0; 30 images) |",
        "| x | 2 | 1.0 | 1.0 | 3 images: too few to tell |",
    ]


def test_the_authors_setup_by_hand():
    paper_setup = module_of("paper_setup")
    settings = paper_setup.SETTINGS | {"seeds": [0, 1], "rows": dict(list(paper_setup.ROWS.items())[:2])}
    parts = paper_setup.plan(settings)
    assert [part.settings["seed"] for part in parts] == [0, 0, 1, 1]
    right, wrong, truth = np.eye(2), 1 - np.eye(2), np.array([0, 1])
    scores = [right, right, wrong, right]
    outcomes = [
        (part, {"scores": found, "truth": truth, "seconds": np.array(90.0)})
        for part, found in zip(parts, scores, strict=True)
    ]
    results = paper_setup.summarize(settings, outcomes[1:])  # the first is not finished
    six, three = settings["rows"]
    assert results == {
        six: {"accuracy": [0.0], "minutes": [1.5]},
        three: {"accuracy": [100.0, 100.0], "minutes": [1.5, 1.5]},
    }
    assert {part.settings["n_test"] for part in paper_setup.plan(settings | {"all_others_tested": True})} == {None}
    assert paper_setup.label(settings | {"n_train": 30, "all_others_tested": True}) == "paper-setup-30-all-others"


def test_a_process_is_watched():
    common = module_of("common")
    done = common.python("-c", "print('hello')")
    assert (done.text, done.peak_mib > 1, done.wall_s > 0, done.cpu_s > 0) == ("hello\n", True, True, True)
    with pytest.raises(SystemExit, match="ended with 3"):
        common.python("-c", "raise SystemExit(3)")


@pytest.mark.parametrize("n_copies", [1, 2])
def test_least_squares_in_closed_form_are_fits_without_the_image(n_copies):
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(7 * n_copies, 3)), rng.normal(size=(7 * n_copies, 2))
    found = module_of("deep_choice").left_out(rows, targets, 0.3, 7)
    for image in range(7):
        others = np.arange(len(rows)) % 7 != image
        known = rows[others]
        fitted = np.linalg.solve(known.T @ known + 0.3 * np.eye(3), known.T @ targets[others])
        assert np.allclose(found[image], rows[image] @ fitted)


def test_neighbors_are_those_of_other_images():
    pytest.importorskip("onnxruntime")
    from lnbnn.indexes import make_index
    from lnbnn.methods.matching import ids_of_image, image_of_id

    images = [np.array(values, np.uint8).reshape(-1, 1) for values in ([10, 11, 12], [20, 13], [40])]
    index = make_index("exact")
    for number, rows in enumerate(images):
        index.add(rows, np.array(ids_of_image(number, len(rows)), np.int64))
    index.build()
    found = module_of("deep_choice").neighbors(index, images, 2, 3)
    assert [distances.tolist() for distances, _ in found] == [
        [[9, 100], [4, 81], [1, 64]],
        [[64, 81], [1, 4]],
        [[400, 729]],
    ]
    assert [set(image_of_id(ids).ravel().tolist()) for _, ids in found] == [{1}, {0}, {1}]


def test_class_means_are_those_of_other_images_of_other_classes():
    pytest.importorskip("onnxruntime")
    scores, truth = np.array([[9.0, 1.0], [7.0, 3.0], [2.0, 8.0], [4.0, 6.0]]), np.array([0, 0, 1, 1])
    found = module_of("deep_choice").without_class_means(scores, truth)
    # Class 0 gets 2 and 4 from images of class 1, which count only the other one of the two.
    assert found.tolist() == [[9 - 3, 1 - 3], [7 - 3, 3 - 1], [2 - 4, 8 - 2], [4 - 2, 6 - 2]]

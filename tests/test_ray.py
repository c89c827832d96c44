"""The commands on a real Ray cluster of two nodes here, whose workers and nodes are killed: `make test-engines`."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from clusters import RayNodes

import lnbnn
from lnbnn.cluster.tasks import RayCluster
from lnbnn.data.folder import read_images
from lnbnn.errors import ImageReadError
from lnbnn.reading.extraction import iter_features, iter_read

pytestmark = pytest.mark.engines

GRID = ["-D", "bin_sizes=4,6,9", "-D", "step_px=4", "-D", "longest_side=200"]  # some 10 ms per photo
N_PHOTOS = 50  # per class


@pytest.fixture(scope="module")
def folder(tmp_path_factory, save_texture):
    """Photos, one of them broken; a cache, a model and answers made on this machine alone."""
    folder = tmp_path_factory.mktemp("ray")
    for place, kind in enumerate(("checks", "columns", "rows")):
        for number in range(N_PHOTOS):
            save_texture(folder / f"photos/{kind}/{number:03d}.png", kind, 100 * place + number, (320, 240))
    (folder / "photos/rows/broken.png").write_bytes(b"not a picture")
    for command, words in COMMANDS.items():
        done = run(folder, *words("alone"))
        assert done.returncode == 0, done.stderr
        (folder / f"{command}.json").write_text(json.dumps({"stdout": done.stdout, "stderr": done.stderr}))
    return folder


COMMANDS = {
    "extract": lambda name: ["extract", "photos", f"cache-{name}", *GRID],
    "fit": lambda name: ["fit", "photos", f"model-{name}", "--preset", "balanced", *GRID],
    "predict": lambda name: ["predict", "model-alone", "photos", "--format", "json"],
    "evaluate": lambda name: ["evaluate", "model-alone", "photos", "--format", "json"],
}


def start(folder, *words, env=None):
    command = [sys.executable, "-m", "lnbnn", *map(str, words)]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder, *words, env=None):
    process = start(folder, *words, env=env)
    out, err = process.communicate(timeout=600)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def files_in(folder, pattern="*"):
    files = (path for path in folder.rglob(pattern) if path.is_file())
    files = (path for path in files if not path.name.startswith(".partial-"))  # what kill -9 leaves; nobody reads it
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def same_as_alone(folder, command, done, name):
    """The bytes that one machine makes, and the words that it says."""
    alone = json.loads((folder / f"{command}.json").read_text())
    assert [done.returncode, done.stderr] == [0, alone["stderr"]]
    if command == "predict":
        assert done.stdout == alone["stdout"]
        assert len(done.stdout.splitlines()) == 3 * N_PHOTOS + 1
    elif command == "evaluate":
        found, expected = (json.loads(text) | {"seconds": 0} for text in (done.stdout, alone["stdout"]))
        assert found == expected
    elif command == "extract":
        assert files_in(folder / f"cache-{name}") == files_in(folder / "cache-alone")
    else:
        assert lnbnn.load(folder / f"model-{name}").images_ == lnbnn.load(folder / "model-alone").images_
        found, expected = (files_in(folder / f"model-{one}", "*.npy") for one in (name, "alone"))
        assert sorted(found.values()) == sorted(expected.values())  # the folder of the data has a name of its own


# ---- the same as on one machine --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_gives_what_one_machine_gives(folder, ray_cluster, command, tmp_path):
    done = run(folder, *COMMANDS[command](tmp_path.name), "--ray", ray_cluster.address, env=ray_cluster.env)
    same_as_alone(folder, command, done, tmp_path.name)
    assert "broken.png" in done.stderr


def test_features_in_python_are_the_same(folder, ray_cluster):
    paths = [str(folder / path) for path in read_images(folder / "photos").paths] + [str(folder / "none.png")]
    descriptor = lnbnn.DenseSIFT(step_px=8)
    one, many = (list(iter_read(paths, descriptor, n_jobs=jobs)) for jobs in (1, RayCluster(ray_cluster.address)))
    for alone, found in zip(one, many, strict=True):
        if isinstance(alone, ImageReadError):
            assert str(found) == str(alone)
            continue
        assert found[1] == alone[1]
        assert np.array_equal(found[0].descriptors, alone[0].descriptors)
        assert np.array_equal(found[0].xy, alone[0].xy)
        assert found[0].descriptors.flags.owndata or found[0].descriptors.base is not None


def test_a_photo_that_workers_do_not_see_is_read_here(folder, ray_cluster, caplog, monkeypatch):
    """As on machines without the folder: the workers cannot go where this process is, and know no relative path."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("lnbnn.cluster.tasks.os.getcwd", lambda: "/nowhere")
    paths = [f"photos/rows/{number:03d}.png" for number in range(20)]
    found = list(iter_features(paths, lnbnn.DenseSIFT(step_px=16), n_jobs=RayCluster(ray_cluster.address)))
    assert all(len(features) for features in found)
    assert "20 of 20 images were read here because a Ray worker could not" in caplog.text


def test_a_model_in_memory_is_asked_with_features_from_the_cluster(folder, ray_cluster):
    data = read_images(folder / "photos")
    paths, labels = [str(folder / path) for path in data.paths[:150:10]], data.labels[:150:10]
    classifier = lnbnn.LocalNBNN(descriptor_params={"step_px": 16}).fit(paths, labels)
    alone = classifier.decision_function(paths)
    classifier.set_params(n_jobs=RayCluster(ray_cluster.address))
    assert not classifier.fitted().opens_elsewhere
    assert np.array_equal(classifier.decision_function(paths), alone)


def test_reproduce_gives_the_same_record(tmp_path, ray_cluster):
    words = ["reproduce", "figure-k", "--quick", "--splits", "1"]
    results = []
    for name, more in (("alone", []), ("ray", ["--ray", ray_cluster.address])):
        done = run(tmp_path, *words, "--runs", f"runs-{name}", "-o", name, *more, env=ray_cluster.env)
        assert done.returncode == 0, done.stderr
        (record,) = (tmp_path / name).glob("*.json")
        results.append(json.loads(record.read_text())["results"])
    assert results[0] == results[1]


# ---- an index in shards ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", ["exact", "faiss"])
def test_shards_answer_as_one_index(folder, ray_cluster, shard, tmp_path):
    """With exact shards the scores are equal; FAISS compares with every vector of such a small set, too."""
    options = [
        "fit",
        "photos",
        "--preset",
        "balanced",
        "-D",
        "step_px=24",
        "-D",
        "bin_sizes=6",
        "-M",
        "query_budget=40",
    ]
    answers = []
    for index, more in (("exact", []), ("ray-shards", ["-I", f"shard={shard}", "-I", "form=flat"])):
        model, env = tmp_path / index, ray_cluster.env
        done = run(folder, *options[:2], model, *options[2:], "--index", index, *more, env=env)
        assert done.returncode == 0, done.stderr
        ray = ["--ray", ray_cluster.address] if index == "ray-shards" else []
        done = run(folder, "predict", model, "photos/rows", "--format", "json", *ray, env=env)
        answers.append([json.loads(line) for line in done.stdout.splitlines()])
    for found, expected in zip(*answers, strict=True):
        assert found == expected if shard == "exact" else found["label"] == expected["label"]


# ---- losses ----------------------------------------------------------------------------------------------------------


def kill_workers(nodes, process, n):
    """Kill workers that are at work, a moment apart, while the command runs."""
    killed = 0
    while process.poll() is None and killed < n:
        for worker in nodes.busy_workers()[:1]:
            os.kill(worker, signal.SIGKILL)
            killed += 1
            time.sleep(0.2)
        time.sleep(0.01)
    return killed


@pytest.fixture
def nodes():
    with RayNodes(2) as nodes:
        yield nodes


@pytest.mark.parametrize("command", ["extract", "predict"])
def test_killed_workers_and_a_lost_node_change_nothing(folder, nodes, command, tmp_path):
    process = start(folder, *COMMANDS[command](tmp_path.name), "--ray", nodes.address, env=nodes.env)
    assert kill_workers(nodes, process, 2) == 2
    while process.poll() is None and not nodes.workers(1):
        time.sleep(0.01)
    assert process.poll() is None
    nodes.kill_node(1)
    out, err = process.communicate(timeout=600)
    same_as_alone(folder, command, subprocess.CompletedProcess([], process.returncode, out, err), tmp_path.name)


def test_without_the_own_node_a_run_fails_and_the_next_one_resumes(folder, nodes, tmp_path):
    process = start(folder, *COMMANDS["extract"](tmp_path.name), "--ray", nodes.address, env=nodes.env)
    cache = folder / f"cache-{tmp_path.name}"
    while process.poll() is None and (not cache.exists() or len(list(cache.rglob("*.npz"))) < 20):
        time.sleep(0.01)
    nodes.freeze_node(1)  # or it might end the work before the command misses its own node
    nodes.kill_node(0)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (1, "")  # Ray itself may end the process, with words of its own
    assert "Traceback" not in err
    assert 20 <= len(list(cache.rglob("*.npz"))) < 3 * N_PHOTOS
    done = run(folder, *COMMANDS["extract"](tmp_path.name), "--ray", "local")
    same_as_alone(folder, "extract", done, tmp_path.name)


def test_shards_survive_the_loss_of_their_node(folder, nodes, tmp_path):
    options = ["--preset", "balanced", "--index", "ray-shards", "-I", "n_shards=2", "-I", "form=ivf-4bit", *GRID]
    env = {**nodes.env, "RAY_ADDRESS": nodes.address}
    model = tmp_path / "model"
    assert run(folder, "fit", "photos", model, *options, env=env).returncode == 0
    question = ["predict", model, "photos", "--format", "json", "--ray", nodes.address]
    expected = run(folder, *question, env=env)
    with start(folder, *question, env=env) as process:
        first = process.stdout.readline()
        nodes.kill_node(1)
        out = first + process.stdout.read()  # not communicate, which would pass over what readline has buffered
    assert process.returncode == expected.returncode == 0
    assert out == expected.stdout


def test_sigterm_ends_a_local_cluster(folder, tmp_path):
    before = set(os.listdir("/proc"))
    process = start(folder, "extract", "photos", tmp_path / "cache", *GRID, "--ray", "local", env=os.environ)
    while process.poll() is None and not list((tmp_path / "cache").rglob("*.npz")):
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    until = time.monotonic() + 30
    while time.monotonic() < until and (left := rays(set(os.listdir("/proc")) - before)):
        time.sleep(0.2)
    assert left == []


def rays(processes):
    found = []
    for process in processes:
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read()
            with open(f"/proc/{process}/status") as file:
                is_gone = "State:\tZ" in file.read()
        except OSError:
            continue
        if not is_gone and (b"raylet" in words or b"gcs_server" in words or words.startswith(b"ray::")):
            found.append(words)
    return found


# ---- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("127.0.0.1:9", 1, "no Ray cluster answers at 127.0.0.1:9"),
        ("nonsense", 2, "auto, local or HOST:PORT"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(folder, tmp_path, address, code, words):
    env = {**os.environ, "RAY_TMPDIR": str(tmp_path)}
    env.pop("RAY_ADDRESS", None)
    done = run(folder, "extract", "photos", tmp_path / "cache", "--ray", address, env=env)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_that_wants_a_token_is_one_line(folder, ray_cluster, tmp_path):
    env = ray_cluster.env | {"RAY_AUTH_TOKEN": "0" * 64}
    done = run(folder, "extract", "photos", tmp_path / "cache", "--ray", ray_cluster.address, env=env)
    assert done.returncode == 1
    assert "RAY_AUTH_TOKEN" in done.stderr.splitlines()[-1]

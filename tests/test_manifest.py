"""Manifests whose checksum is right and whose fields are not: one line each, nothing else happens."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest
from changing import KINDS, fresh
from forged import forge_manifest
from synthetic import make_features

from lnbnn import NBNN, LateFusion, LocalNBNN, edit, load
from lnbnn.classifiers.trained import PooledSVM
from lnbnn.errors import LnbnnError, ModelFormatError
from lnbnn.model.changes import calibrate, check_model, compact, list_images, merge
from lnbnn.model.manifest import short

VALUES = [
    *[None, True, -1, 0, 3.5, 1 << 60, 10**30, 10**400, float("nan"), float("inf"), 1e308],
    *["", "x", "\0", "\ud800", "../x", "onnx:/dev/zero", "timm:x", "deep@x"],
    *[[], [[]], [None], [-1.0, 2], [10**400], ["x", "y"], [1, "uint8"], {}, {"a": 1}, {"file": "../x", "output": 3}],
]
FIELDS = ["lnbnn_version", "method", "params", "is_incremental", "min_descriptors", "features", "classes", "images"]
FIELDS += [
    "next_id",
    "n_indexed",
    "n_changes",
    "n_since_weights",
    "temperature",
    "confidence",
    "unknown_by_class",
    "unknown_prominence",
    "members",
    "weights",
    "network",
]
FIELDS += ["generation", "data", "files", "format_version"]


def features(seed):
    return make_features(np.random.default_rng(seed).integers(0, 128, (12, 8), dtype=np.uint8), seed=seed)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kinds = {
        "local-nbnn": LocalNBNN(5, index="exact", n_jobs=1),
        "pooled-svm": PooledSVM(n_jobs=1),
        "fusion": LateFusion([("a", LocalNBNN(5, index="exact")), ("b", NBNN(index="exact"))], n_jobs=1),
    }
    for name, model in kinds.items():
        model.fit([features(seed) for seed in range(6)], list("aabbcc"))
        if name != "pooled-svm":
            model.calibrate(unknown=True)
        model.save(folder / name)
    return folder


def change(folder):
    with edit(folder) as model:
        model.add([features(50)], ["a"])
        model.relabel(1, "b")
        model.remove(2)


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "writer.lock"}


@pytest.mark.parametrize("method", ["local-nbnn", "pooled-svm", "fusion"])
@pytest.mark.parametrize("field", FIELDS)
def test_every_field_may_hold_anything(models, tmp_path, method, field):
    copy = tmp_path / "copy"
    uses = [load, change]
    if method == "local-nbnn":
        uses = [load, list_images, check_model, change, compact, calibrate]
        uses.append(lambda path: merge(path, models / method, tmp_path / "merged", overwrite=True))
    for value in VALUES if method == "local-nbnn" else VALUES[::3]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(models / method, copy)
        forge_manifest(copy, **{field: value})
        before = content(copy)
        for use in uses:
            try:
                use(copy)
                if use in (change, compact, calibrate):
                    break
                said = "nothing"
            except LnbnnError as error:
                said = str(error)
            assert len(said.splitlines()) == 1, (field, value)
            assert len(said) < 1500, (field, value)
            assert content(copy) == before


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_changes", "x", "n_changes must be a whole number; got 'x'"),
        ("n_indexed", None, "n_indexed must be a whole number; got None"),
        ("n_indexed", 10**4000, r"n_indexed must be a whole number; got 1000+\.\.\.;"),
        ("min_descriptors", float("nan"), "min_descriptors must be a whole number; got nan"),
        ("is_incremental", 1, "is_incremental must be true or false; got 1"),
        ("features", [8, "object"], "features must be the length and the type of a descriptor"),
        ("method", 3, "method must be the name of a method; got 3"),
        ("params", {"descriptor": 3}, "params must be the settings"),
        ("params", {"descriptor_params": [1]}, "params must be the settings"),
        ("params", {"x": [[[[[[[[1]]]]]]]]}, "params must be the settings"),
        ("weights", [-1, 2], "weights must be a list of numbers, none below 0"),
        ("members", ["a", 2], "members must be a list of names"),
        ("network", {"file": "/etc/passwd", "output": None}, "network must be the network's file"),
    ],
)
def test_what_is_said(models, tmp_path, field, value, message):
    shutil.copytree(models / "local-nbnn", tmp_path / "copy")
    forge_manifest(tmp_path / "copy", **{field: value})
    for use in (load, change):
        with pytest.raises(ModelFormatError, match=message):
            use(tmp_path / "copy")


@pytest.mark.parametrize("method", sorted(KINDS))
@pytest.mark.parametrize(
    "change",
    [
        {"images": "none"},
        {"images": [[0, "x", 0, 12, None]]},
        {"images": [[1 << 40, "x", 0, 12, None, 0]]},
        {"images": [[0, "x", 7, 12, None, 0]]},
        {"images": [[0, "x", 0, 1 << 40, None, 0]]},
        {"images": [[0, "x", 0, 12, None, 3]]},
        {"images": [[0, "x", 0, 13, None, 0]]},
        {"images": []},
        {"classes": ["b", "a", "c"]},
        {"classes": ["a", "b"]},
        {"classes": [1, 2, 3.5]},
        {"next_id": 3},
        {"next_id": 1 << 60},
        {"n_changes": -1},
        {"features": 3},
        {"params": {"speed": 1}},
        {"method": ["nbnn"]},
        {"data": "data-000009"},
        {"data": "../data-000001"},
        {"generation": "x"},
    ],
)
def test_a_forged_manifest_is_refused(method, tmp_path, change):
    folder = tmp_path / "model"
    fresh(method, {number: (number, "abc"[number // 2]) for number in range(6)}).save(folder)
    forge_manifest(folder, **change)
    with pytest.raises(ModelFormatError):
        load(folder)


@pytest.mark.parametrize("text", ["1" * 5000, "[" * 900 + "]" * 900, "[" * 100_000, "{" * 50])
def test_what_json_itself_cannot_read(models, tmp_path, text):
    shutil.copytree(models / "local-nbnn", tmp_path / "copy")
    manifest = tmp_path / "copy" / "manifest.json"
    fields = {**json.loads(manifest.read_bytes()), "n_changes": "HERE"}
    del fields["sha256"]
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":")).replace('"HERE"', text)
    digest = hashlib.sha256(plain.encode()).hexdigest()
    manifest.write_text(f'{plain[:-1]},"sha256":"{digest}"}}')
    with pytest.raises(ModelFormatError):
        load(tmp_path / "copy")


def test_short():
    assert short([1, "a"]) == "[1, 'a']"
    assert short("x" * 1000) == "'" + "x" * 99 + "..."
    assert short(10**5000) == "a value too long to be shown"

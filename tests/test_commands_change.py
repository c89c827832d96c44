"""The commands that change a model, as a user meets them."""

from __future__ import annotations

import json
import shutil

import pytest
from forged import data_file

from lnbnn import load
from lnbnn.model.changes import list_images


@pytest.fixture
def own_model(model, tmp_path):
    return shutil.copytree(model, tmp_path / "model")


def listed(run, model, *options):
    return [json.loads(line) for line in run("list", model, "--format", "json", *options).out.splitlines()]


def test_a_week_in_the_life_of_a_model(own_model, photos, tmp_path, save_texture, run):
    new = save_texture(tmp_path / "monday.png", "rows", seed=77, size=(60, 90))
    out = run("add", own_model, "--label", "otter", new).out
    assert "added 1 image to otter (id 9, " in out
    assert "10 images in all" in out
    assert run("relabel", own_model, "--image", "9", "--label", "rows").out.strip().endswith("1 image now rows")
    assert "removed 2 images; 8 images left" in run("remove", own_model, "--image", "0,9").out
    assert [entry["id"] for entry in listed(run, own_model)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "removed 3 images" in run("remove", own_model, "--label", "columns").out
    assert load(own_model).classes_.tolist() == ["checks", "rows"]
    assert run("compact", own_model).code == 0
    assert "whole; " in run("check", own_model).out
    assert "added 1 image to otter (id 10, " in run("add", own_model, "--label", "otter", new).out


def test_the_same_image_is_named_and_left_out(own_model, photos, run):
    outcome = run("add", own_model, "--label", "new", photos / "rows" / "photo_0.png", "--format", "json")
    found = json.loads(outcome.out)
    assert found["added"] == []
    assert found["duplicates"] == found["doubles"] == [[str(photos / "rows" / "photo_0.png"), 6]]
    assert "the same image is in the model as image 6" in outcome.err
    assert outcome.code == 0


def test_list_in_every_format(model, run):
    entries = listed(run, model)
    assert [entry["id"] for entry in entries] == list(range(9))
    assert entries[0].keys() == {"id", "label", "n_descriptors", "path", "sha256"}
    assert [entry["id"] for entry in listed(run, model, "--label", "rows")] == [6, 7, 8]
    rows = run("list", model, "--format", "csv").out.splitlines()
    assert rows[0] == "id,label,n_descriptors,path"
    assert len(rows) == 10
    assert "photo_0.png" in run("list", model).out


def test_a_label_that_is_not_there_or_empty(own_model, photos, run_main):
    assert "has the label 'otter'" in run_main("list", own_model, "--label", "otter").error
    before = (own_model / "manifest.json").read_bytes()
    for words in (("add", own_model, "--label", " ", photos), ("relabel", own_model, "--label", "", "--image", "0")):
        assert "a label must not be empty" in run_main(*words).error
    assert (own_model / "manifest.json").read_bytes() == before


def test_check_finds_a_changed_byte_that_opening_does_not_read(own_model, run, monkeypatch):
    monkeypatch.setattr("lnbnn.model.folder._VERIFY_UP_TO_BYTES", 0)
    file = data_file(own_model, "vectors.npy")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert run("info", own_model).code == 0
    outcome = run("check", own_model, "--format", "json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["problems"] == [f"{file.parent.name}/vectors.npy: its checksum is wrong"]


def test_merge(own_model, photos, tmp_path, fit, run, save_texture):
    save_texture(tmp_path / "photos" / "checks" / "a.png", "checks", seed=90)
    save_texture(tmp_path / "photos" / "stripes" / "b.png", "rows", seed=91)
    shutil.copy(photos / "rows" / "photo_1.png", tmp_path / "photos" / "stripes")
    options = ("-I", "form=ivf-8bit", "-I", "n_lists=4")
    assert fit(tmp_path / "photos", tmp_path / "other", *options).code == 0
    outcome = run("merge", own_model, tmp_path / "other", tmp_path / "both")
    assert "11 images of 4 classes" in outcome.out
    assert "1 image of" in outcome.err
    assert [image.id for image in list_images(tmp_path / "both")] == list(range(11))


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("remove",), 2, "give either --label NAME or --image ID"),
        (("remove", "--label", "rows", "--image", "3"), 2, "give either --label NAME or --image ID"),
        (("remove", "--image", "x"), 2, "expected ids of images"),
        (("remove", "--image", "99"), 1, "no image of the model has the id 99"),
        (("remove", "--label", "otter"), 1, "no image of the model has the label 'otter'"),
        (("relabel", "--label", "otter"), 2, "give at least one --image ID"),
        (("relabel", "--image", "99", "--label", "otter"), 1, "no image of the model has the id 99"),
        (("add", "--label", "otter", "missing.png"), 1, "missing.png"),
    ],
)
def test_what_cannot_be_done_is_one_line(args, code, words, own_model, run_main):
    before = (own_model / "manifest.json").read_bytes()
    outcome = run_main(args[0], own_model, *args[1:])
    assert outcome.code == code
    assert words in " ".join(outcome.err.replace("│", " ").split())
    assert (own_model / "manifest.json").read_bytes() == before

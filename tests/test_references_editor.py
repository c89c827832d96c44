"""Images added, removed and relabeled: ids never given twice, duplicates noticed, bad changes refused."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from changing import KINDS, assert_answers_as, features, fresh
from PIL import Image
from synthetic import flat_image, grating, make_features

from lnbnn import LocalNBNN, load
from lnbnn.errors import InvalidInputError
from lnbnn.model.changes import compact, edit, list_images


@pytest.fixture(params=sorted(KINDS))
def method(request):
    return request.param


@pytest.fixture
def start(method):
    """Six images, seeds 0 to 5, three classes."""
    return {number: (number, "abc"[number // 2]) for number in range(6)}


@pytest.fixture
def folder(method, start, tmp_path):
    fresh(method, start).save(tmp_path / "model")
    return tmp_path / "model"


def test_ids_stay_and_are_never_given_again(folder):
    with edit(folder) as model:
        model.remove([1, 5])
    with edit(folder) as model:
        (added,) = model.add([features(70)], ["d"])
        assert added.id == 6
    with edit(folder) as model:
        model.remove(6)
    with edit(folder) as model:
        assert model.add([features(71)], ["d"])[0].id == 7
    assert [image.id for image in list_images(folder)] == [0, 2, 3, 4, 7]
    compact(folder)
    assert [image.id for image in load(folder).images_] == [0, 2, 3, 4, 7]
    with edit(folder) as model:
        assert model.add([features(72)], ["a"])[0].id == 8


def test_an_added_image_can_go_again_in_the_same_step(method, start, folder):
    with edit(folder) as model:
        (added,) = model.add([features(50)], ["a"])
        model.remove(added.id)
        model.add([features(51)], ["a"])
    assert_answers_as(load(folder), fresh(method, {**start, 7: (51, "a")}))


def test_in_memory_as_in_the_folder(method, start, folder):
    model = fresh(method, start)
    model.partial_fit([features(50)], ["z"]).remove([0]).relabel(2, "a")
    assert model.images_[-1].id == 6
    with edit(folder) as editor:
        editor.add([features(50)], ["z"])
        editor.remove(0)
        editor.relabel(2, "a")
    assert_answers_as(load(folder), model)


def test_a_class_goes_with_its_last_image_and_comes_back(method, start, folder):
    with edit(folder) as model:
        model.remove(model.ids_of("b"))
    assert load(folder).classes_.tolist() == ["a", "c"]
    with edit(folder) as model:
        model.relabel(0, "b")
    held = {number: entry for number, entry in start.items() if entry[1] != "b"} | {0: (0, "b")}
    assert_answers_as(load(folder), fresh(method, held))


def test_relabeled_there_and_back(method, start, folder):
    for label in ("b", "c", "a", "b", "a"):
        with edit(folder) as model:
            model.relabel(0, label)
    assert_answers_as(load(folder), fresh(method, start))
    model = fresh(method, start).relabel(0, "b").relabel(0, "a")
    assert_answers_as(model, fresh(method, start))
    assert np.array_equal(model.reference_totals(), fresh(method, start).reference_totals())


# ---- duplicates ------------------------------------------------------------------------------------------------------


def test_the_same_bytes_are_noticed(tmp_path):
    paths = []
    for number in range(4):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(grating(40.0 * number, seed=number)).save(paths[-1])
    sift = {"bin_sizes": [4], "step_px": 7, "min_contrast": 0.5, "longest_side": 48}
    LocalNBNN(index="exact", descriptor_params=sift).fit(paths[:2], ["a", "b"]).save(tmp_path / "model")
    copy = shutil.copy(paths[0], tmp_path / "copy.png")
    with edit(tmp_path / "model") as model:
        added = model.add([copy, paths[2], paths[2], paths[3]], ["b"] * 4)
    assert [(image.id, image.name) for image in added] == [(2, str(paths[2])), (3, str(paths[3]))]
    assert model.duplicates == [(str(copy), 0), (str(paths[2]), 2)]
    assert "the same image is in the model as image 0" in model.skipped[0][1]
    loaded = load(tmp_path / "model")
    loaded.partial_fit([paths[3]], ["c"])
    assert loaded.classes_.tolist() == ["a", "b"]
    assert loaded.skipped_[0][0] == str(paths[3])
    with edit(tmp_path / "model") as model:
        model.remove(0)
    with edit(tmp_path / "model") as model:
        assert model.add([copy], ["a"])[0].id == 4, "removed, so it may come again"


# ---- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[6], [-1], [0, 77], ["0"], [True], []])
def test_unknown_ids(folder, ids):
    loaded = load(folder)
    for change in (loaded.remove, lambda ids: loaded.relabel(ids, "a")):
        with pytest.raises(InvalidInputError, match=r"the id|at least one image"):
            change(ids)
    with edit(folder) as model:
        for change in (model.remove, lambda ids: model.relabel(ids, "a")):
            with pytest.raises(InvalidInputError, match=r"the id|at least one image"):
                change(ids)


def test_labels_of_another_kind(folder):
    with edit(folder) as model:
        with pytest.raises(InvalidInputError, match="of the kind of 'a'"):
            model.relabel(0, 3)
        with pytest.raises(InvalidInputError, match="of the kind of 'a'"):
            model.add([features(50)], [3])
    with pytest.raises(InvalidInputError, match="of the kind of"):
        load(folder).relabel(0, 3)


def test_features_of_another_kind(folder):
    other = make_features(np.zeros((4, 9), np.uint8))
    with edit(folder) as model, pytest.raises(InvalidInputError, match="the model's descriptors have length and type"):
        model.add([other], ["a"])


def test_the_last_image_stays(folder):
    with edit(folder) as model, pytest.raises(InvalidInputError, match="needs at least"):
        model.remove(range(6))
    with pytest.raises(InvalidInputError, match="needs at least"):
        load(folder).remove(range(6))


def test_images_without_descriptors_and_bad_files(tmp_path):
    sift = {"bin_sizes": [4], "step_px": 7, "min_contrast": 0.5, "longest_side": 48}
    LocalNBNN(index="exact", descriptor_params=sift).fit([grating(0, 1), grating(90, 2)], [4, 5]).save(tmp_path / "m")
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    with edit(tmp_path / "m") as model:
        added = model.add([flat_image(), tmp_path / "bad.jpg", grating(45, 3)], [6, 6, 6], on_error="skip")
    assert [image.id for image in added] == [2]
    assert len(model.skipped) == 2
    assert load(tmp_path / "m").classes_.tolist() == [4, 5, 6]

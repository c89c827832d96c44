"""A model that changes: step by step as fitted afresh, each change whole or not at all."""

from __future__ import annotations

import mmap
import shutil

import numpy as np
import pytest
from changing import (
    APPROXIMATE,
    KINDS,
    MARGIN,
    QUERIES,
    assert_answers_as,
    features,
    fresh,
    make,
    run_approximate_steps,
    run_steps,
)
from forged import forge_manifest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quick import fitted

import lnbnn
from lnbnn import LocalNBNN, load
from lnbnn.classifiers import CLASSIFIERS
from lnbnn.errors import InvalidInputError, LnbnnError, ModelInUseError
from lnbnn.methods import INCREMENTAL
from lnbnn.model.changes import check_model, compact, edit, list_images, merge, refit
from lnbnn.model.folder import open_model


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


def test_each_change_shows_in_a_model_opened_after_it(method, start, folder):
    with edit(folder) as model:
        model.add([features(50), features(51)], ["a", "z"])
        model.remove(0)
        model.relabel([2, 3], "z")
    held = {**start, 6: (50, "a"), 7: (51, "z"), 2: (2, "z"), 3: (3, "z")}
    del held[0]
    assert_answers_as(load(folder), fresh(method, held))
    assert check_model(folder).problems == ()


def test_nothing_done_nothing_written(folder):
    before = (folder / "manifest.json").read_bytes()
    with edit(folder) as model:
        model.relabel(0, "a")
    assert (folder / "manifest.json").read_bytes() == before


def test_an_error_in_the_block_undoes_all_of_it(folder):
    before = (folder / "manifest.json").read_bytes()

    def several_steps():
        with edit(folder) as model:
            model.remove(0)
            model.add([features(50)], ["a"])
            model.relabel(99, "b")

    with pytest.raises(InvalidInputError, match="no image of the model has the id 99"):
        several_steps()
    assert (folder / "manifest.json").read_bytes() == before
    assert check_model(folder).n_images == 6


def test_a_method_that_learns_is_not_changed(tmp_path):
    model = lnbnn.AffineNBNN(index="exact", query_budget=None)
    model.fit([features(seed) for seed in range(4)], list("aabb")).save(tmp_path / "model")
    with (
        pytest.raises(InvalidInputError, match="'nbnn-affine' learns from all images together"),
        edit(tmp_path / "model"),
    ):
        pass
    for change in (lambda: model.remove(0), lambda: model.relabel(0, "b"), lambda: model.partial_fit([], [])):
        with pytest.raises(InvalidInputError, match="learns from all images together"):
            change()
    with (
        pytest.raises(InvalidInputError, match="learns from all images together"),
        edit_of_a_copy(tmp_path / "model", is_incremental=True),
    ):
        pass


def edit_of_a_copy(folder, **changes):
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    forge_manifest(copy, **changes)
    return edit(copy)


# ---- reader and writer --------------------------------------------------------------------------------------------


def test_a_reader_keeps_its_view_and_follows_when_asked(method, start, folder):
    reader, before = load(folder), fresh(method, start)
    with edit(folder) as model:
        model.add([features(50)], ["z"])
        model.remove(1)
        assert_answers_as(load(folder), before)
    assert_answers_as(reader, before)
    assert reader.refresh()
    held = {**start, 6: (50, "z")}
    del held[1]
    assert_answers_as(reader, fresh(method, held))
    assert not reader.refresh()
    compact(folder)
    assert reader.refresh()
    assert_answers_as(reader, fresh(method, held))


def test_a_model_changed_in_memory_follows_no_folder(folder):
    reader = load(folder).relabel(0, "b")
    with pytest.raises(InvalidInputError, match="not changed since"):
        reader.refresh()


def test_a_second_writer_gets_an_error_at_once(folder):
    with edit(folder) as model:
        with pytest.raises(ModelInUseError, match="is changing this model; try again"), edit(folder):
            pass
        with pytest.raises(ModelInUseError):
            load(folder).save(folder, overwrite=True)
        model.remove(0)
    assert len(list_images(folder)) == 5


def test_old_files_go_only_when_nobody_reads_them(folder):
    reader = load(folder)
    old = reader.model_.snapshot.data
    with edit(folder) as model:
        model.remove(0)
    compact(folder)
    assert old.exists()
    assert open_model(folder).data != old
    reader.totals(QUERIES)
    del reader
    with edit(folder) as model:
        model.remove(1)
    assert not old.exists()


# ---- the index ----------------------------------------------------------------------------------------------------


def test_the_index_is_retrained_when_it_has_outgrown_its_training(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("lnbnn.model.changes._MIN_PENDING", 100)
    model = make(index="faiss", index_params={"form": "ivf-8bit"})
    model.fit([features(seed, 40) for seed in range(4)], list("aabb")).save(tmp_path / "model")
    assert load(tmp_path / "model").index_._structure.nlist == 8
    with edit(tmp_path / "model") as editor:
        editor.add([features(seed, 40) for seed in range(10, 40)], ["c"] * 30)
    assert "1,200 descriptors were added to 160" in caplog.text
    assert "1,360 vectors are too many for its 8 lists" in caplog.text
    assert load(tmp_path / "model").index_._structure.nlist == 32
    assert all(image.batch == 0 for image in list_images(tmp_path / "model"))
    assert check_model(tmp_path / "model").problems == ()
    with edit(tmp_path / "model") as editor:
        editor.remove(range(4, 20))
    assert "descriptors were removed" in caplog.text
    assert load(tmp_path / "model").index_._table.n_rows == 18 * 40


def test_an_opened_table_stays_mapped_while_images_are_added(tmp_path, monkeypatch):
    monkeypatch.setattr("lnbnn.files.arrays._MAP_FROM_BYTES", 100)
    make(index="faiss", index_params={"form": "ivf-4bit", "n_lists": 2}).fit(
        [features(seed, 40) for seed in range(4)], list("aabb")
    ).save(tmp_path / "model")
    model = load(tmp_path / "model")
    (stored,) = mapped_arrays(model.index_._table)
    model.partial_fit([features(50, 40)], ["a"]).remove(0)
    assert mapped_arrays(model.index_._table)[0] is stored


def mapped_arrays(table):
    """The two-dimensional arrays that a table holds, directly or in a list, and that are parts of a mapped file."""
    held = [part for value in vars(table).values() for part in (value if isinstance(value, list) else [value])]
    return [part for part in held if isinstance(part, np.ndarray) and part.ndim == 2 and is_mapped(part)]


def is_mapped(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


# ---- merge --------------------------------------------------------------------------------------------------------


def test_merge(method, start, folder, tmp_path):
    other = {0: (80, "c"), 1: (3, "b"), 2: (81, "z")}
    fresh(method, other).save(tmp_path / "other")
    with edit(folder) as model:
        model.remove(5)
    assert merge(folder, tmp_path / "other", tmp_path / "both") == [(1, 3)]
    held = {**start, 6: (80, "c"), 7: (81, "z")}
    del held[5]
    assert [image.id for image in list_images(tmp_path / "both")] == [0, 1, 2, 3, 4, 6, 7]
    assert_answers_as(load(tmp_path / "both"), fresh(method, held))


@pytest.mark.parametrize("name", sorted(CLASSIFIERS))
def test_a_method_merges_if_it_can_be_changed_and_says_so_if_not(name):
    first, second = (fitted(name).model_ for _ in range(2))
    if name not in INCREMENTAL:
        with pytest.raises(InvalidInputError, match=f"models of method '{name}' cannot be merged; fit one on the"):
            first.absorb(second)
    else:
        assert first.absorb(second) == [(number, number) for number in range(6)]


def test_merge_refuses_other_settings(folder, method, tmp_path):
    make(method, location_weight=0.5).fit(QUERIES, list("abcd")).save(tmp_path / "other")
    with pytest.raises(InvalidInputError, match=r"same settings; location_weight is 1.6 and 0.5"):
        merge(folder, tmp_path / "other", tmp_path / "both")
    assert not (tmp_path / "both").exists()


# ---- any sequence of changes --------------------------------------------------------------------------------------


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove", "relabel", "compact", "in memory"]),
        st.integers(0, 999),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=8,
)


@given(steps=STEPS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("method", sorted(KINDS))
def test_any_sequence_of_changes_answers_as_fitted_afresh(method, steps, tmp_path_factory):
    run_steps(method, steps, tmp_path_factory.mktemp("steps") / "model")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("form", sorted(APPROXIMATE))
def test_any_sequence_of_changes_finds_as_many_neighbors_as_fitted_afresh(form, seed, tmp_path):
    losses = run_approximate_steps(form, seed, tmp_path / "model")
    assert max(losses) <= MARGIN


# ---- fitted again ----------------------------------------------------------------------------------------------------


@pytest.fixture
def of_files(model, tmp_path):
    """A model of nine photos from which the first was taken, so that ids begin at 1; and its files by id."""
    folder = shutil.copytree(model, tmp_path / "of-files")
    with edit(folder) as editor:
        editor.remove(0)
    return folder, {image.id: image.name for image in list_images(folder)}


def test_a_model_fitted_again_keeps_ids_and_labels(of_files):
    folder, files = of_files
    with edit(folder) as editor:
        editor.relabel(5, "checks")
        editor.remove(8)
    before = [(image.id, image.label, image.digest) for image in list_images(folder)]
    refit(folder, LocalNBNN(3, descriptor_params={"step_px": 12}, index="exact"), files)
    assert [(image.id, image.label, image.digest) for image in list_images(folder)] == before
    assert load(folder).get_params()["n_neighbors"] == 3
    assert check_model(folder).problems == ()
    with edit(folder) as editor:
        (back,) = editor.add([files[8]], ["rows"])
    assert back.id == 9, "ids are never reused"


def test_a_model_is_fitted_again_on_what_it_holds_only(of_files, tmp_path):
    folder, files = of_files
    generation = open_model(folder).manifest["generation"]
    quick = LocalNBNN(3, descriptor_params={"step_px": 12}, index="exact")
    with pytest.raises(InvalidInputError, match="1 photos of the model are missing"):
        refit(folder, quick, {number: file for number, file in files.items() if number != 3})
    with pytest.raises(InvalidInputError, match="has changed"):
        refit(folder, quick, files | {3: files[4]})
    assert open_model(folder).manifest["generation"] == generation


def test_a_change_made_while_a_model_is_fitted_again_stays(of_files):
    folder, files = of_files

    def change(stage, done, total):
        if (stage, done) == ("reading images", 4):
            with edit(folder) as editor:
                editor.relabel(1, "new")

    with pytest.raises(LnbnnError, match="changed during the refit"):
        refit(folder, LocalNBNN(3, descriptor_params={"step_px": 12}, index="exact"), files, progress=change)
    assert list_images(folder)[0].label == "new"

"""The index on Milvus, on a Milvus in memory: what is found, what a change leaves, what is refused."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import pickle
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import fake_milvus
import numpy as np
import pytest
from changing import QUERIES, changed, features, fresh, make
from fake_milvus import Killed
from fake_ray import HereCluster
from synthetic import clustered_vectors, grating, grating_set

from lnbnn import NBNN, LateFusion, LocalNBNN, load
from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError
from lnbnn.indexes import make_index
from lnbnn.indexes.milvus_state import is_made_in, new_mark
from lnbnn.model.changes import check_model, compact, edit
from lnbnn.model.writer import discard_model

URI = "http://127.0.0.1:19530"
MODULES = ("lnbnn.indexes.milvus_collection", "lnbnn.indexes.milvus_index")


@pytest.fixture
def server(monkeypatch):
    """A server in memory; the modules of the index see it and no other, also where the real packages are installed."""
    made = fake_milvus.Server()
    for name, module in fake_milvus.modules(made).items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    monkeypatch.setattr(sys.modules[MODULES[0]], "_IDLE_S", 0.0)
    for name in ("LNBNN_MILVUS_URI", "LNBNN_MILVUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return made


def index_of(vectors, ids=None, **params):
    index = make_index("milvus", {"uri": URI, "index_type": "FLAT", **params})
    index.add(np.asarray(vectors, np.uint8), np.arange(len(vectors)) if ids is None else np.asarray(ids))
    return index.build()


def only(server):
    (name,) = server.collections
    return name


HELD = {number: (number, "abc"[number // 2]) for number in range(6)}


def fitted(held=None, **params):
    held = HELD if held is None else held
    ordered = sorted(held)
    model = make(index="milvus", index_params={"uri": URI, "index_type": "FLAT", **params})
    return model.fit([features(held[i][0]) for i in ordered], [held[i][1] for i in ordered])


def answers_as(folder, held):
    return np.array_equal(load(folder).totals(QUERIES), fresh("local-nbnn", held).totals(QUERIES))


# ---- searching -------------------------------------------------------------------------------------------------------


def test_a_search_worked_by_hand(server):
    """On a line: 0, 3, 4 and 9. From 4 the nearest are 4 (0), 3 (1), 0 (16), 9 (25)."""
    index = index_of([[0, 0], [3, 0], [4, 0], [9, 0]], ids=[10, 20, 30, 40])
    distances, ids = index.search(np.array([[4, 0]], np.uint8), 3)
    assert distances.tolist() == [[0, 1, 16]]
    assert ids.tolist() == [[30, 20, 10]]
    index.remove(np.array([30]))
    index.add(np.array([[5, 0]], np.uint8), np.array([50]))  # searched here, until it is saved
    distances, ids = index.search(np.array([[4, 0]], np.uint8), 3)
    assert distances.tolist() == [[1, 1, 16]]
    assert ids.tolist() == [[20, 50, 10]]
    assert server.ids(only(server)) == [10, 20, 30, 40]


def test_of_equal_distances_the_first_rows_are_found_whatever_the_server_gives_first(server):
    """Forty vectors at one place: a server may give any of them; more are asked for until the rest is farther."""
    vectors = np.repeat([[1, 1], [9, 9]], [40, 3], axis=0)
    ids = np.random.default_rng(0).permutation(43)
    index = index_of(vectors, ids)
    for part in server.collections[only(server)]["partitions"].values():  # another order than that of the rows
        for number in sorted(part):
            part[number] = part.pop(number)
    expected = make_index("exact")
    expected.add(vectors.astype(np.uint8), ids)
    query = np.array([[1, 2]], np.uint8)
    assert np.array_equal(index.search(query, 3)[1], expected.search(query, 3)[1])


def test_rows_that_the_model_does_not_know_are_passed_over(server):
    """Left-over rows nearer than all others, more of them than are asked for at once."""
    index = index_of([[0, 0], [3, 0], [4, 0], [9, 0]], ids=[10, 20, 30, 40])
    part = server.collections[only(server)]["partitions"]["cell_0000"]
    part |= {1000 + number: [np.array([4, 0], np.float32)] for number in range(500)}
    distances, ids = index.search(np.array([[4, 0]], np.uint8), 3)
    assert distances.tolist() == [[0, 1, 16]]
    assert ids.tolist() == [[30, 20, 10]]
    assert max(given["limit"] for method, given in server.calls if method == "search") > 500


def test_milvus_lite_is_asked_as_much_as_fits_into_memory(server, monkeypatch, tmp_path):
    """It compares each query with all rows at once: 4 rows of 2 numbers of 4 bytes, three times."""
    monkeypatch.setattr(sys.modules["lnbnn.indexes.milvus_collection"], "_LITE_BYTES", 3 * 4 * 2 * 4)
    vectors, queries = [[0, 0], [3, 0], [40, 0], [90, 0]], np.array([[x, 0] for x in range(7)], np.uint8)
    found, n_calls = [], []
    for uri in (str(tmp_path / "vectors.db"), URI):
        index = index_of(vectors, uri=uri)
        server.calls.clear()
        found.append(index.search(queries, 1))
        n_calls.append(sum(method == "search" for method, _ in server.calls))
    assert n_calls == [3, 1]
    assert np.array_equal(found[0], found[1])


@pytest.mark.parametrize("n_cell_probes", [1, 2, 5])
def test_a_query_visits_its_nearest_cells(server, n_cell_probes):
    vectors = clustered_vectors(400, 6, n_clusters=5, seed=1)
    queries = clustered_vectors(30, 6, n_clusters=5, seed=2)
    index = index_of(vectors, n_cells=5, n_cell_probes=n_cell_probes)
    assert len(server.collections[only(server)]["partitions"]) == 6  # with that which every collection has
    server.calls.clear()
    distances, _ = index.search(queries, 3)
    visits = [given["partition_names"] for method, given in server.calls if method == "search"]
    if n_cell_probes == 5:
        assert visits == [None], "all cells: one call"
    else:
        assert len(visits) <= 5, "one call per cell, for all queries that visit it"
        assert all(len(names) == 1 for names in visits)
    cells = ((vectors[:, None].astype(float) - index._centers) ** 2).sum(axis=2).argmin(axis=1)
    near = np.argsort(((queries[:, None].astype(float) - index._centers) ** 2).sum(axis=2), axis=1)[:, :n_cell_probes]
    for query, own, found in zip(queries, near, distances, strict=True):
        squared = ((vectors[np.isin(cells, own)].astype(float) - query) ** 2).sum(axis=1)
        assert np.sort(squared)[:3].tolist() == found.tolist()


def test_where_the_visited_cells_hold_too_few_the_others_are_visited(server):
    vectors = np.vstack([np.full((3, 4), 10), np.full((30, 4), 200)])
    index = index_of(vectors, n_cells=2, n_cell_probes=1)
    assert (index.search(np.full((1, 4), 10, np.uint8), 5)[1] >= 0).all()


def test_a_collection_that_is_loaded_is_not_loaded_again(server, tmp_path):
    """Someone may have loaded it with several replicas."""
    index = index_of([[1, 2], [3, 4]])
    index.save(tmp_path)
    for is_loaded in (True, False):
        server.calls.clear()
        if not is_loaded:
            server.loaded.clear()
        type(index).load(tmp_path, index.settings())
        assert ("load_collection" in [method for method, _ in server.calls]) is not is_loaded


def test_rows_written_a_moment_ago_are_found(server, tmp_path):
    """By this process after a save, by another that opens the model then, and when vectors are read back."""
    index = index_of([[1, 2], [30, 40]])
    index.add(np.array([[60, 60]], np.uint8), np.array([2]))
    index.save(tmp_path)
    query = np.array([[60, 60]], np.uint8)
    assert index.search(query, 1)[1].tolist() == [[2]]
    server.fresh = {(only(server), number) for number in range(3)}
    again = type(index).load(tmp_path, index.settings())
    assert again.search(query, 1)[1].tolist() == [[2]]
    server.fresh = {(only(server), number) for number in range(3)}
    assert again.vectors_of(range(3)).tolist() == [[1, 2], [30, 40], [60, 60]]


def test_the_number_of_cells_follows_the_size(server):
    n_cells = sys.modules[MODULES[1]].default_n_cells
    assert [n_cells(n) for n in (1, 300_000, 1 << 20, 10 << 20, 1 << 40)] == [1, 1, 4, 40, 1000]


def test_many_ranges_left_out_are_passed_over(server):
    vectors = clustered_vectors(900, 4, seed=3)
    index, exact = index_of(vectors), make_index("exact")
    exact.add(vectors, np.arange(900))
    out = [range(start, start + 2) for start in range(0, 900, 4)]
    for got, expected in zip(
        index.search(vectors[:20], 5, leave_out=out), exact.search(vectors[:20], 5, leave_out=out), strict=True
    ):
        assert np.array_equal(got, expected)


# ---- a model and its collection --------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_pending", [0, 50_000])
@pytest.mark.parametrize("seed", range(4))
def test_changed_models_answer_as_fitted_ones(server, tmp_path, seed, max_pending):
    rng = np.random.default_rng(seed)
    actions = ["add", "add", "remove", "relabel", "compact", "in memory"]
    steps = [(actions[rng.integers(6)], int(rng.integers(1000)), int(rng.integers(4))) for _ in range(10)]
    held = dict(HELD)
    for model in changed(fitted(max_pending=max_pending), held, steps, tmp_path / "model", features):
        assert np.array_equal(model.totals(QUERIES), fresh("local-nbnn", held).totals(QUERIES))


def test_what_is_where(server, tmp_path):
    """The collection holds the indexed rows, the files their ids; added images wait in files until there are many."""
    folder = tmp_path / "model"
    fitted(max_pending=20).save(folder)
    name = only(server)
    expected = [(number << 20) + row for number in range(6) for row in range(12)]
    assert server.ids(name) == expected
    assert not list(folder.rglob("vectors.npy"))
    with edit(folder) as model:
        model.add([features(106)], ["a"])
        model.remove(0)
        model.relabel(2, "c")
    assert server.ids(name) == expected, "12 rows wait, 12 removed ones stay"
    with edit(folder) as model:
        model.add([features(107)], ["a"])
    assert server.ids(name) == [(number << 20) + row for number in range(1, 8) for row in range(12)]
    assert len(server.rows(name)) == len(server.ids(name)) + 1, "the mark of one state"
    assert only(server) == name


def test_a_collection_goes_with_its_model(server, tmp_path):
    model = fitted()
    model.save(tmp_path / "one")
    load(tmp_path / "one").save(tmp_path / "two")
    assert len(server.collections) == 2, "each model has its own"
    discard_model(tmp_path / "one")
    assert answers_as(tmp_path / "two", HELD)
    fitted().save(tmp_path / "two", overwrite=True)
    assert len(server.collections) == 1
    discard_model(tmp_path / "two")
    assert not server.collections


def test_an_index_that_is_not_saved_takes_its_collection_along(server):
    index = index_of([[1, 2]])
    assert len(server.collections) == 1
    del index
    assert not server.collections


def test_collections_of_dead_processes_are_removed(server, tmp_path):
    fitted().save(tmp_path / "model")
    kept = only(server)
    head, _, _, tail = kept.rsplit("_", 3)
    index = index_of([[1, 2]])
    mine = next(name for name in server.collections if name != kept)
    server.collections |= {
        f"{head}_999999999_77_{tail}": {"dim": 2, "partitions": {}},  # no such process
        f"lnbnn_00000000_999999999_77_{tail}": {"dim": 2, "partitions": {}},  # of another machine
        "photos": {"dim": 2, "partitions": {}},
    }
    other = index_of([[3, 4]])
    left = set(server.collections) - {kept, mine, other._collection.name}
    assert left == {f"lnbnn_00000000_999999999_77_{tail}", "photos"}
    assert index.search(np.array([[1, 2]], np.uint8), 1)[1].tolist() == [[0]]


def test_two_copies_of_a_model_do_not_mix(server, tmp_path):
    fitted().save(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with edit(tmp_path / "one") as model:
        model.add([features(106)], ["a"])
    compact(tmp_path / "one")
    with pytest.raises(ModelFormatError, match="was changed by another copy of this model"):
        load(tmp_path / "two")
    assert answers_as(tmp_path / "one", {**HELD, 6: (106, "a")})
    discard_model(tmp_path / "two")
    assert answers_as(tmp_path / "one", {**HELD, 6: (106, "a")}), "the other copy takes nothing along"


def test_a_copy_that_is_written_at_the_same_time_is_noticed(server, tmp_path):
    fitted().save(tmp_path / "one")
    part = server.collections[only(server)]["partitions"]["cell_0000"]
    part[-77] = [np.zeros(11, np.float32)]  # the mark of another copy's new state
    before = server.ids(only(server))
    with edit(tmp_path / "one") as model:
        model.add([features(106)], ["a"])
    with pytest.raises(LnbnnError, match="also used by another copy of this model"):
        compact(tmp_path / "one")
    assert server.ids(only(server)) == before
    assert answers_as(tmp_path / "one", {**HELD, 6: (106, "a")})


def test_a_mark_that_comes_back_after_the_server_was_killed_is_removed(server, tmp_path):
    # A killed server may forget what was removed last: here the mark of the state before, and that of a killed writer.
    fitted().save(tmp_path / "one")
    part = server.collections[only(server)]["partitions"]["cell_0000"]
    for came_back in (new_mark(tmp_path / "one"), new_mark(tmp_path / "one")):
        part[came_back] = [np.zeros(11, np.float32)]
    (tmp_path / "one").rename(tmp_path / "renamed")
    with edit(tmp_path / "renamed") as model:
        model.add([features(106)], ["a"])
    compact(tmp_path / "renamed")
    assert sum(number < 0 for number in part) == 1
    assert answers_as(tmp_path / "renamed", {**HELD, 6: (106, "a")})


def test_a_writer_killed_before_it_wrote_its_ids_leaves_a_model_that_is_whole(server, tmp_path):
    fitted().save(tmp_path / "one")
    (named,) = (tmp_path / "one").rglob("collection.json")
    left = tmp_path / "one" / "data-000002-0123456789abcdef"
    left.mkdir()
    shutil.copy(named, left)
    assert check_model(tmp_path / "one").problems == ()
    with edit(tmp_path / "one") as model:
        model.add([features(106)], ["a"])
    compact(tmp_path / "one")
    assert check_model(tmp_path / "one").problems == ()
    assert answers_as(tmp_path / "one", {**HELD, 6: (106, "a")})


def test_a_mark_tells_copies_on_two_volumes(tmp_path, monkeypatch):
    """Folders with the same number on two devices; marks of before the device counted are still known."""
    device = {"one": 1, "two": 2}
    monkeypatch.setattr(Path, "stat", lambda path: SimpleNamespace(st_ino=12, st_dev=device[path.name]))
    mark = new_mark(Path("one"))
    assert is_made_in(Path("one"), mark)
    assert not is_made_in(Path("two"), mark)
    family = int.from_bytes(hashlib.blake2b(b"12", digest_size=4).digest(), "big") >> 2
    assert is_made_in(Path("one"), -1 - (family << 32 | 5))


def test_a_mark_tells_a_folder_from_its_copy(tmp_path):
    (tmp_path / "one").mkdir()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for _ in range(100):
        mark = new_mark(tmp_path / "one")
        assert -(1 << 62) <= mark < 0
        assert is_made_in(tmp_path / "one", mark)
        assert not is_made_in(tmp_path / "two", mark)


@pytest.mark.parametrize("uri", [URI, "vectors.db"])
def test_on_a_cluster_the_process_that_has_the_connection_asks(server, tmp_path, monkeypatch, uri):
    """Workers extract: they have no address, no credentials, and cannot open a file that this process holds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vectors.db").mkdir()
    images, labels = grating_set(3, 3)
    params = {"bin_sizes": [4], "step_px": 7, "min_contrast": 0.5, "longest_side": 48}
    model = LocalNBNN(index="milvus", index_params={"uri": uri, "index_type": "FLAT"}, descriptor_params=params)
    model.fit(images, labels).save(tmp_path / "model")
    model = load(tmp_path / "model").set_params(n_jobs=1)
    expected = model.decision_function(images)
    assert not model.fitted().opens_elsewhere
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(model.fitted())
    assert np.array_equal(model.set_params(n_jobs=HereCluster()).decision_function(images), expected)


def test_a_method_with_an_index_per_class_is_refused(server):
    with pytest.raises(InvalidInputError, match="index 'milvus' is one large index"):
        NBNN(index="milvus", index_params={"uri": URI}).fit(*grating_set(2, 2))


def test_a_fusion_with_a_member_on_milvus(server, tmp_path):
    images, labels = grating_set(3, 3)
    params = {"bin_sizes": [4], "step_px": 7, "min_contrast": 0.5, "longest_side": 48}
    members = [
        (
            "on milvus",
            LocalNBNN(index="milvus", index_params={"uri": URI, "index_type": "FLAT"}, descriptor_params=params),
        ),
        ("embedded", LocalNBNN(index="exact", descriptor="root-sift", descriptor_params=params)),
    ]
    folder = tmp_path / "model"
    LateFusion(members).fit(images, labels).save(folder)
    with edit(folder) as model:
        model.add([grating(20.0, seed=77)], ["direction 0"])
        model.remove(1)
    before = load(folder).predict_proba(images)
    compact(folder)
    assert check_model(folder).problems == ()
    assert np.allclose(load(folder).predict_proba(images), before)
    assert len(server.collections) == 1, "that of the state before is gone"
    discard_model(folder)
    assert not server.collections


# ---- interrupted changes ---------------------------------------------------------------------------------------------


def states_of(folder):
    return [str(state) for state in folder.rglob("collection.json")]


def interrupt(server, at, failure, after, work):
    """Let the calls from number ``at`` on fail while ``work`` is done; whether any failed."""
    server.revive()
    server.fails_at, server.failure, server.after = at, failure, after
    try:
        work()
    except (LnbnnError, Killed):
        pass
    finally:
        was_reached = server.n_calls >= at
        server.revive()
    return was_reached


FAILURES = {"away": lambda: fake_milvus.MilvusException(2, "Fail connecting to server"), "killed": Killed}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_change_interrupted_at_any_call_is_done_or_not(server, tmp_path, failure, after, caplog):
    """At every call in turn: the model is whole, as before or as after, and the next change mends what was left."""
    caplog.set_level(logging.CRITICAL)
    at, was_reached = 1, True
    while was_reached:
        folder = tmp_path / f"model-{at}"
        held = dict(HELD)
        fitted().save(folder)
        with edit(folder) as model:
            model.add([features(106)], ["a"])
            model.remove(0)
        held[6] = (106, "a")
        del held[0]
        was_reached = interrupt(server, at, FAILURES[failure], after, lambda folder=folder: compact(folder))
        assert check_model(folder).problems == (), f"call {at}"
        assert answers_as(folder, held), f"call {at}"
        with edit(folder) as model:
            model.add([features(107)], ["b"])
        held[7] = (107, "b")
        compact(folder)
        assert check_model(folder).problems == (), f"call {at}"
        assert answers_as(folder, held), f"call {at}"
        name = json.loads(next(folder.rglob("collection.json")).read_text())["name"]
        assert server.ids(name) == [(number << 20) + row for number in sorted(held) for row in range(12)], f"call {at}"
        assert len(server.rows(name)) == len(server.ids(name)) + 1
        assert len(states_of(folder)) == 1
        at += 1
    assert at > 10, "a change takes some calls"


@pytest.mark.parametrize("lasts", [True, False], ids=["away", "one call"])
@pytest.mark.parametrize("after", [False, True])
def test_a_save_that_fails_at_any_call_leaves_the_index_as_it_was(server, tmp_path, after, lasts, caplog):
    """An index that was never saved, with removals before and after additions, an id of which came again."""
    caplog.set_level(logging.CRITICAL)
    vectors = np.random.default_rng(0).integers(0, 200, (9, 4)).astype(np.uint8)
    at, was_reached = 1, True
    while was_reached:
        index, exact = make_index("milvus", {"uri": URI, "index_type": "FLAT"}), make_index("exact")
        for one in (index, exact):
            one.add(vectors[:5], np.arange(5))
            one.build()
            one.remove(np.array([1, 3]))
            one.add(vectors[5:], np.array([10, 3, 11, 12]))
            one.remove(np.array([11]))
        server.revive()
        server.fails_at, server.after = at, after
        if not lasts:
            server.failure = once(server, FAILURES["away"])
        folder = tmp_path / f"{at}"
        folder.mkdir()
        with suppress(LnbnnError):
            index.save(folder)
        was_reached = server.n_calls >= at
        assert (folder / "collection.json").exists() is not was_reached
        server.revive()
        for again in (False, True):
            if again:
                folder = tmp_path / f"{at} again"
                folder.mkdir()
                index.save(folder)
            assert all(
                np.array_equal(got, expected)
                for got, expected in zip(index.search(vectors, 6), exact.search(vectors, 6), strict=True)
            ), f"call {at}"
        assert server.ids(index._collection.name) == [0, 2, 3, 4, 10, 12], f"call {at}"
        assert len(server.rows(index._collection.name)) == 7, f"call {at}: one mark"
        at += 1
    assert at > 8


def once(server, failure):
    """The failure of one call: after it the server answers again."""

    def fail():
        server.fails_at = None
        return failure()

    return fail


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the dead drop nothing
@pytest.mark.parametrize("failure", FAILURES)
def test_a_fit_interrupted_at_any_call_leaves_nothing(server, tmp_path, failure, monkeypatch, caplog):
    caplog.set_level(logging.CRITICAL)
    collection = sys.modules[MODULES[0]]
    at, was_reached = 1, True
    while was_reached:
        monkeypatch.setattr(collection, "_started", lambda pid, at=at: at)  # as another process each time
        folder = tmp_path / "model"
        was_reached = interrupt(server, at, FAILURES[failure], False, lambda folder=folder: fitted().save(folder))
        monkeypatch.setattr(collection, "_started", lambda pid, at=at: 1000 + at)
        if folder.exists():
            assert answers_as(folder, HELD)
        fitted().save(folder, overwrite=True)
        assert answers_as(folder, HELD), f"call {at}"
        assert len(server.collections) == 1, f"call {at}"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model"], f"call {at}"
        at += 1
    assert at > 10


def test_left_over_rows_are_told_and_removed(server, tmp_path, run_main):
    fitted().save(tmp_path / "model")
    part = server.collections[only(server)]["partitions"]["cell_0000"]
    part |= {(77 << 20) + number: [np.zeros(11, np.float32)] for number in range(5)}
    report = check_model(tmp_path / "model")
    assert report.problems == ()
    (told,) = report.as_json()["left_over"]
    assert told.startswith(f"5 vectors in the collection {only(server)} are left over")
    assert told.endswith(f"lnbnn compact {tmp_path / 'model'} removes them")
    outcome = run_main("check", tmp_path / "model", "--format", "json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["left_over"] == [told]
    assert told in outcome.err
    with edit(tmp_path / "model") as model:
        model.add([features(106)], ["a"])
    compact(tmp_path / "model")
    assert (77 << 20) not in server.ids(only(server))
    assert check_model(tmp_path / "model").left_over == ()


def test_rows_that_are_there_twice_are_told_and_removed(server, tmp_path):
    """Milvus counts them and names each id once; one of two cannot be deleted, so the rest moves."""
    fitted().save(tmp_path / "model")
    before = only(server)
    for part in server.collections[before]["partitions"].values():
        for number in [number for number in part if 0 <= number < 5]:
            part[number] *= 2
    (told,) = check_model(tmp_path / "model").left_over
    assert told.startswith("5 vectors in the collection")
    with edit(tmp_path / "model") as model:
        model.add([features(106)], ["a"])
    compact(tmp_path / "model")
    assert check_model(tmp_path / "model").left_over == ()
    assert only(server) != before
    assert len(server.rows(only(server))) == 7 * 12 + 1
    assert answers_as(tmp_path / "model", {**HELD, 6: (106, "a")})


def test_rows_that_are_there_already_are_not_sent_again(server, tmp_path):
    """Those of a writer that was killed when its rows were there, and its files too, but not the manifest."""
    fitted().save(tmp_path / "model")
    with edit(tmp_path / "model") as model:
        model.add([features(106)], ["a"])
    part = server.collections[only(server)]["partitions"]["cell_0000"]
    part |= {(6 << 20) + row: [np.zeros(11, np.float32)] for row in range(12)}
    compact(tmp_path / "model")
    assert server.ids(only(server)) == [(number << 20) + row for number in range(7) for row in range(12)]


def test_missing_rows_are_found(server, tmp_path):
    fitted().save(tmp_path / "model")
    part = server.collections[only(server)]["partitions"]["cell_0000"]
    for number in range(3):
        del part[number]
    (problem,) = check_model(tmp_path / "model").problems
    assert "lacks 3 of the model's vectors; fit the model again" in problem
    with edit(tmp_path / "model") as model:
        model.add([features(106)], ["a"])
    with pytest.raises(ModelFormatError, match="lacks 3"):
        compact(tmp_path / "model")


# ---- what is refused -------------------------------------------------------------------------------------------------


def refused(work):
    with pytest.raises(LnbnnError) as told:
        work()
    assert "\n" not in str(told.value)
    return str(told.value)


def test_a_missing_collection(server, tmp_path):
    fitted().save(tmp_path / "model")
    server.collections.clear()
    assert "is missing; it was removed, or this is another server" in refused(lambda: load(tmp_path / "model"))


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        (100, "can't find collection[database=default]", "is missing"),
        (1, "collection not found[collection=x]", "is missing"),
        (65535, "collection 'x' does not exist", "is missing"),
        (901, "node not found[node=7]", "Milvus does not answer (node not found[node=7])"),
        (500, "channel not found[channel=by-dev-rootcoord-dml_3]", "Milvus does not answer"),
        (503, "channel not available[channel=x]: no available shard delegator found", "Milvus does not answer"),
        (600, "segment not found[segment=44]", "Milvus does not answer"),
        (65535, "partition name cell_0003 not found", "Milvus could not search (partition name cell_0003 not found)"),
        (65535, "auth check failure, please check username and password", "Milvus wants other credentials"),
    ],
)
def test_what_milvus_says_becomes_one_line(server, code, text, told):
    """Only of a collection that is missing a user is told to fit again: a node that restarts comes back."""
    index = index_of([[1, 2], [3, 4]])
    server.fails_at, server.failure = server.n_calls + 1, lambda: fake_milvus.MilvusException(code, text)
    line = refused(lambda: index.search(np.array([[1, 2]], np.uint8), 1))
    assert told in line
    assert ("fit the model again" in line) == (told == "is missing")
    server.revive()


def test_a_collection_of_another_length(server, tmp_path):
    fitted().save(tmp_path / "model")
    server.collections[only(server)]["dim"] = 7
    assert "holds vectors of length 7, the model has" in refused(lambda: load(tmp_path / "model"))


def test_a_server_that_is_away(server, tmp_path):
    model = fitted()
    model.save(tmp_path / "model")
    server.fails_at = 0
    for work in (
        lambda: load(tmp_path / "model"),
        lambda: model.predict(QUERIES),
        lambda: compact(tmp_path / "model"),
        lambda: fitted().save(tmp_path / "other"),
    ):
        assert "Milvus does not answer" in refused(work)
    with edit(tmp_path / "model") as changed_model:  # waits in the files
        changed_model.add([features(106)], ["a"])
    server.revive()
    assert answers_as(tmp_path / "model", {**HELD, 6: (106, "a")})
    assert not (tmp_path / "other").exists()


def test_an_index_that_holds_nothing_is_refused(server):
    server.holds_nothing = True
    with pytest.raises(LnbnnError, match="took the index DISKANN but put no vectors into it"):
        index_of([[1, 2], [3, 4]], index_type="DISKANN")


def test_a_model_cannot_send_queries_to_a_stranger(server, tmp_path, monkeypatch):
    """The address in a model is not trusted, unless it is of this machine or the user names it too."""
    monkeypatch.setenv("LNBNN_MILVUS_TOKEN", "root:secret")
    model = make(index="milvus", index_params={"uri": "http://vectors.example:19530", "index_type": "FLAT"})
    model.fit([features(number) for number in range(4)], list("aabb")).save(tmp_path / "model")
    server.calls.clear()
    told = refused(lambda: load(tmp_path / "model"))
    assert told.endswith("to allow the connection, set LNBNN_MILVUS_URI=http://vectors.example:19530")
    assert not server.calls
    monkeypatch.setenv("LNBNN_MILVUS_URI", "http://vectors.example:19530")
    load(tmp_path / "model")
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"secret" not in path.read_bytes()


def test_a_file_that_is_missing(server, tmp_path):
    model = make(index="milvus", index_params={"uri": str(tmp_path / "vectors.db"), "index_type": "FLAT"})
    model.fit([features(number) for number in range(4)], list("aabb")).save(tmp_path / "model")
    assert "vectors.db, which is missing" in refused(lambda: load(tmp_path / "model"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"uri": ""}, "uri must be a file whose name ends in .db, or http://HOST:PORT"),
        ({"uri": "vectors"}, "got 'vectors'"),
        ({"uri": "ftp://host/x.db"}, "uri must be"),
        ({"uri": 3}, "uri must be"),
        ({"index_type": "ivf flat"}, "index_type must be a name such as IVF_FLAT"),
        ({"n_cells": 1001}, "n_cells must be a whole number from 1 to 1000"),
        ({"n_cell_probes": 0}, "n_cell_probes"),
        ({"n_probes": 0}, "n_probes"),
        ({"ef": "many"}, "ef"),
        ({"mmap": "yes"}, "mmap must be true or false"),
        ({"max_pending": -1}, "max_pending"),
        ({"token": "x"}, "'milvus' has no setting 'token'"),
    ],
)
def test_bad_settings(server, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        make_index("milvus", settings)


def test_too_many_neighbors(server):
    index = index_of(np.zeros((17_000, 1)))
    with pytest.raises(InvalidInputError, match="Milvus finds at most 16384 neighbors at once; got 16500"):
        index.search(np.zeros((1, 1), np.uint8), 16_500)


@pytest.mark.parametrize(
    ("kind", "built", "searched"),
    [
        ("FLAT", {}, {}),
        ("IVF_SQ8", {"nlist": 512}, {"nprobe": 8}),
        ("HNSW", {"M": 16, "efConstruction": 200}, {"ef": 64}),
        ("DISKANN", {}, {"search_list": 64}),
        ("SOME_LATER_ONE", {}, {}),
    ],
)
def test_settings_of_the_engine_are_passed_on(server, kind, built, searched):
    index = index_of([[1, 2], [3, 4]], index_type=kind)
    assert index._build_options() == built
    server.calls.clear()
    index.search(np.array([[1, 2]], np.uint8), 1)
    assert server.calls[-1][1]["search_params"]["params"] == searched


def test_a_damaged_file_of_the_state_is_refused(server, tmp_path):
    index = index_of([[1, 2], [3, 4]])
    index.save(tmp_path)
    path = tmp_path / "collection.json"
    whole = json.loads(path.read_text())
    for change in ({"mark": 5}, {"n_dims": 0}, {"dtype": "int8"}, {"name": "a b"}, {"name": 3}, {"more": 1}):
        path.write_text(json.dumps(whole | change))
        with pytest.raises(ModelFormatError, match=r"collection\.json"):
            type(index).load(tmp_path, index.settings())
    path.write_text(json.dumps(whole))
    assert len(type(index).load(tmp_path, index.settings())) == 2


def test_a_relative_file_is_found_from_everywhere(server, tmp_path, monkeypatch):
    (tmp_path / "vectors.db").mkdir()
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path)
    index = index_of([[1, 2], [3, 4]], uri="vectors.db")
    index.save(tmp_path / "files")
    monkeypatch.chdir(os.sep)
    type(index).load(Path(tmp_path / "files"), index.settings())
    assert server.calls[0] == ("connect", {"uri": str(tmp_path / "vectors.db"), "token": None})

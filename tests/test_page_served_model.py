"""The model behind the page: created, changed, undone step by step, reopened; intact whatever fails."""

from __future__ import annotations

import shutil

import pytest
from paging import picture, quick_model

from lnbnn.errors import InvalidInputError, LnbnnError
from lnbnn.model.changes import check_model, edit, list_images
from lnbnn.page import served_model
from lnbnn.page.photo_store import PhotoStore, photo_store_folder
from lnbnn.page.served_model import Photo, ServedModel
from lnbnn.page.undo import Added, Relabeled, Removed, UndoList


@pytest.fixture
def make(tmp_path):
    """``make(path)``: a served of a model, started."""
    opened = []

    def made(path=tmp_path / "mine"):
        photo_store = PhotoStore(photo_store_folder(path))
        photo_store.open()
        served = ServedModel(path, photo_store, new=quick_model)
        served.start()
        opened.append(photo_store)
        return served

    yield made
    for photo_store in opened:
        photo_store.close()


@pytest.fixture
def sent(tmp_path):
    """``sent(served, kind, seeds)``: photos in the store, as if just uploaded."""

    def put(served, kind, seeds):
        photos = []
        for seed in seeds:
            (tmp_path / "sent").write_bytes(picture(kind, seed))
            name = f"{kind}-{seed}.png"
            photos.append(Photo(served.photo_store.keep(tmp_path / "sent", name), name))
            served.photo_store.release(photos[-1].digest)
        return photos

    return put


@pytest.fixture
def mine(make, sent):
    """A model begun here: rows 0, 1 and columns 2, 3."""
    served = make()
    served.add([(sent(served, "rows", [1, 2]), "rows"), (sent(served, "columns", [1, 2]), "columns")])
    return served


def labels(served):
    return {number: image.label for number, image in served.opened.images.items()}


def digests(served):
    return {image.digest for image in served.opened.images.values()}


def kept(served):
    return {path.stem for path in served.photo_store.folder.iterdir() if len(path.stem) == 64}


# ---- from nothing ----------------------------------------------------------------------------------------------------


def test_a_model_begins_with_its_first_photo(make, sent):
    served = make()
    assert served.opened is None
    assert not served.path.exists()
    with pytest.raises(InvalidInputError, match="the model is empty"):
        served.now()
    (result,) = served.add([(sent(served, "rows", [1]), "rows")])
    assert [image["label"] for image in result["added"]] == ["rows"]
    assert labels(served) == {0: "rows"}
    assert check_model(served.path).problems == ()
    served.add([(sent(served, "columns", [1]), "columns")])
    (answer,) = served.opened.classifier.iter_answers([served.photo_store.path_of(next(iter(digests(served))))])
    assert answer.label in ("rows", "columns")


def test_what_cannot_be_used_is_named_as_it_was_sent(mine, sent, tmp_path):
    flat = tmp_path / "flat.png"
    shutil.copyfile(shelf_flat(tmp_path), flat)
    photo = Photo(mine.photo_store.keep(flat, "flat.png"), "flat.png")
    (result,) = mine.add([([*sent(mine, "rows", [1, 9]), photo], "rows")])
    assert [image["id"] for image in result["added"]] == [4]
    assert result["duplicates"] == result["doubles"] == [["rows-1.png", 0]]
    reasons = dict(result["skipped"])
    assert reasons["rows-1.png"] == "rows-1.png: the same image is in the model as image 0."
    assert reasons["flat.png"].startswith("flat.png: no descriptors")


def shelf_flat(tmp_path):
    from PIL import Image

    Image.new("L", (80, 60), 90).save(tmp_path / "gray.png")
    return tmp_path / "gray.png"


def test_one_bad_batch_does_not_stop_the_others(mine, sent):
    good = sent(mine, "rows", [5])
    results = mine.add([([Photo("0" * 64, "gone.png")], "rows"), (good, "rows")])
    assert isinstance(results[0], InvalidInputError)
    assert "gone.png: the photo is no longer here" in str(results[0])
    assert len(results[1]["added"]) == 1


def test_labels_are_of_the_models_kind(make, sent, tmp_path, photos):
    import lnbnn

    files = sorted(photos.rglob("*.png"))
    lnbnn.LocalNBNN(index="exact").fit(files, [int(file.parent.name == "rows") for file in files]).save(
        tmp_path / "mine"
    )
    served = make()
    (added,) = served.add([(sent(served, "rows", [1]), "1")])
    assert added["added"][0]["label"] == 1
    (error,) = served.add([(sent(served, "rows", [2]), "one")])
    assert "whole numbers" in str(error)


# ---- steps back ------------------------------------------------------------------------------------------------------


def test_every_step_can_be_taken_back_in_order(mine, sent):
    start = labels(mine)
    mine.relabel([0], "stripes")
    mine.remove([1, 2])
    mine.add([(sent(mine, "checks", [4]), "checks")])
    assert labels(mine) == {0: "stripes", 3: "columns", 4: "checks"}
    assert mine.undo() == {"undone": "adding 1 photo"}
    assert mine.undo() == {"undone": "removing 2 photos"}
    assert sorted(labels(mine).values()) == ["columns", "columns", "rows", "stripes"]
    assert mine.undo() == {"undone": "relabeling 1 photo"}
    assert sorted(labels(mine).values()) == sorted(start.values())
    assert check_model(mine.path).problems == ()


def test_a_step_before_a_removal_finds_its_photos_under_their_new_ids(mine):
    mine.relabel([1], "stripes")
    mine.remove([1])
    mine.undo()
    assert labels(mine) == {0: "rows", 2: "columns", 3: "columns", 4: "stripes"}
    mine.undo()
    assert labels(mine) == {0: "rows", 2: "columns", 3: "columns", 4: "rows"}


def test_taking_back_the_first_photos_makes_the_model_empty_again(mine, sent):
    mine.undo()
    assert labels(mine) == {0: "rows", 1: "rows"}
    mine.undo()
    assert mine.opened is None
    assert not mine.path.exists()
    assert kept(mine) == set(), "photos that were sent are gone"
    with pytest.raises(InvalidInputError, match="nothing to undo"):
        mine.undo()
    mine.add([(sent(mine, "checks", [1]), "checks")])
    assert labels(mine) == {0: "checks"}


def test_all_photos_removed_and_back(mine):
    before = digests(mine)
    mine.remove([0, 1, 2, 3])
    assert mine.opened is None
    mine.undo()
    assert digests(mine) == before
    assert sorted(labels(mine).values()) == ["columns", "columns", "rows", "rows"]


def test_a_model_of_others_is_never_discarded(make, model, tmp_path):
    shutil.copytree(model, tmp_path / "mine")
    served = make()
    with pytest.raises(InvalidInputError, match="at least one photo"):
        served.remove(list(served.opened.images))
    assert len(list_images(served.path)) == 9


def test_photos_that_lie_elsewhere_come_back_too(make, model, tmp_path, make_photos):
    shutil.copytree(model, tmp_path / "mine")
    served = make()
    result = served.remove([3, 4])
    assert result["n_gone_for_good"] == 0
    served.undo()
    assert sorted(labels(served).values()) == ["checks"] * 3 + ["columns"] * 3 + ["rows"] * 3


def test_photos_whose_files_are_gone_are_removed_for_good(make, sent, mine):
    for path in mine.photo_store.folder.glob("*.png"):
        path.unlink()
    assert mine.remove([0])["n_gone_for_good"] == 1
    assert mine.steps.last == "adding 2 photos"


def test_photos_go_when_no_step_needs_them(mine):
    (gone,) = (image.digest for number, image in mine.opened.images.items() if number == 0)
    mine.remove([0])
    mine.clean()
    assert gone in kept(mine), "it may come back"
    mine.steps = UndoList()
    mine.clean()
    assert gone not in kept(mine)
    assert kept(mine) == digests(mine)


def test_steps_in_words_and_under_other_ids():
    steps = UndoList()
    steps.push(Added((1, 2)))
    steps.push(Relabeled(((2, "a"),)))
    steps.push(Removed(((3, "d" * 64, "a", "x.png"),)))
    assert steps.last == "removing 1 photo"
    assert steps.digests() == {"d" * 64}
    steps.renumber({2: 7, 3: 8})
    assert [steps.pop() for _ in range(4)] == [
        Removed(((8, "d" * 64, "a", "x.png"),)),
        Relabeled(((7, "a"),)),
        Added((1, 7)),
        None,
    ]
    for number in range(150):
        steps.push(Added((number,)))
    assert len(steps._steps) == 100


# ---- others ----------------------------------------------------------------------------------------------------------


def test_changes_of_other_processes_are_followed(mine):
    assert not mine.follow()
    before = mine.opened
    with edit(mine.path) as editor:
        editor.relabel(0, "stripes")
    assert mine.follow()
    assert labels(mine)[0] == "stripes"
    assert before.images[0].label == "rows", "who asked before keeps what he asked"
    with edit(mine.path) as editor:
        editor.remove(1)
    mine.relabel([0], "rows")
    assert labels(mine) == {0: "rows", 2: "columns", 3: "columns"}


def test_a_step_on_photos_that_others_removed_is_taken_back_for_the_rest(mine):
    mine.relabel([0, 1], "stripes")
    with edit(mine.path) as editor:
        editor.remove(0)
    mine.follow()
    mine.undo()
    assert labels(mine) == {1: "rows", 2: "columns", 3: "columns"}


def test_another_writer_is_waited_for_but_not_for_ever(mine, monkeypatch):
    monkeypatch.setattr(served_model, "_WAIT_S", 0.1)
    with edit(mine.path), pytest.raises(LnbnnError, match="is changing this model"):
        mine.relabel([0], "stripes")
    assert labels(mine)[0] == "rows"
    mine.relabel([0], "stripes")


def test_a_model_that_cannot_be_opened_costs_no_photo(mine, make):
    before = kept(mine)
    manifest = mine.path / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content[:100])
    mine.opened = None
    mine.steps = UndoList()
    mine.clean()
    assert kept(mine) == before
    with pytest.raises(LnbnnError):
        mine.follow()
    manifest.write_bytes(content)
    mine.open()
    assert len(mine.opened.images) == 4


def test_a_folder_of_other_files_is_refused(make, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInputError, match="holds other files"):
        make()


def test_choosing_again_keeps_ids_labels_and_photos(mine, sent, monkeypatch):
    monkeypatch.setattr(served_model, "AUTO", "balanced")  # auto itself is tested elsewhere, and takes a while
    mine.relabel([0], "stripes")
    before = [(image.id, image.label, image.digest) for image in mine.opened.images.values()]
    mine.improve()
    assert [(image.id, image.label, image.digest) for image in mine.opened.images.values()] == before
    assert mine.opened.classifier.get_params()["index"] == "faiss", "what was chosen, not what it began with"
    mine.undo()
    assert labels(mine)[0] == "rows"

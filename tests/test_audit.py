"""The audit: what was put wrong on purpose is found, and shown as table, JSON and page."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import re
import subprocess

import numpy as np
import pytest
from PIL import Image
from synthetic import grating, make_features

from lnbnn import LocalNBNN
from lnbnn.errors import InvalidInputError
from lnbnn.trust.audit import audit
from lnbnn.trust.audit_page import _Pictures, audit_page

CENTERS = np.random.default_rng(99).integers(20, 108, (5, 8))


def image(place, seed, spread=6.0):
    rng = np.random.default_rng(1000 * place + seed)
    return make_features(np.clip(CENTERS[place] + rng.normal(0, spread, (30, 8)), 0, 127).astype(np.uint8))


def model_of(entries, **changes):
    """A model of (features, label) pairs."""
    params = {"n_neighbors": 5, "index": "exact", "query_budget": None, "n_jobs": 1, "location_weight": 0.0}
    return LocalNBNN(**{**params, **changes}).fit([one for one, _ in entries], [label for _, label in entries])


@pytest.fixture
def entries():
    return [(image(place, seed), "abcde"[place]) for place in range(5) for seed in range(5)]


def test_a_clean_set_has_nothing_wrong(entries):
    found = audit(model_of(entries))
    assert (found.n_images, found.n_classes, found.accuracy) == (25, 5, 1.0)
    assert found.suspects == ()
    assert found.near_duplicates == ()
    assert found.confused == ()


def test_swapped_labels_are_found(entries):
    entries[3] = (entries[3][0], "b")
    entries[12] = (entries[12][0], "e")
    found = audit(model_of(entries))
    assert {(s.id, s.label, s.suggested) for s in found.suspects} == {(3, "b", "a"), (12, "e", "c")}
    for suspect in found.suspects:
        assert suspect.probability > 0.5
        assert suspect.doubt > 0
        assert suspect.closest_label == suspect.suggested
    assert found.accuracy == pytest.approx(23 / 25)


def test_ids_are_those_of_the_model(entries):
    entries[12] = (entries[12][0], "e")
    found = audit(model_of(entries).remove([0, 5]))
    assert [s.id for s in found.suspects] == [12]


def test_copies_are_found_across_classes_first(entries):
    rng = np.random.default_rng(0)
    rows = entries[7][0].descriptors.astype(int) + rng.integers(-1, 2, (30, 8))
    entries.append((make_features(np.clip(rows, 0, 127).astype(np.uint8)), "e"))
    entries.append((entries[0][0], "a"))
    found = audit(model_of(entries)).near_duplicates
    assert [(d.id, d.other_id, d.across_classes, d.same_bytes) for d in found] == [
        (7, 25, True, False),
        (0, 26, False, True),
    ]


def test_strangers_are_found(entries):
    strange = np.random.default_rng(3).integers(0, 127, (30, 8), dtype=np.uint8)
    entries.append((make_features(strange), "c"))
    found = audit(model_of(entries)).strangers
    assert found[0].id == 25


def test_confused_classes_are_counted(entries):
    for place in (0, 1):
        entries[place] = (entries[place][0], "b")
    found = audit(model_of(entries)).confused
    assert [(c.label, c.answer, c.n_images) for c in found] == [("b", "a", 2)]
    assert found[0].share == pytest.approx(2 / 7)


def test_an_image_alone_in_its_class_is_no_suspect(entries):
    entries.append((image(0, 77), "single"))
    found = audit(model_of(entries))
    assert 25 not in [s.id for s in found.suspects]


def test_what_cannot_be_audited(entries):
    with pytest.raises(InvalidInputError, match="at least two"):
        audit(model_of(entries[:5]))
    with pytest.raises(InvalidInputError, match="min_probability"):
        audit(model_of(entries), min_probability=2.0)


def test_page_is_self_contained_and_escapes(entries):
    entries = [(one, "<b>" if label == "b" else label) for one, label in entries]
    entries[3] = (entries[3][0], "<b>")
    page, _ = audit_page(audit(model_of(entries)), model="my <model>")
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "my &lt;model&gt;" in page
    assert not re.findall(r"(?:src|href)='(?!data:)", page)
    assert "picture not found" in page


def test_page_keeps_hostile_names_harmless_and_apart(entries):
    names = {"a": "two\nlines", "b": r"two\x0alines", "c": "caf\udce9", "d": "caf\udcea", "e": "it's"}
    entries = [(one, names[label]) for one, label in entries]
    entries[3], entries[9] = (entries[3][0], names["b"]), (entries[9][0], names["a"])
    found = audit(model_of(entries))
    first = found.suspects[0]
    found = dataclasses.replace(found, suspects=(dataclasses.replace(first, name="a\0\x1b.jpg"), *found.suspects[1:]))
    page, _ = audit_page(found, model="my\x1bmodel")
    assert page.replace("\n", "").isprintable()
    assert r"a\x00\x1b.jpg" in page
    assert {r"two\x0alines", r"two\x5cx0alines"} & {html.unescape(text) for text in re.findall(r"right'>(.*?)<", page)}
    for command in re.findall("<code>(.*?)</code>", page):
        words = subprocess.run(["bash", "-c", f"printf '%s\\0' {html.unescape(command)}"], capture_output=True).stdout
        word = [os.fsdecode(word) for word in words.split(b"\0")]
        assert word[2] == "my\x1bmodel"
        assert "--label" not in word or word[word.index("--label") + 1] in names.values()


@pytest.fixture
def photo_model(tmp_path, fit):
    """Stripes of four directions; one photo is in the wrong folder."""
    for place in range(4):
        for number in range(4):
            path = (
                tmp_path / "photos" / f"{'d' if (place, number) == (0, 1) else 'abcd'[place]}" / f"{place}{number}.png"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(grating(45.0 * place, seed=10 * place + number, side=96)).save(path)
    assert fit(tmp_path / "photos", tmp_path / "model").code == 0
    return tmp_path / "model"


def test_the_command(photo_model, tmp_path, run):
    out = run("audit", photo_model, "-o", tmp_path / "audit.html", "--images", tmp_path / "photos").out
    assert "labels that look wrong: " in out
    assert "01.png" in out
    page = (tmp_path / "audit.html").read_text()
    assert "data:image/jpeg;base64," in page
    assert "--label a</code>" in page
    found = json.loads(run("audit", photo_model, "--format", "json", "-o", tmp_path / "audit.json").out)
    assert ("01.png", "a") in [(s["name"][-6:], s["suggested"]) for s in found["suspects"]]
    assert json.loads((tmp_path / "audit.json").read_text()) == found
    rows = run("audit", photo_model, "--format", "csv").out.splitlines()
    assert rows[0] == "id,label,suggested,probability,doubt,closest_id,name"
    assert len(rows) == 1 + len(found["suspects"])


def test_the_command_refuses_other_endings(photo_model, run_main):
    assert run_main("audit", photo_model, "-o", "audit.pdf").code == 2


def test_only_pictures_in_named_folders_are_on_the_page(photo_model, tmp_path, run):
    outcome = run("audit", photo_model, "-o", tmp_path / "audit.html", "--min-probability", "0")
    page = (tmp_path / "audit.html").read_text()
    n_pictures = page.count("<figure>")
    assert n_pictures > 0
    assert "data:image" not in page
    assert f"{n_pictures} pictures are not shown" in page
    assert "--images FOLDER" in page
    assert f"{n_pictures} pictures are not in the report; say where they are: --images FOLDER" in outcome.err
    (tmp_path / "photos" / "a" / "00.png").rename(tmp_path / "secret.png")
    (tmp_path / "photos" / "a" / "00.png").symlink_to(tmp_path / "secret.png")  # a link out of the folder
    options = ["--images", tmp_path / "photos" / "a", "--images", tmp_path / "photos" / "b", "--min-probability", "0"]
    run("audit", photo_model, "-o", tmp_path / "audit.html", *options)
    figures = (tmp_path / "audit.html").read_text().split("<figure>")[1:]
    shown = {re.findall(r"<br>(\S+\.png)", figure)[0] for figure in figures if "data:image" in figure}
    assert shown
    assert shown <= {"02.png", "03.png", "10.png", "11.png", "12.png", "13.png"}


def test_a_folder_whose_name_only_begins_alike_is_another(tmp_path, save_texture):
    pictures = _Pictures([tmp_path / "photos"])
    for name, is_shown in (("photos/1.png", True), ("photos-secret/1.png", False), ("photos/../other/1.png", False)):
        save_texture(tmp_path / os.path.normpath(name), "rows")
        (tmp_path / "photos").mkdir(exist_ok=True)
        assert ("data:image" in pictures.figure(str(tmp_path / name), "")) is is_shown
    assert "picture not found" in pictures.figure("a\0b", "")
    assert pictures.n_missing == 3

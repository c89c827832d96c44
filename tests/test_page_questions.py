"""What the page says of a photo is what the command line says of it."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from lnbnn.classifiers import load
from lnbnn.page.photo_store import PhotoStore
from lnbnn.page.questions import answer, evidence
from lnbnn.page.served_model import Opened
from lnbnn.trust.evidence import explain


@pytest.fixture
def opened(model):
    classifier = load(model)
    return Opened(classifier, 1, {image.id: image for image in classifier.images_})


def test_an_answer_is_that_of_the_command_line(opened, model, save_texture, tmp_path, run):
    photo = save_texture(tmp_path / "new.png", "rows")
    said = json.loads(run("predict", model, photo, "--format", "json", "--top", "2").out)
    found = answer(opened, photo, "as it was sent.png", top=2, reject=None)
    assert found == said | {"path": "as it was sent.png", "probabilities": []}
    assert found["label"] == "rows"


def test_a_file_that_is_no_picture_is_called_as_it_was_sent(opened, tmp_path):
    (tmp_path / "0123").write_bytes(b"no picture")
    found = answer(opened, tmp_path / "0123", "holiday.jpg", top=5, reject=None)
    assert found["label"] is None
    assert found["error"].startswith("holiday.jpg: not a picture")


def test_evidence_is_that_of_the_command_line_with_its_map(opened, model, save_texture, tmp_path, run):
    photo = save_texture(tmp_path / "new.png", "rows")
    options = ["--label", "rows", "--against", "checks", "--format", "json"]
    said = json.loads(run("explain", model, photo, "-o", tmp_path / "why.png", *options).out)
    found = evidence(opened, PhotoStore(tmp_path / "none"), photo, label="rows", against="checks", top=20)
    for name in ("answer", "label", "against", "ranking", "support", "photos", "pairs", "n_patches", "itself"):
        assert found[name] == said[name], name
    assert all(pair["match"] is not None for pair in found["pairs"]), "the labeled photos are at hand"
    values = np.frombuffer(base64.b64decode(found["map"]["values"]), np.int8)
    values = values.reshape(found["map"]["height"], found["map"]["width"])
    expected = explain(opened.classifier, photo, label="rows", against="checks").map
    strong = np.abs(expected) > np.quantile(np.abs(expected), 0.5)
    assert (np.sign(values[strong]) == np.sign(expected[strong])).mean() > 0.99
    assert np.abs(values).max() == 127
    one = evidence(opened, PhotoStore(tmp_path / "none"), photo, label=None, against=None, top=1)
    assert len(one["photos"]) == 1
    assert one["n_photos"] >= 1

"""What is known of the published sets."""

import hashlib
from dataclasses import replace

import pytest

from lnbnn.data import DATASETS
from lnbnn.data.published import PublishedSet, find_set, load_set
from lnbnn.errors import DatasetError
from lnbnn.params import resolve


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_registered_set_is_well_formed(name):
    kind = resolve(DATASETS, name, "set")
    assert kind.name == name
    assert kind.url.startswith("https://")
    assert kind.variable == f"LNBNN_{name.upper()}"
    for archive in kind.archives:
        method, _, digest = archive.checksum.partition(":")
        assert len(digest) == 2 * hashlib.new(method).digest_size
        assert archive.n_bytes < kind.unpacked_bytes


@pytest.fixture
def kind(tmp_path):
    for name in ("Set/ant/image_0001.jpg", "Set/bee/image_0001.jpg", "Set/bee/thumb.jpg", "Set/none/image_0001.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    page = "https://example.org"
    pattern = r"[^/]+/image_\d{4}\.jpg"
    return PublishedSet("tiny", "Tiny Set", "Set", pattern, "none", 2, 2, page, page, (), 10**6, "LNBNN_TINY")


def test_found_by_a_path_or_its_variable(kind, tmp_path, monkeypatch):
    assert find_set(kind, tmp_path) == tmp_path / "Set"
    assert find_set(kind, tmp_path / "Set") == tmp_path / "Set"
    monkeypatch.delenv("LNBNN_TINY", raising=False)
    with pytest.raises(DatasetError, match=r"Tiny Set is not at any known place; fetch it with 'lnbnn data tiny DIR'"):
        find_set(kind)
    monkeypatch.setenv("LNBNN_TINY", str(tmp_path))
    assert find_set(kind) == tmp_path / "Set"


def test_the_background_and_other_files_are_left_out(kind, tmp_path):
    images = load_set(kind, tmp_path)
    assert images.labels == ("ant", "bee")
    assert "1 picture not named as Tiny Set's: left out" in images.notes
    with pytest.raises(DatasetError, match="expected the 3 classes of Tiny Set; got 2"):
        load_set(replace(kind, n_classes=3), tmp_path)

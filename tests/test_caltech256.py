"""Caltech 256 in the publisher's layout."""

import pytest

from lnbnn.data.caltech256 import CALTECH256, find_caltech256, load_caltech256
from lnbnn.errors import DatasetError


@pytest.fixture
def layout(tmp_path):
    """Two pictures in each of 256 classes and the clutter, and what was forgotten in the publisher's folders."""
    root = tmp_path / "256_ObjectCategories"
    names = [f"{n:03d}.class-{n}/{n:03d}_{m:04d}.jpg" for n in range(1, 257) for m in (1, 2)]
    names += ["257.clutter/257_0001.jpg", "198.class-198/RENAME2", "056.class-56/greg/vision309/056_0001.jpg"]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return tmp_path


def test_classes_without_the_clutter_and_the_forgotten_files(layout):
    images = load_caltech256(layout)
    assert len(images) == 512
    assert len(set(images.labels)) == 256
    assert images.labels[0] == "001.class-1"
    assert "257.clutter" not in images.labels
    assert not any("greg" in path for path in images.paths)
    assert any("1 picture not named as Caltech 256's" in text for text in images.notes)
    assert load_caltech256(layout / "256_ObjectCategories") == images


def test_a_missing_class_is_refused(layout):
    for path in (layout / "256_ObjectCategories" / "007.class-7").iterdir():
        path.unlink()
    with pytest.raises(DatasetError, match="expected the 256 classes of Caltech 256; got 255"):
        load_caltech256(layout)


def test_found_by_its_variable(layout, monkeypatch, tmp_path):
    monkeypatch.setenv("LNBNN_CALTECH256", str(layout))
    assert find_caltech256() == layout / "256_ObjectCategories"
    with pytest.raises(
        DatasetError, match=r"not at .*nowhere; fetch it with 'lnbnn data caltech256 DIR'.*LNBNN_CALTECH256"
    ):
        find_caltech256(tmp_path / "nowhere")


def test_what_is_known_of_it():
    assert CALTECH256.n_images == 30607
    assert CALTECH256.url.startswith(CALTECH256.page)

"""Caltech 101, on real photographs where it is there, and Caltech 256, in the publisher's layout."""

import pytest

from lnbnn import LocalNBNN
from lnbnn.data.caltech import CALTECH101, CALTECH256, load_caltech101, load_caltech256
from lnbnn.data.published import find_set
from lnbnn.data.splits import split_images
from lnbnn.errors import DatasetError

CLASSES = ("accordion", "cellphone", "dollar_bill", "grand_piano", "inline_skate", "joshua_tree", "pagoda", "stop_sign")


@pytest.fixture(scope="module")
def eight_classes():
    try:
        images = load_caltech101()
    except DatasetError as error:
        pytest.skip(str(error))
    kept = [place for place, label in enumerate(images.labels) if label in CLASSES]
    return images.take(kept)


@pytest.mark.data
def test_a_few_classes_are_recognized(eight_classes):
    train, test = split_images(eight_classes, n_train=5, n_test=5, seed=3)
    classifier = LocalNBNN().fit(train.paths, train.labels)
    # Chance is 12.5 %. These classes are easy ones: a fall below 85 % means that something broke.
    assert classifier.score(test.paths, test.labels) >= 0.85


def test_a_path_that_is_not_there_is_said(tmp_path):
    with pytest.raises(DatasetError, match="LNBNN_CALTECH101"):
        find_set(CALTECH101, tmp_path / "nowhere")


def test_publishers_layout_without_the_background(tmp_path):
    for number in range(101):
        (tmp_path / "101_ObjectCategories" / f"class_{number:03d}").mkdir(parents=True)
        (tmp_path / "101_ObjectCategories" / f"class_{number:03d}" / "image_0001.jpg").write_bytes(b"x")
    background = tmp_path / "101_ObjectCategories" / "BACKGROUND_Google"
    background.mkdir()
    (background / "image_0001.jpg").write_bytes(b"x")
    images = load_caltech101(tmp_path)
    assert len(images) == 101
    assert "BACKGROUND_Google" not in images.labels


def test_another_number_of_classes_is_refused(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").write_bytes(b"x")
    with pytest.raises(DatasetError, match="expected the 101 classes"):
        load_caltech101(tmp_path)


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
    assert "a part of Caltech 256: 512 of 29,780 images" in images.notes
    assert load_caltech256(layout / "256_ObjectCategories") == images


def test_a_missing_class_is_refused(layout):
    for path in (layout / "256_ObjectCategories" / "007.class-7").iterdir():
        path.unlink()
    with pytest.raises(DatasetError, match="expected the 256 classes of Caltech 256; got 255"):
        load_caltech256(layout)


def test_found_by_its_variable(layout, monkeypatch, tmp_path):
    monkeypatch.setenv("LNBNN_CALTECH256", str(layout))
    assert find_set(CALTECH256) == layout / "256_ObjectCategories"
    with pytest.raises(
        DatasetError, match=r"not at .*nowhere; fetch it with 'lnbnn data caltech256 DIR'.*LNBNN_CALTECH256"
    ):
        find_set(CALTECH256, tmp_path / "nowhere")


def test_what_is_known_of_it():
    assert CALTECH256.n_images == 30607
    assert CALTECH256.url.startswith(CALTECH256.page)

"""On real photographs: a few classes of Caltech 101, when it is there."""

import pytest

from lnbnn import LocalNBNN
from lnbnn.data.caltech101 import find_caltech101, load_caltech101
from lnbnn.data.folder import LabelledImages
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
    return LabelledImages(tuple(images.paths[i] for i in kept), tuple(images.labels[i] for i in kept))


@pytest.mark.data
def test_a_few_classes_are_recognised(eight_classes):
    train, test = split_images(eight_classes, n_train=5, n_test=5, seed=3)
    classifier = LocalNBNN().fit(train.paths, train.labels)
    # Chance is 12.5 %. These classes are easy ones: a fall below 85 % means that something broke.
    assert classifier.score(test.paths, test.labels) >= 0.85


def test_a_path_that_is_not_there_is_said(tmp_path):
    with pytest.raises(DatasetError, match="LNBNN_CALTECH101"):
        find_caltech101(tmp_path / "nowhere")


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

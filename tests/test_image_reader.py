"""Reading labeled images for a model: ids in order, skipped images and their reasons, duplicates."""

from __future__ import annotations

import pytest
from PIL import Image
from synthetic import flat_image, grating, small_sift

from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.model.image_reader import ImageReader, NumberedPath


def read(reader, images, *, on_error="skip", first_id=0):
    labels = [f"label {place}" for place in range(len(images))]
    return list(reader.read(images, labels, first_id=first_id, on_error=on_error, n_jobs=1))


def test_ids_names_and_labels(tmp_path):
    Image.fromarray(grating(0, 1)).save(tmp_path / "a.png")
    seen = []
    found = list(
        ImageReader(small_sift()).read(
            [tmp_path / "a.png", flat_image(), grating(90, 2)],
            ["x", "y", "z"],
            first_id=5,
            on_error="raise",
            progress=lambda *call: seen.append(call),
        )
    )
    assert [(image.id, image.name, image.label) for image, _ in found] == [
        (5, str(tmp_path / "a.png"), "x"),
        (6, "image 2", "z"),
    ]
    assert all(image.n_descriptors == len(features) == 36 for image, features in found)
    assert all(len(image.digest) == 64 for image, _ in found)
    assert seen == [("reading images", done, 3) for done in (1, 2, 3)]


def test_what_is_left_out_and_why(tmp_path):
    reader = ImageReader(small_sift())
    found = read(reader, [tmp_path / "missing.png", flat_image(), grating(0, 1)])
    assert [image.id for image, _ in found] == [0]
    assert [name for name, _ in reader.skipped] == [str(tmp_path / "missing.png"), "image 1"]
    assert "no such file" in reader.skipped[0][1]
    assert "no descriptors" in reader.skipped[1][1]
    assert reader.duplicates == []
    with pytest.raises(ImageReadError, match="no such file"):
        read(ImageReader(small_sift()), [tmp_path / "missing.png"], on_error="raise")
    with pytest.raises(InvalidInputError, match="on_error must be 'raise' or 'skip'; got 'stop'"):
        read(ImageReader(small_sift()), [flat_image()], on_error="stop")


def test_duplicates_are_noticed_only_where_asked_for():
    same, other = grating(0, 1), grating(90, 2)
    assert len(read(ImageReader(small_sift()), [same, same])) == 2
    ((known, _),) = read(ImageReader(small_sift()), [same])
    reader = ImageReader(small_sift(), {known.digest: 17})
    assert [image.id for image, _ in read(reader, [same, other, other], first_id=20)] == [20]
    assert reader.duplicates == [("image 0", 17), ("image 2", 20)]
    assert "the same image is in the model as image 17" in reader.skipped[0][1]


def test_ids_have_an_end(monkeypatch):
    monkeypatch.setattr("lnbnn.model.image_reader.MAX_IMAGES", 3)
    with pytest.raises(InvalidInputError, match="a model takes at most 3 images in its life"):
        read(ImageReader(small_sift()), [grating(0, 1), grating(90, 2)], first_id=2)


def test_a_numbered_path_keeps_its_id(tmp_path):
    for number in range(3):
        Image.fromarray(grating(40 * number, number)).save(tmp_path / f"{number}.png")
    files = [NumberedPath(str(tmp_path / f"{number}.png"), 10 * number + 3) for number in range(3)]
    found = read(ImageReader(small_sift()), [files[0], grating(90, 7), files[2]])
    assert [image.id for image, _ in found] == [3, 4, 23]
    assert found[2][0].name == str(tmp_path / "2.png")
    with pytest.raises(InvalidInputError, match="ids of images must ascend, from 14 on; got 3"):
        read(ImageReader(small_sift()), [files[1], files[0]])

"""What a fit will take, and the grid that keeps a limit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL_GRID
from synthetic import flat_image, grating_set

from lnbnn import DenseSIFT, LocalNBNN
from lnbnn.classifiers.trained import HardSpatialPyramid
from lnbnn.data.folder import read_images
from lnbnn.errors import InvalidInputError
from lnbnn.model.planning import plan_fit

SIFT = {"bin_sizes": [4], "step_px": 2, "min_contrast": 0.5, "longest_side": 64}


def classifier(**changes):
    return LocalNBNN(**{"descriptor_params": SIFT, "n_jobs": 1, **changes})


def test_the_plan_is_what_the_fit_takes():
    images, labels = grating_set(n_images=3)
    plan = plan_fit(classifier(), images)
    fitted = classifier().fit(images, labels)
    assert plan.n_images == len(images)
    assert plan.n_descriptors == len(fitted.index_), "fewer than 12 images are all looked at"
    assert plan.index_bytes == plan.n_descriptors * (131 + 8 + 17 + 8)
    assert plan.memory_bytes > plan.index_bytes
    assert plan.step_px is None


def test_a_limit_makes_the_grid_coarser():
    images, _ = grating_set(n_images=3)
    free = plan_fit(classifier(), images)
    base = plan_fit(classifier(), [flat_image()]).memory_bytes
    limit = base + (free.memory_bytes - base) // 4
    plan = plan_fit(classifier(), images, max_memory=limit)
    assert plan.memory_bytes <= limit
    assert plan.step_px > 2
    counts = [sum(len(DenseSIFT(**{**SIFT, "step_px": step}).extract(i)) for i in images) for step in (plan.step_px,)]
    assert plan.n_descriptors == counts[0]
    if plan.step_px > 3:
        finer = plan_fit(classifier(descriptor_params={**SIFT, "step_px": plan.step_px - 1}), images)
        assert finer.memory_bytes > limit, "the finest grid that keeps the limit"


def test_a_limit_that_is_kept_changes_nothing():
    images, _ = grating_set(n_images=1)
    assert plan_fit(classifier(), images, max_memory=1 << 40) == plan_fit(classifier(), images)


def test_a_limit_that_cannot_be_kept():
    images, _ = grating_set(n_images=1)
    with pytest.raises(InvalidInputError, match=r"even every 64 pixels .* limit of 1 MiB; use fewer images"):
        plan_fit(classifier(), images, max_memory=1 << 20)


def test_methods_without_an_index_have_no_plan():
    assert plan_fit(HardSpatialPyramid(), grating_set(n_images=1)[0]) is None


def test_unreadable_images_do_not_stop_the_plan(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    images, _ = grating_set(n_images=1)
    assert plan_fit(classifier(), [tmp_path / "bad.jpg"]).n_descriptors == 0
    assert plan_fit(classifier(), [*images, tmp_path / "bad.jpg"]).n_descriptors > 0
    assert np.isfinite(plan_fit(classifier(), [tmp_path / "bad.jpg"]).memory_bytes)


# ---- every file once ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened():
    """The names of the pictures that are opened, whatever way."""
    names = []

    def watch(event, args):
        if event == "open" and str(args[0]).endswith(".png"):
            names.append(str(args[0]))

    sys.addaudithook(watch)  # it cannot be taken away again
    return names


@pytest.fixture
def extracted(monkeypatch):
    """An entry for each picture that is extracted."""
    calls = []
    extract = DenseSIFT.extract
    monkeypatch.setattr(DenseSIFT, "extract", lambda self, image: calls.append(image.shape) or extract(self, image))
    monkeypatch.setattr(DenseSIFT, "warm_up", lambda self: None)
    return calls


@pytest.mark.parametrize("with_cache", [False, True])
def test_a_fit_reads_and_extracts_every_file_once(make_photos, tmp_path, fit, opened, extracted, with_cache):
    photos = make_photos(tmp_path / "photos")
    options = ["--cache", tmp_path / "cache"] if with_cache else []
    opened.clear()
    outcome = fit(photos, tmp_path / "model", "--max-memory", "2GiB", *options)
    assert outcome.code == 0
    assert "about 1,701 descriptors of 9 images" in outcome.err
    assert sorted(opened) == sorted(map(str, photos.rglob("*.png")))
    assert len(extracted) == 9


def test_what_was_read_for_the_plan_is_fitted_as_any_other(photos, tmp_path):
    data = read_images(photos)
    settings = {"descriptor_params": SMALL_GRID, "index": "exact"}
    plan = plan_fit(LocalNBNN(**settings), data.paths)
    planned = LocalNBNN(**settings).fit(plan.images, data.labels)
    plain = LocalNBNN(**settings).fit(data.paths, data.labels)
    assert planned.images_ == plain.images_, "names, labels, counts and digests"
    assert np.array_equal(planned.decision_function(data.paths), plain.decision_function(data.paths))


def test_the_plan_of_many_images_reads_a_dozen(save_texture, tmp_path):
    paths = [save_texture(tmp_path / f"{number}.png", "rows", seed=number) for number in range(15)]
    (tmp_path / "7.png").write_bytes(b"")
    plan = plan_fit(LocalNBNN(descriptor_params=SMALL_GRID), paths)
    assert sum(not isinstance(image, Path) for image in plan.images) in (11, 12)
    fitted = LocalNBNN(descriptor_params=SMALL_GRID).fit(plan.images, ["a"] * 15, on_error="skip")
    assert [name for name, _ in fitted.skipped_] == [str(tmp_path / "7.png")]
    assert len(fitted.index_) == pytest.approx(plan.n_descriptors, rel=0.2)

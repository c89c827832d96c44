"""Presets: each makes a classifier that works."""

from __future__ import annotations

import pytest
from synthetic import grating_set

from lnbnn import LocalNBNN
from lnbnn.classifiers.options import make_classifier
from lnbnn.errors import UnknownNameError
from lnbnn.params import PRESETS, preset_params


def test_the_presets():
    assert sorted(PRESETS) == ["balanced", "deep", "fast", "paper", "sift"]


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_makes_a_classifier_that_works(name):
    classifier = make_classifier(preset=name)
    images, labels = grating_set(n_images=3)
    assert classifier.fit(images, labels).predict(grating_set(n_images=3, seed=1)[0]).tolist() == labels


def test_balanced_is_what_the_constructor_says():
    assert LocalNBNN(**preset_params("balanced")).get_params() == LocalNBNN().get_params()


def test_paper_is_the_authors_feature():
    descriptor = LocalNBNN(**preset_params("paper")).make_descriptor()
    assert list(descriptor.bin_sizes) == [4, 6, 9]
    assert descriptor.step_px == 3
    assert descriptor.longest_side == 300
    assert descriptor.min_contrast == 2.0
    classifier = LocalNBNN(**preset_params("paper"))
    assert classifier.n_neighbors == 10
    assert descriptor.location_weight == 1.6
    assert classifier.query_budget is None


def test_a_preset_cannot_be_changed_through_what_it_gives():
    given = preset_params("fast")
    given["descriptor_params"]["step_px"] = 1
    given["query_budget"] = 1
    assert preset_params("fast")["descriptor_params"]["step_px"] != 1
    assert preset_params("fast")["query_budget"] != 1


def test_nor_through_a_list_inside_it():
    given = preset_params("paper")
    before = list(given["descriptor_params"]["bin_sizes"])
    given["descriptor_params"]["bin_sizes"].append(99)
    try:
        assert preset_params("paper")["descriptor_params"]["bin_sizes"] == before
    finally:
        given["descriptor_params"]["bin_sizes"].remove(99)


def test_unknown_preset():
    with pytest.raises(
        UnknownNameError, match="Unknown preset 'best'; choose one of: auto, balanced, deep, fast, paper"
    ):
        preset_params("best")

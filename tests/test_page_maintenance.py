"""Maintenance: a young model is refitted as it grows, recalibrated, and can be stopped at any photo."""

from __future__ import annotations

import shutil

import pytest
from test_page_served_model import labels, make, sent  # noqa: F401

from lnbnn.model.changes import check_model
from lnbnn.page.maintenance import maintain
from lnbnn.page.served_model import FITTED_ON
from lnbnn.reading.extraction import no_progress


@pytest.fixture
def grown(make, sent):  # noqa: F811
    """A model begun with one photo, now of six of three classes."""
    served = make()
    for kind in ("rows", "columns", "checks"):
        for seed in (1, 2):
            served.add([(sent(served, kind, [seed]), kind)])
    return served


def test_a_young_model_is_refitted_and_calibrated(grown):
    assert grown.photo_store.notes[FITTED_ON] == 1
    before = labels(grown)
    assert maintain(grown, no_progress)
    assert grown.photo_store.notes[FITTED_ON] == 6
    assert labels(grown) == before
    model = grown.opened.classifier.fitted()
    assert model.is_calibrated
    assert model.can_reject
    assert all(image.batch == 0 for image in grown.opened.images.values()), "all are among the indexed files now"
    assert not maintain(grown, no_progress), "nothing is due any more"


def test_a_model_is_calibrated_again_when_a_tenth_has_changed(grown):
    maintain(grown, no_progress)
    grown.relabel([0], "columns")
    assert grown.opened.classifier.fitted().n_changes == 1
    assert maintain(grown, no_progress)
    assert grown.opened.classifier.fitted().n_changes == 0


def test_two_classes_get_probabilities_and_one_nothing(make, sent):  # noqa: F811
    served = make()
    assert not maintain(served, no_progress)
    served.add([(sent(served, "rows", [1, 2]), "rows")])
    assert not maintain(served, no_progress)
    served.add([(sent(served, "columns", [1]), "columns")])
    assert maintain(served, no_progress)
    model = served.opened.classifier.fitted()
    assert model.is_calibrated
    assert not model.can_reject


def test_a_model_not_created_by_the_page_is_not_refitted(make, model, tmp_path):  # noqa: F811
    shutil.copytree(model, tmp_path / "mine")
    served = make()
    generation = served.opened.generation
    assert maintain(served, no_progress), "it is calibrated"
    assert served.opened.generation == generation + 1
    assert FITTED_ON not in served.photo_store.notes


def test_maintenance_that_is_stopped_leaves_the_model_as_it_was(grown):
    n_calls = [0]

    class Stop(Exception):
        pass

    def stop_at(limit):
        def progress(stage, done, total):
            n_calls[0] += 1
            if n_calls[0] == limit:
                raise Stop

        return progress

    generation = grown.opened.generation
    for limit in (1, 4, 7, 12):
        n_calls[0] = 0
        with pytest.raises(Stop):
            maintain(grown, stop_at(limit))
        grown.open()
        assert grown.opened.generation == generation
        assert check_model(grown.path).problems == ()

"""Upkeep: a young model is fitted anew as it grows, probabilities are kept true, and it can be stopped at any photo."""

from __future__ import annotations

import shutil

import pytest
from test_page_bench import labels, make, sent  # noqa: F401

from lnbnn.model.changes import check_model
from lnbnn.page.bench import FITTED_ON
from lnbnn.page.upkeep import keep_up
from lnbnn.reading.extraction import no_progress


@pytest.fixture
def grown(make, sent):  # noqa: F811
    """A model begun with one photo, now of six of three classes."""
    bench = make()
    for kind in ("rows", "columns", "checks"):
        for seed in (1, 2):
            bench.add([(sent(bench, kind, [seed]), kind)])
    return bench


def test_a_young_model_is_fitted_anew_and_calibrated(grown):
    assert grown.shelf.notes[FITTED_ON] == 1
    before = labels(grown)
    assert keep_up(grown, no_progress)
    assert grown.shelf.notes[FITTED_ON] == 6
    assert labels(grown) == before
    model = grown.opened.classifier.fitted()
    assert model.is_calibrated
    assert model.can_reject
    assert all(image.batch == 0 for image in grown.opened.images.values()), "all are among the indexed files now"
    assert not keep_up(grown, no_progress), "nothing is due any more"


def test_a_model_is_calibrated_again_when_a_tenth_has_changed(grown):
    keep_up(grown, no_progress)
    grown.relabel([0], "columns")
    assert grown.opened.classifier.fitted().n_changes == 1
    assert keep_up(grown, no_progress)
    assert grown.opened.classifier.fitted().n_changes == 0


def test_two_classes_get_probabilities_and_one_nothing(make, sent):  # noqa: F811
    bench = make()
    assert not keep_up(bench, no_progress)
    bench.add([(sent(bench, "rows", [1, 2]), "rows")])
    assert not keep_up(bench, no_progress)
    bench.add([(sent(bench, "columns", [1]), "columns")])
    assert keep_up(bench, no_progress)
    model = bench.opened.classifier.fitted()
    assert model.is_calibrated
    assert not model.can_reject


def test_a_model_of_others_is_not_fitted_anew(make, model, tmp_path):  # noqa: F811
    shutil.copytree(model, tmp_path / "mine")
    bench = make()
    generation = bench.opened.generation
    assert keep_up(bench, no_progress), "it is calibrated"
    assert bench.opened.generation == generation + 1
    assert FITTED_ON not in bench.shelf.notes


def test_upkeep_that_is_stopped_leaves_the_model_as_it_was(grown):
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
            keep_up(grown, stop_at(limit))
        grown.open()
        assert grown.opened.generation == generation
        assert check_model(grown.path).problems == ()

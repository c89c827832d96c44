"""What is done for a model while nobody changes it: a young one is fitted again, and probabilities kept true."""

from __future__ import annotations

from functools import partial

from lnbnn.model.changes import calibrate, refit
from lnbnn.model.model import Model
from lnbnn.page.bench import FITTED_ON, GROWS_UNTIL, Bench
from lnbnn.reading.extraction import Progress
from lnbnn.references import can_be_held_out

__all__ = ["keep_up", "make_sure"]


def keep_up(bench: Bench, progress: Progress) -> bool:
    """Do what is due; whether anything was. ``progress`` may end it by raising: the model is whole then."""
    if bench.opened is None:
        return False
    was_refitted = _refit_if_young(bench, progress)
    return _calibrate_if_due(bench, progress) or was_refitted


def _refit_if_young(bench: Bench, progress: Progress) -> bool:
    """What a model knows of the network's cells in general it learned from its first photos: again, while few."""
    opened, fitted_on = bench.now(), bench.shelf.notes.get(FITTED_ON)
    n = len(opened.images)
    if not isinstance(fitted_on, int) or not 2 * fitted_on <= n <= GROWS_UNTIL:
        return False
    prepare = partial(make_sure, progress=progress)
    refit(bench.path, bench.new(), bench.files(opened), prepare=prepare, progress=progress)
    bench.shelf.note(**{FITTED_ON: n})
    bench.open()
    return True


def _calibrate_if_due(bench: Bench, progress: Progress) -> bool:
    """Calibrate a model that can be and is not, or of which a tenth has changed since."""
    model = bench.now().classifier.fitted()
    can_reject = model.can_reject or not _can_tell_unknown(model)
    if model.is_calibrated and can_reject and 10 * model.n_changes <= len(model.references):
        return False
    if not _can_be_calibrated(model):
        return False
    unknown = _can_tell_unknown(model)
    calibrate(bench.path, unknown=unknown, trust_network=bench.trust_network, progress=progress)
    bench.open()
    return True


def make_sure(model: Model, progress: Progress) -> None:
    """Calibrate a model that was just fitted, if it can be."""
    if _can_be_calibrated(model):
        model.calibrate(unknown=_can_tell_unknown(model), progress=progress)


def _can_be_calibrated(model: Model) -> bool:
    references = model.references
    return len(references.classes) > 1 and bool(can_be_held_out(references.places).any())


def _can_tell_unknown(model: Model) -> bool:
    return len(model.references.classes) >= 3

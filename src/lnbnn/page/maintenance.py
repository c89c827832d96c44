"""What the page does while nobody changes the model: refit a young one, and recalibrate."""

from __future__ import annotations

from functools import partial

from lnbnn.model.changes import calibrate, refit
from lnbnn.model.model import Model
from lnbnn.page.served_model import FITTED_ON, GROWS_UNTIL, ServedModel
from lnbnn.reading.extraction import Progress
from lnbnn.references import can_be_held_out

__all__ = ["calibrate_if_possible", "maintain"]


def maintain(served: ServedModel, progress: Progress) -> bool:
    """Do what is due; returns whether anything was. ``progress`` may raise to stop it; the model stays intact."""
    if served.opened is None:
        return False
    was_refitted = _refit_if_young(served, progress)
    return _calibrate_if_due(served, progress) or was_refitted


def _refit_if_young(served: ServedModel, progress: Progress) -> bool:
    """A model learns its normalization from its first photos: repeat that while it has few."""
    opened, fitted_on = served.now(), served.photo_store.notes.get(FITTED_ON)
    n = len(opened.images)
    if not isinstance(fitted_on, int) or not 2 * fitted_on <= n <= GROWS_UNTIL:
        return False
    prepare = partial(calibrate_if_possible, progress=progress)
    refit(served.path, served.new(), served.files(opened), prepare=prepare, progress=progress)
    served.photo_store.note(**{FITTED_ON: n})
    served.open()
    return True


def _calibrate_if_due(served: ServedModel, progress: Progress) -> bool:
    """Calibrate a model that is not calibrated, or of which a tenth has changed since."""
    model = served.now().classifier.fitted()
    can_reject = model.can_reject or not _can_tell_unknown(model)
    if model.is_calibrated and can_reject and 10 * model.n_changes <= len(model.references):
        return False
    if not _can_be_calibrated(model):
        return False
    unknown = _can_tell_unknown(model)
    calibrate(served.path, unknown=unknown, trust_network=served.trust_network, progress=progress)
    served.open()
    return True


def calibrate_if_possible(model: Model, progress: Progress) -> None:
    """Calibrate a model that was just fitted, if it can be."""
    if _can_be_calibrated(model):
        model.calibrate(unknown=_can_tell_unknown(model), progress=progress)


def _can_be_calibrated(model: Model) -> bool:
    references = model.references
    return len(references.classes) > 1 and bool(can_be_held_out(references.places).any())


def _can_tell_unknown(model: Model) -> bool:
    return len(model.references.classes) >= 3

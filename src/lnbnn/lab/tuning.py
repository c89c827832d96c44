"""Settings of Local NBNN for a set of images: by accuracy on images held out of it, within a budget."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.classifiers.options import fit_options
from lnbnn.data.folder import LabeledImages
from lnbnn.data.splits import split_images
from lnbnn.descriptors import make_descriptor
from lnbnn.descriptors.dense_sift import DenseSIFT
from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.indexes.faiss_index import FaissIndex
from lnbnn.model.planning import plan_fit
from lnbnn.params import OldName
from lnbnn.reading.extraction import Progress, features_of, map_in_order, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.trust.evaluation import mean_per_class

__all__ = ["GRIDS", "LAYERS", "LOCATION_WEIGHTS", "NETWORK_SEARCHES", "SEARCHES", "SIZES", "Trial", "best_of", "tune"]

_HELD_OUT_SHARE = 1 / 3

GRIDS: tuple[dict[str, Any], ...] = (
    {"bin_sizes": [4, 6, 9, 14, 21, 31], "step_px": 8},
    {"bin_sizes": [6, 9, 14, 21, 31], "step_px": 12},
)
"""Descriptors to try, most expensive first."""

LAYERS = ("deep", "deep@stage6")
"""Layers of the network that comes with a package to try."""

SIZES = (1.0, 0.75)
"""Sizes of pictures to try with a network, as shares of its own."""

LOCATION_WEIGHTS = (1.6, 0.8, 0.0)
"""Weights of a patch's place to try: high where objects stand alike in all pictures, 0 where they may be anywhere."""

SEARCHES: tuple[dict[str, Any], ...] = (
    {},
    {"index_params": {"n_probes": 4}},
    {"query_budget": 1000, "stop_confidence": 0.9, "index_params": {"n_probes": 2, "rerank_factor": 3}},
    {"query_budget": 500, "stop_confidence": 0.8, "index_params": {"n_probes": 2, "rerank_factor": 2}},
)
"""Ways to search to try, most expensive first."""

NETWORK_SEARCHES: tuple[dict[str, Any], ...] = ({}, {"n_neighbors": 20}, {"n_neighbors": 5})
"""The same for networks, whose few cells cost little to search: k."""


@dataclass(frozen=True)
class Trial:
    """The result of one choice of settings.

    Parameters
    ----------
    settings : dict
        Keywords of :class:`~lnbnn.classifiers.local_nbnn.LocalNBNN`; those not named keep their defaults.
    accuracy : float
        Mean per-class accuracy on the images that were held out, 0 to 1.
    ms_per_image : float
        CPU milliseconds from file to answer, mean over those images.
    memory_bytes : int
        What a fit of all images takes; see :class:`~lnbnn.model.planning.FitPlan`.
    """

    settings: dict[str, Any]
    accuracy: float
    ms_per_image: float
    memory_bytes: int

    ms_an_image = OldName("ms_per_image")

    @property
    def options(self) -> str:
        """The settings as options of ``lnbnn fit``."""
        return fit_options(self.settings)

    def as_json(self) -> dict[str, Any]:
        """The trial as plain values."""
        return asdict(self) | {"ms_an_image": self.ms_per_image, "options": self.options}  # the old key, until 0.4


def tune(
    images: LabeledImages,
    *,
    descriptor: str = "dense-sift",
    max_ms: float | None = None,
    max_memory: int | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    store: FeatureStore | None = None,
    progress: Progress = no_progress,
) -> Iterator[Trial]:
    """Try settings on a third of the images with the others as the model; yields each trial as soon as it is known.

    First every grid (of a network: every layer and size) with every location weight, searched in the first way; then
    the other ways to search, with the best weight of each grid. Grids that a fit of all images could not keep within
    ``max_memory`` (bytes) are left out. ``max_ms`` does not leave trials out: :func:`best_of` heeds it.

    Parameters
    ----------
    images : LabeledImages
        Labeled images, at least one class with two of them.
    descriptor : str, default="dense-sift"
        Dense SIFT, or a network; ``deep`` also tries its layers.
    """
    known, asked = split_images(images, n_train=1 - _HELD_OUT_SHARE, seed=seed)
    grids = []
    choices, searches = _choices(descriptor)
    for grid in choices:
        plan = plan_fit(LocalNBNN(**grid, n_jobs=n_jobs), images.paths, store=store)
        assert plan is not None
        if max_memory is None or plan.memory_bytes <= max_memory:
            grids.append((grid, plan.memory_bytes))
    if not grids:
        raise InvalidInputError("no grid keeps a fit of these images within the limit of memory; use fewer images.")
    n_trials = len(grids) * (len(LOCATION_WEIGHTS) + len(searches) - 1)
    done = 0
    for grid, memory_bytes in grids:
        tried: list[tuple[float, float, LocalNBNN]] = []
        for weight in LOCATION_WEIGHTS:
            settings: dict[str, Any] = {**grid, "location_weight": weight}
            model = LocalNBNN(**settings, n_jobs=n_jobs, random_state=seed)
            model.fit(known.paths, known.labels, on_error="skip", store=store)
            trial = _try(model, settings, asked, memory_bytes)
            tried.append((trial.accuracy, weight, model))
            yield trial
            progress("trying settings", done := done + 1, n_trials)
        _, weight, model = max(tried, key=lambda found: found[:2])
        for search in searches[1:]:
            model.set_params(**search)
            assert isinstance(model.index_, FaissIndex)
            model.index_.set_search(**search.get("index_params", {}))
            yield _try(model, {**grid, "location_weight": weight, **search}, asked, memory_bytes)
            progress("trying settings", done := done + 1, n_trials)


def _choices(descriptor: str) -> tuple[list[dict[str, Any]], tuple[dict[str, Any], ...]]:
    """Settings of the descriptor to try, and ways to search."""
    made = make_descriptor(descriptor)
    if isinstance(made, DenseSIFT):
        named = {} if descriptor == "dense-sift" else {"descriptor": descriptor}
        return [{**named, "descriptor_params": grid} for grid in GRIDS], SEARCHES
    if not made.is_color:
        return [{"descriptor": descriptor}], SEARCHES
    names = LAYERS if descriptor == "deep" else (descriptor,)
    side = max(made.prepare(np.zeros((64, 64), np.uint8)).shape)
    sizes = [round(share * side) for share in SIZES]
    try:
        make_descriptor(descriptor, {"longest_side": sizes[-1]})
    except InvalidInputError:  # a network of a fixed size
        return [{"descriptor": name} for name in names], NETWORK_SEARCHES
    found = [{"descriptor": name, "descriptor_params": {"longest_side": size}} for name in names for size in sizes]
    return found, NETWORK_SEARCHES


def best_of(trials: Sequence[Trial], *, max_ms: float | None = None) -> Trial:
    """The most accurate trial within the time limit, the fastest on ties; if none is within it, the fastest of all."""
    within = [trial for trial in trials if max_ms is None or trial.ms_per_image <= max_ms]
    if not within:
        return min(trials, key=lambda trial: trial.ms_per_image)
    return max(within, key=lambda trial: (trial.accuracy, -trial.ms_per_image))


def _try(model: LocalNBNN, settings: dict[str, Any], asked: LabeledImages, memory_bytes: int) -> Trial:
    def work(path: str) -> tuple[Any, float]:
        start = time.thread_time()
        try:
            features = features_of(path, model.descriptor_)
        except ImageReadError:
            return None, 0.0
        answer = model.classes_[np.argmax(model.decision_function([features]))] if len(features) else None
        return answer, 1000 * (time.thread_time() - start)

    found = list(map_in_order(work, asked.paths, model.n_jobs))
    accuracy = mean_per_class(np.array([answer for answer, _ in found], object), np.array(asked.labels))
    return Trial(settings, accuracy, float(np.mean([ms for _, ms in found])), memory_bytes)

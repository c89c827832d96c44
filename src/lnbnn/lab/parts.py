"""Parts that several experiments share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.data.folder import LabeledImages
from lnbnn.indexes import make_index
from lnbnn.lab.base import Outcome, Part, Settings
from lnbnn.lab.lab import Lab
from lnbnn.methods.kernel import totals_by_cell
from lnbnn.methods.linear_classifiers import train_linear_classifier
from lnbnn.methods.responses import own_and_response
from lnbnn.params import plain, resolve
from lnbnn.reading.extraction import features_of
from lnbnn.trust.evaluation import mean_per_class

__all__ = ["accuracy", "full_params", "kernel_part", "per_class", "response_rows"]
__all__ += ["responses_part", "scores_part", "share_right", "timed_totals", "truth_of"]

_SETTINGS = {"machine": "classifier"}  # settings that records and finished parts have under an older name


def responses_part(method: str, split: dict[str, int], params: Settings) -> Part:
    """The totals of a method of the NBNN family, over the whole image and its quarters: one search per image.

    Its arrays: ``totals`` of the test images and ``reference_totals`` of the training images, each left out of the
    index, shape (n_images, 5, n_classes); ``n_descriptors`` and ``n_reference_descriptors`` that were asked for;
    ``truth`` and ``labels``.
    """
    settings = {**split, "method": method, "params": full_params(method, params)}
    return Part(f"{method}-responses", settings, _responses)


def _responses(lab: Lab, settings: Settings) -> Outcome:
    train, test = lab.split_of(settings)
    classifier = lab.fit(settings["method"], settings["params"], train)

    def work(vectors: NDArray[np.generic], own: range | None) -> NDArray[np.float64]:
        return np.append(totals_by_cell(classifier.matching_, vectors, own, levels=2), len(vectors))

    def ask(path: str) -> NDArray[np.float64]:
        return work(classifier.query_vectors(features_of(path, classifier.descriptor_, lab.store)), None)

    known = classifier.matching_.leave_each_out(work, lab.progress)
    found = np.stack(lab.ask(ask, test.paths, classifier.descriptor_))
    shape = (-1, 5, len(classifier.classes_))
    return {
        "truth": truth_of(classifier, test),
        "totals": found[:, :-1].reshape(shape).astype(np.float32),
        "n_descriptors": found[:, -1].astype(np.int64),
        "labels": truth_of(classifier, train),
        "reference_totals": known[:, :-1].reshape(shape).astype(np.float32),
        "n_reference_descriptors": known[:, -1].astype(np.int64),
    }


def kernel_part(kernel: str, params: Settings, responses: Part) -> Part:
    """A kernel on kept responses, and the method below it. Its arrays: ``truth``, ``totals``, ``scores``, ``chosen``.

    ``chosen`` holds C and the weight of the method's own scores.
    """
    chosen = resolve(CLASSIFIERS, kernel, "method")(**{_SETTINGS.get(name, name): params[name] for name in params})
    own = {name: getattr(chosen, _SETTINGS.get(name, name)) for name in ("response", "machine", "levels", "blend")}

    def compute(lab: Lab, settings: Settings) -> Outcome:
        kept = lab.get(responses)
        n_cells = sum(4**level for level in range(settings["levels"]))
        rows = partial(response_rows, response=settings["response"], n_cells=n_cells)
        known = rows(kept["reference_totals"], kept["n_reference_descriptors"])
        seed = chosen.random_state
        how = {"kind": settings["machine"], "blend": settings["blend"], "seed": seed}
        trained = train_linear_classifier(*known, kept["labels"], **how)
        return {
            "truth": kept["truth"],
            "totals": kept["totals"][:, 0],
            "scores": trained.scores(*rows(kept["totals"], kept["n_descriptors"])).astype(np.float32),
            "chosen": np.array([trained.C, trained.own_weight]),
        }

    return Part(kernel, {**responses.settings, **own}, compute)


def response_rows(
    totals: NDArray[Any], counts: NDArray[np.int64], response: str, n_cells: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A method's own scores and the response vectors of images, from their totals over the first cells."""
    pairs = [own_and_response(image[:n_cells], int(n), response) for image, n in zip(totals, counts, strict=True)]
    return np.stack([own for own, _ in pairs]), np.stack([row for _, row in pairs])


def scores_part(method: str, split: dict[str, int], params: Settings) -> Part:
    """Any method by itself. Its arrays: ``truth`` and the test images' ``scores``."""

    def compute(lab: Lab, settings: Settings) -> Outcome:
        train, test = lab.split_of(settings)
        store = lab.store_for(settings["params"])
        classifier = lab.fit(method, settings["params"], train, keep_features=store is not None)
        scores = classifier.decision_function(test.paths, store=store, progress=lab.progress)
        return {"truth": truth_of(classifier, test), "scores": scores.astype(np.float32)}

    return Part(method, {**split, "params": full_params(method, params)}, compute)


def timed_totals(
    classifier: Any, paths: Sequence[str], lab: Lab, stage: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The totals of each image, and the CPU seconds of its search and scoring, all threads together."""
    images = [features_of(path, classifier.descriptor_, lab.store) for path in paths]
    totals, seconds = [], []
    classifier.updates(images[0])  # what is made on first use is not timed
    for image in images:
        start = time.process_time()
        totals.append(classifier.updates(image).totals(len(classifier.classes_)))
        seconds.append(time.process_time() - start)
        lab.progress(stage, len(totals), len(images))
    return np.array(totals), np.array(seconds)


def full_params(method: str, params: Settings) -> Settings:
    """All settings of a method, descriptor and index included: a part is computed again when a default changes."""
    found: Settings = resolve(CLASSIFIERS, method, "method")(**params).plain_params()
    if "index" in found:
        found["index_params"] = plain(make_index(found["index"], found["index_params"]).settings())
    return found


def truth_of(classifier: Any, images: LabeledImages) -> NDArray[np.int64]:
    """The true class of each image as its place in ``classes_``."""
    return np.searchsorted(classifier.classes_, np.asarray(images.labels))


def share_right(answers: NDArray[Any], truth: NDArray[Any]) -> float:
    """Mean over the classes of the share of right answers, in percent."""
    return round(100 * mean_per_class(answers, truth), 2)


def accuracy(scores: NDArray[Any], truth: NDArray[Any]) -> float:
    """The same for the classes with the highest scores."""
    return share_right(np.argmax(scores, axis=1), truth)


def per_class(scores: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """The share of right answers of each class."""
    right = np.argmax(scores, axis=1) == truth
    return np.bincount(truth, weights=right) / np.maximum(np.bincount(truth), 1)

"""Pieces of work that more than one experiment asks for."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.base import Classifier
from lnbnn.classifiers.kernels import totals_by_cell
from lnbnn.classifiers.matching import MatchingClassifier
from lnbnn.data.folder import LabelledImages
from lnbnn.indexes import make_index
from lnbnn.lab.base import Arrays, Part
from lnbnn.lab.lab import Lab
from lnbnn.methods.machines import train_machines
from lnbnn.methods.responses import own_and_response
from lnbnn.params import plain, resolve
from lnbnn.reading.extraction import features_of, map_in_order
from lnbnn.trust.evaluation import mean_per_class

__all__ = ["accuracy", "full_params", "kernel_part", "per_class", "responses_part", "scores_part", "truth_of"]


def responses_part(method: str, split: dict[str, int], params: dict[str, Any]) -> Part:
    """The totals of a method of the NBNN family, over the whole image and its quarters: one search an image.

    Its arrays: ``totals`` of the test images and ``reference_totals`` of the training images, each left out of the
    index, shape (n_images, 5, n_classes); ``n_descriptors`` and ``n_reference_descriptors`` that were asked for;
    ``truth`` and ``labels``.
    """

    def compute(lab: Lab) -> Arrays:
        train, test = lab.split(split["n_train"], split["n_test"], split["seed"])
        classifier = cast(MatchingClassifier, _fit(lab, method, params, train))

        def work(vectors: NDArray[np.generic], own: range | None) -> NDArray[np.float64]:
            return np.append(totals_by_cell(classifier, vectors, own, levels=2), len(vectors))

        def ask(path: str) -> NDArray[np.float64]:
            features = features_of(path, classifier.descriptor_, lab.store)
            return work(classifier._vectors(classifier.query_features(features)), None)

        known = classifier._leave_each_out(work, lab.progress)
        asked = []
        for row in map_in_order(ask, test.paths, lab.n_jobs):
            asked.append(row)
            lab.progress("classifying", len(asked), len(test))
        shape = (-1, 5, len(classifier.classes_))
        found = np.stack(asked)
        return {
            "truth": truth_of(classifier, test),
            "totals": found[:, :-1].reshape(shape).astype(np.float32),
            "n_descriptors": found[:, -1].astype(np.int64),
            "labels": truth_of(classifier, train),
            "reference_totals": known[:, :-1].reshape(shape).astype(np.float32),
            "n_reference_descriptors": known[:, -1].astype(np.int64),
        }

    return Part(f"{method}-responses", {**split, "params": full_params(method, params)}, compute)


def kernel_part(kernel: str, params: dict[str, Any], responses: Part) -> Part:
    """A kernel on kept responses, and the method below it. Its arrays: ``truth``, ``totals``, ``scores``, ``chosen``.

    ``chosen`` holds C and the weight of the method's own scores.
    """

    def compute(lab: Lab) -> Arrays:
        kept = lab.get(responses)
        classifier: Any = resolve(CLASSIFIERS, kernel, "method")(**params)
        n_cells = sum(4**level for level in range(classifier.levels))

        def rows(totals: str, counts: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            pairs = [
                own_and_response(of_image[:n_cells], int(n), classifier.response)
                for of_image, n in zip(kept[totals], kept[counts], strict=True)
            ]
            return np.stack([own for own, _ in pairs]), np.stack([response for _, response in pairs])

        own, responses_known = rows("reference_totals", "n_reference_descriptors")
        settings = {"machine": classifier.machine, "seed": classifier.random_state}
        trained = train_machines(own, responses_known, kept["labels"], **settings)
        return {
            "truth": kept["truth"],
            "totals": kept["totals"][:, 0],
            "scores": trained.scores(*rows("totals", "n_descriptors")).astype(np.float32),
            "chosen": np.array([trained.C, trained.own_weight]),
        }

    chosen = resolve(CLASSIFIERS, kernel, "method")(**params).plain_params()
    own = {name: chosen[name] for name in ("response", "machine", "levels")}
    return Part(kernel, {**responses.settings, **own}, compute)


def scores_part(method: str, split: dict[str, int], params: dict[str, Any]) -> Part:
    """Any method by itself. Its arrays: ``truth`` and the test images' ``scores``."""

    def compute(lab: Lab) -> Arrays:
        train, test = lab.split(split["n_train"], split["n_test"], split["seed"])
        classifier = _fit(lab, method, params, train)
        scores = classifier.decision_function(test.paths, store=lab.store, progress=lab.progress)
        return {"truth": truth_of(classifier, test), "scores": scores.astype(np.float32)}

    return Part(method, {**split, "params": full_params(method, params)}, compute)


def full_params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """All settings of a method, descriptor and index included: a part is done again when a default changes."""
    classifier: Classifier = resolve(CLASSIFIERS, method, "method")(**params)
    found = classifier.plain_params()
    if "index" in found:
        found["index_params"] = plain(make_index(found["index"], found["index_params"]).settings())
    return found


def _fit(lab: Lab, method: str, params: dict[str, Any], train: LabelledImages) -> Classifier:
    classifier: Classifier = resolve(CLASSIFIERS, method, "method")(**params, n_jobs=lab.n_jobs)
    return classifier.fit(train.paths, train.labels, store=lab.store, progress=lab.progress)


def truth_of(classifier: Classifier, images: LabelledImages) -> NDArray[np.int64]:
    """The true class of each image as its place in ``classes_``."""
    return np.searchsorted(classifier.fitted_classes(), np.asarray(images.labels))


def accuracy(scores: NDArray[Any], truth: NDArray[Any]) -> float:
    """Mean per-class accuracy in per cent of the highest scores."""
    return round(100 * mean_per_class(np.argmax(scores, axis=1), truth), 2)


def per_class(scores: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """The share of right answers of each class."""
    right = np.argmax(scores, axis=1) == truth
    return np.bincount(truth, weights=right) / np.maximum(np.bincount(truth), 1)

"""The demo: fit, evaluate, and write pictures."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.data.folder import LabeledImages, read_images
from lnbnn.data.splits import split_images
from lnbnn.data.toy import write_toy_set
from lnbnn.files.images import read_bytes
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.trust.evaluation import Evaluation, evaluate, write_confusion
from lnbnn.trust.evidence import explain
from lnbnn.trust.figures import confusion_figure, evidence_figure, save_figure

__all__ = ["DemoReport", "run_demo"]

_N_EVIDENCE = 4


@dataclass(frozen=True)
class DemoReport:
    """What the demo found and wrote."""

    evaluation: Evaluation
    n_reference: int
    n_descriptors: int
    index: str
    fit_s: float
    pictures: tuple[Path, ...]
    notes: tuple[str, ...]


def run_demo(
    output: Path,
    *,
    data: Path | None = None,
    descriptor: str = "dense-sift",
    seed: int = 0,
    progress: Progress = no_progress,
) -> DemoReport:
    """Fit and evaluate on the built-in photographs, or on halves of the user's own folder; writes into ``output``."""
    unfitted = LocalNBNN(descriptor=descriptor, random_state=seed)
    unfitted.check_settings()
    if data is None:
        output.mkdir(parents=True, exist_ok=True)
        reference, query = map(read_images, write_toy_set(output / "photos", seed=seed))
        notes: tuple[str, ...] = ()
    else:
        images = read_images(data)
        reference, query = split_images(images, n_train=0.5, seed=seed)
        notes = images.notes
        output.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    classifier = unfitted.fit(reference.paths, reference.labels, on_error="skip", progress=progress)
    fit_s = time.perf_counter() - start
    evaluation = evaluate(classifier, query.paths, query.labels, progress=progress)
    classifier.save(output / "model", overwrite=True)
    notes += tuple(reason for _, reason in (*classifier.skipped_, *evaluation.skipped))
    pictures = _draw(output, classifier, query, evaluation, progress)
    return DemoReport(
        evaluation, len(classifier.images_), len(classifier.index_), classifier.describe(), fit_s, pictures, notes
    )


def _draw(
    output: Path, classifier: LocalNBNN, query: LabeledImages, evaluation: Evaluation, progress: Progress
) -> tuple[Path, ...]:
    confusion = output / "confusion.png"
    save_figure(confusion_figure(evaluation), confusion)
    write_confusion(output / "confusion.csv", evaluation)
    pictures = [confusion]
    unreadable = {name for name, _ in evaluation.skipped}
    readable = [place for place, path in enumerate(query.paths) if path not in unreadable]
    step = max(1, len(readable) // _N_EVIDENCE)
    for number, place in enumerate(readable[step // 2 :: step][:_N_EVIDENCE], start=1):
        picture = classifier.descriptor_.decode(read_bytes(query.paths[place]))
        if len(classifier.query_features(query.paths[place])) == 0:
            continue
        evidence = explain(classifier, query.paths[place])
        title = f"answer: {evidence.label}    (true class: {query.labels[place]})"
        path = output / f"evidence_{number}.png"
        save_figure(evidence_figure(picture, evidence, title=title), path)
        pictures.append(path)
        progress("drawing", number, _N_EVIDENCE)
    return tuple(pictures)

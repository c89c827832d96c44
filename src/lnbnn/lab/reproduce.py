"""An experiment from raw images to its record and picture: what ``lnbnn reproduce`` and the benchmarks run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from lnbnn.data import DATASETS
from lnbnn.data.folder import LabeledImages, scan_folder
from lnbnn.data.published import load_set
from lnbnn.data.toy import write_toy_set
from lnbnn.errors import DatasetError, InvalidInputError
from lnbnn.lab.base import Experiment, Settings
from lnbnn.lab.lab import Lab, PartStatus, of_classes
from lnbnn.lab.records import RunRecord, results_digest, write_record
from lnbnn.params import resolve

__all__ = ["Reproduced", "chosen_settings", "columns_of", "find_images", "reproduce", "start_in_background"]

_QUICK_CLASSES = 6


class Reproduced(NamedTuple):
    """What an experiment left: its record, the record's file, and that of the picture."""

    record: RunRecord
    path: Path
    picture: Path | None


def chosen_settings(
    experiment: Experiment,
    *,
    splits: int | None = None,
    train: int | None = None,
    quick: bool = False,
    images: LabeledImages | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Settings:
    """The settings of the full or the quick run; of the first seeds alone, of one number of training images alone.

    A column of more training images than ``images`` have in their smallest class is left out, and ``note`` is called.
    """
    settings = experiment.settings | (experiment.quick if quick else {})
    settings |= {key: seeds[:splits] for key, seeds in settings.items() if key.startswith("seeds")}
    if train is not None and isinstance(settings["n_train"], list):
        if train not in settings["n_train"]:
            columns = " or ".join(map(str, settings["n_train"]))
            raise InvalidInputError(f"{experiment.name} has columns of {columns} images; got {train}")
        settings["n_train"] = [train]
    if images is not None and isinstance(settings["n_train"], list):
        n_smallest = min(images.labels.count(label) for label in set(images.labels))
        left_out = [n for n in settings["n_train"] if n >= n_smallest]
        settings["n_train"] = [n for n in settings["n_train"] if n < n_smallest]
        if not settings["n_train"]:
            raise InvalidInputError(
                f"{experiment.name} trains on {min(left_out)} images per class or more and needs others to test on; "
                f"the smallest class has {n_smallest}."
            )
        for n_train in left_out:
            note(f"{n_train} training images per class: left out, the smallest class has {n_smallest} images.")
    return settings


def columns_of(settings: Settings) -> list[Settings]:
    """The settings of each number of training images by itself: each has a record of its own."""
    several = settings["n_train"]
    return [settings | {"n_train": [n]} for n in several] if isinstance(several, list) else [settings]


def find_images(
    dataset: str, path: Path | None, runs: Path, *, quick: bool = False, note: Callable[[str], None] = lambda text: None
) -> LabeledImages:
    """The images of a published set; if ``quick``, of a few classes.

    If the set is not available, a quick run uses the built-in photographs instead, and ``note`` is called.
    """
    if not quick:
        return load_set(resolve(DATASETS, dataset, "data set"), path)
    try:
        images = find_images(dataset, path, runs)
    except DatasetError:
        if path is not None:
            raise
        note(f"{dataset} is not available: the built-in photographs are used instead.")
        images = scan_folder(write_toy_set(runs / "toy", n_reference=14, n_query=1)[0])
    classes = sorted(set(images.labels))
    return of_classes(images, classes[:: max(1, len(classes) // _QUICK_CLASSES)][:_QUICK_CLASSES])


def reproduce(
    experiment: Experiment,
    settings: Settings,
    lab: Lab,
    *,
    command: str,
    output: Path,
    pictures: Path | None = None,
    finished: bool = False,
    again: bool = False,
    on_part: Callable[[PartStatus], None] = lambda status: None,
) -> Reproduced:
    """Run an experiment; write its record to ``output``, and its picture there or to ``pictures``.

    The record is named after the experiment, and after the data set where that is not Caltech 101. The other arguments
    are those of :meth:`~lnbnn.lab.lab.Lab.run`.
    """
    label = experiment.label(settings) if experiment.label else experiment.name
    suffix = lab.dataset.removeprefix("caltech101").lstrip("-")  # the paper's first data set goes without saying
    label = f"{label}-{suffix}" if suffix else label
    record = lab.run(experiment, settings, command=command, name=label, finished=finished, again=again, on_part=on_part)
    path = output / f"{label}.json"
    write_record(path, record)
    if experiment.draw is None:
        return Reproduced(record, path, None)
    from lnbnn.trust.figures import save_figure

    picture = (pictures or output) / f"{label}.png"
    save_figure(experiment.draw(record.results), picture, source=results_digest(record))
    return Reproduced(record, path, picture)


def start_in_background(arguments: Sequence[str], runs: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start ``lnbnn`` with these arguments as a process that outlives this one; it, and its log."""
    runs.mkdir(parents=True, exist_ok=True)
    log = runs / f"reproduce-{time.strftime('%Y%m%d-%H%M%S')}.log"
    with open(log, "wb") as file:
        command = [sys.executable, "-m", "lnbnn", *arguments]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    return process, log

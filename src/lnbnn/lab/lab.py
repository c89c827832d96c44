"""Where experiments are run: the data, its splits, features extracted once, and finished parts kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lnbnn.data.folder import LabelledImages
from lnbnn.data.splits import split_images
from lnbnn.errors import InvalidInputError
from lnbnn.files.atomic import atomic_path
from lnbnn.lab.base import Arrays, Experiment, Part
from lnbnn.lab.records import RunRecord, make_record
from lnbnn.reading.extraction import Progress, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.version import __version__

__all__ = ["Lab", "PartStatus"]


@dataclass(frozen=True)
class PartStatus:
    """Told after each part: which of how many, whether it was found on disk, its seconds, and the seconds left."""

    part: Part
    number: int
    total: int
    kept: bool
    seconds: float
    seconds_left: float


class Lab:
    """The data and the run folder of a series of experiments.

    Parameters
    ----------
    dataset : str
        Name of the data set, for keys and records.
    data : LabelledImages
    runs : path
        Folder of features, finished parts and split lists. What is in it is not computed again.
    progress : callable, optional
        Called as ``progress(stage, done, total)`` within a part.
    """

    def __init__(
        self,
        dataset: str,
        data: LabelledImages,
        runs: str | os.PathLike[str],
        *,
        n_jobs: int | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self.dataset = dataset
        self.data = data
        self.runs = Path(runs)
        self.n_jobs = n_jobs
        self.progress = progress
        self.store = FeatureStore(self.runs / "features")
        (self.runs / "parts").mkdir(exist_ok=True)

    def split(self, n_train: int, n_test: int, seed: int) -> tuple[LabelledImages, LabelledImages]:
        """Training and test images of a seed; the first ``n_train`` and the next ``n_test`` of a class's own order."""
        return split_images(self.data, n_train=n_train, n_test=n_test, seed=seed)

    def get(self, part: Part) -> Arrays:
        """The outcome of a part: read from the run folder, or computed and put there."""
        path = self._path(part)
        found = _read(path)
        if found is None:
            wall, cpu = time.perf_counter(), time.process_time()
            found = dict(part.compute(self))
            found["seconds"] = np.array(time.perf_counter() - wall)
            found["cpu_seconds"] = np.array(time.process_time() - cpu)
            found["peak_mib"] = np.array(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            with atomic_path(path) as partial, open(partial, "wb") as file:
                np.savez_compressed(file, allow_pickle=False, **found)
        return found

    def is_finished(self, part: Part) -> bool:
        """Whether the outcome of a part is in the run folder, whole."""
        return _read(self._path(part)) is not None

    def run(
        self,
        experiment: Experiment,
        settings: dict[str, Any],
        *,
        command: str,
        name: str = "",
        finished: bool = False,
        on_part: Callable[[PartStatus], None] = lambda status: None,
    ) -> RunRecord:
        """Do an experiment, part by part, and make its record; if ``finished``, of the parts that are done already."""
        parts = experiment.plan(settings)
        if finished:
            parts = [part for part in parts if self.is_finished(part)]
            if not parts:
                raise InvalidInputError(f"no part of {experiment.name} is finished in {self.runs}; run it first.")
        waiting = {part.kind: 0 for part in parts}
        for part in parts:
            waiting[part.kind] += not self._path(part).exists()
        times: dict[str, list[float]] = {}
        outcomes = []
        for number, part in enumerate(parts, 1):
            kept = self._path(part).exists()
            outcome = self.get(part)
            outcomes.append((part, outcome))
            seconds = float(outcome["seconds"])
            if not kept:
                waiting[part.kind] -= 1
                times.setdefault(part.kind, []).append(seconds)
            on_part(PartStatus(part, number, len(parts), kept, seconds, _seconds_left(waiting, times)))
        results = experiment.summarize(settings, outcomes)
        results["splits"] = self._describe_splits(parts)
        results["peak_memory_mib"] = round(max(float(outcome["peak_mib"]) for _, outcome in outcomes))
        return make_record(
            name or experiment.name,
            command,
            settings={**settings, "dataset": self.dataset},
            seeds=sorted({part.settings["seed"] for part in parts if "seed" in part.settings}),
            results=results,
            seconds=sum(float(outcome["seconds"]) for _, outcome in outcomes),
        )

    def _describe_splits(self, parts: list[Part]) -> dict[str, str]:
        """A digest of each split; its lists are written to the run folder."""
        keys = ("n_train", "n_test", "seed")
        wanted = {tuple(part.settings[key] for key in keys) for part in parts if all(k in part.settings for k in keys)}
        found = {}
        for n_train, n_test, seed in sorted(wanted):
            lists = [
                [Path(path).parent.name + "/" + Path(path).name for path in images.paths]
                for images in self.split(n_train, n_test, seed)
            ]
            if set(lists[0]) & set(lists[1]):
                raise InvalidInputError("an image is in the training and in the test list of one split.")
            text = json.dumps({"train": lists[0], "test": lists[1]}, indent=0)
            place = self.runs / "splits" / f"{self.dataset}-{n_train}-{n_test}-seed{seed}.json"
            place.parent.mkdir(exist_ok=True)
            place.write_text(text, encoding="utf-8")
            found[place.stem] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return found

    def _path(self, part: Part) -> Path:
        key = json.dumps([__version__, self.dataset, len(self.data), part.kind, part.settings], sort_keys=True)
        name = part.title.replace(", ", "-").replace(" ", "-")
        return self.runs / "parts" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.npz"


def _read(path: Path) -> Arrays | None:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception:  # zipfile and NumPy raise many types on a damaged file; each means that the part is not done
        return None


def _seconds_left(waiting: dict[str, int], times: dict[str, list[float]]) -> float:
    every = [value for values in times.values() for value in values]
    if not every:
        return 0.0
    return sum(n * float(np.mean(times.get(kind, every))) for kind, n in waiting.items())

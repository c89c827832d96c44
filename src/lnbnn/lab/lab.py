"""Runs experiments: the data, its splits, features extracted once, and finished parts stored on disk."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.classifiers.options import make_classifier
from lnbnn.cluster.tasks import RayCluster
from lnbnn.data.folder import LabeledImages
from lnbnn.data.splits import split_images
from lnbnn.descriptors import Descriptor
from lnbnn.errors import InvalidInputError
from lnbnn.files.atomic import atomic_path
from lnbnn.lab.base import Experiment, Outcome, Outcomes, Part, Settings
from lnbnn.lab.provenance import code_of, commit, data_of, descriptors_of, digest_of, is_dirty, made_with, whole_code
from lnbnn.lab.records import RunRecord, cpu_name, make_record, versions
from lnbnn.params import AUTO, resolve
from lnbnn.reading.extraction import Jobs, Progress, iter_stored, map_in_order, no_progress
from lnbnn.reading.store import FeatureStore
from lnbnn.version import __version__

__all__ = ["Lab", "PartStatus", "made_of", "of_classes"]

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class PartStatus:
    """The status after each part: its number, whether it was found on disk, its seconds, and the seconds left."""

    part: Part
    number: int
    total: int
    kept: bool
    seconds: float
    seconds_left: float

    def __str__(self) -> str:
        what = "kept" if self.kept else f"{self.seconds:.0f} s"
        left = self.seconds_left
        rest = f"; about {f'{left:.0f} s' if left < 90 else f'{left / 60:.0f} min'} left" if left else ""
        return f"[{self.number}/{self.total}] {self.part.title}: {what}{rest}"


class Lab:
    """The data and the run folder of a series of experiments.

    ``dataset`` is the name of the data in keys and records. ``runs`` is a folder of features, finished parts and split
    lists: what is there is not computed again. ``progress(stage, done, total)`` is called within a part.
    """

    def __init__(
        self,
        dataset: str,
        data: LabeledImages,
        runs: str | os.PathLike[str],
        *,
        n_jobs: Jobs = None,
        progress: Progress = no_progress,
    ) -> None:
        self.dataset = dataset
        self.data = data
        self.runs = Path(runs)
        self.n_jobs = n_jobs
        self.progress = progress
        commit()  # of the code as it is now: a checkout may move on while a run goes on
        self.data_is = data_of(dataset, data)
        self.store = FeatureStore(self.runs / "features")
        (self.runs / "parts").mkdir(exist_ok=True)

    def split_of(self, settings: Settings, classes: Iterable[str] | None = None) -> tuple[LabeledImages, LabeledImages]:
        """The split of a part, by its settings ``n_train``, ``n_test`` and ``seed``: of all classes, or of these.

        A class gives the first ``n_train`` and the next ``n_test`` images of its own order.
        """
        data = self.data if classes is None else of_classes(self.data, classes)
        return split_images(data, n_train=settings["n_train"], n_test=settings["n_test"], seed=settings["seed"])

    def shuffled_classes(self, seed: int) -> list[str]:
        """The classes in the order of a seed."""
        return np.random.default_rng(seed).permutation(sorted(set(self.data.labels))).tolist()

    def fit(
        self,
        method: str,
        params: Settings,
        images: LabeledImages,
        *,
        keep_features: bool = True,
        read: Callable[[str], Any] = lambda path: path,
        **changes: Any,
    ) -> Any:
        """A method fitted to images, as ``read`` gives them. ``changes`` are of the parameters."""
        classifier = resolve(CLASSIFIERS, method, "method")(**{**params, "n_jobs": self.n_jobs, **changes})
        store = self.store if keep_features else None
        return classifier.fit([read(path) for path in images.paths], images.labels, store=store, progress=self.progress)

    def fit_preset(self, settings: Settings, images: LabeledImages) -> Any:
        """The preset of a part fitted to images: Local NBNN with its ``params``, or what ``auto`` chooses."""
        if settings["preset"] == AUTO:
            made = make_classifier(preset=AUTO, params={**settings["params"], "n_jobs": self.n_jobs})
            return made.fit(images.paths, images.labels, progress=self.progress)
        keep = self.store_for(settings["params"]) is not None
        return self.fit("local-nbnn", settings["params"], images, keep_features=keep)

    def store_for(self, params: Settings) -> FeatureStore | None:
        """Where features are kept: those of a network; others take less to make than to read."""
        return self.store if params.get("descriptor", "").startswith("deep") else None

    def ask(
        self, work: Callable[[_Item], Any], items: Sequence[_Item], descriptor: Descriptor | None = None
    ) -> list[Any]:
        """``work`` for each query image, side by side, with progress.

        With the ``descriptor`` that it reads files by, a cluster puts their features into the store first.
        """
        if descriptor is not None and isinstance(self.n_jobs, RayCluster):
            paths = [str(item) for item in items]
            for done, _ in enumerate(iter_stored(paths, descriptor, self.store, n_jobs=self.n_jobs), start=1):
                self.progress("extracting", done, len(paths))
        found = []
        for one in map_in_order(work, items, self.n_jobs):
            found.append(one)
            self.progress("classifying", len(found), len(items))
        return found

    def get(self, part: Part, *, again: bool = False) -> Outcome:
        """The outcome of a part: read from the run folder, or computed and put there.

        Its ``made`` says what it was made with, see :func:`~lnbnn.lab.provenance.made_with`.
        """
        found = None if again else self.find(part)
        if found is None:
            made = made_with(part)
            wall, cpu = time.perf_counter(), time.process_time()
            outcome = part.compute(self, part.settings)
            arrays = {name: value for name, value in outcome.items() if isinstance(value, np.ndarray)}
            if values := {name: value for name, value in outcome.items() if name not in arrays}:
                arrays["values"] = np.array(json.dumps(values))
            arrays["seconds"] = np.array(time.perf_counter() - wall)
            arrays["cpu_seconds"] = np.array(time.process_time() - cpu)
            arrays["peak_mib"] = np.array(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            arrays["made"] = np.array(json.dumps(made))
            with atomic_path(self.path(part)) as partial, open(partial, "wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            found = _unpacked(arrays)
        return found

    def find(self, part: Part) -> Outcome | None:
        """The outcome of a part that is done; one made by code that was not committed is not, once the code is."""
        found = _read(self.path(part))
        if found is not None and is_dirty(made_of(found)["commit"]) and not is_dirty(commit()):
            return None
        return found

    def path(self, part: Part) -> Path:
        """The file of a part's outcome, named by all that it depends on: version, images, work, descriptors, code."""
        key = [__version__, self.dataset, self.data_is, part.kind, part.settings, descriptors_of(part), code_of(part)]
        key += [versions(), cpu_name(), whole_code()] if part.timed else []
        name = part.title.replace(", ", "-").replace(" ", "-")
        return self.runs / "parts" / f"{name}-{digest_of(key)}.npz"

    def run(
        self,
        experiment: Experiment,
        settings: Settings,
        *,
        command: str,
        name: str = "",
        finished: bool = False,
        again: bool = False,
        on_part: Callable[[PartStatus], None] = lambda status: None,
    ) -> RunRecord:
        """Run an experiment, part by part, and make its record.

        If ``finished``, nothing is computed and the record has the finished parts; if ``again``, every part is
        computed.
        """
        parts = experiment.plan(settings)
        if finished:
            parts = [part for part in parts if self.find(part) is not None]
            if not parts:
                raise InvalidInputError(f"no part of {experiment.name} is finished in {self.runs}; run it first.")
        kept = [not again and self.find(part) is not None for part in parts]
        times: dict[str, list[float]] = {}
        outcomes = []
        for place, part in enumerate(parts):
            outcome = self.get(part, again=again)
            outcomes.append((part, outcome))
            seconds = float(outcome["seconds"])
            if not kept[place]:
                times.setdefault(part.kind, []).append(seconds)
            every = [value for values in times.values() for value in values]
            waiting = [other.kind for other, done in list(zip(parts, kept, strict=True))[place + 1 :] if not done]
            left = sum(float(np.mean(times.get(kind, every))) for kind in waiting) if every else 0.0
            on_part(PartStatus(part, place + 1, len(parts), kept[place], seconds, left))
        results = experiment.summarize(settings, outcomes)
        if experiment.paper:
            results["dataset"] = self.dataset
            results["splits"] = self._describe_splits(parts)
            results["peak_memory_mib"] = round(max(float(outcome["peak_mib"]) for _, outcome in outcomes))
        return make_record(
            name or experiment.name,
            command,
            commit=commit(),
            settings={**settings, "dataset": self.dataset, "data": self.data_is},
            seeds=sorted({part.settings["seed"] for part in parts if "seed" in part.settings}),
            results=results,
            seconds=sum(float(outcome["seconds"]) for _, outcome in outcomes),
            parts=_parts_made(outcomes),
        )

    def _describe_splits(self, parts: list[Part]) -> dict[str, str]:
        """A digest of each split; its lists are written to the run folder."""
        keys = ("n_train", "n_test", "seed")
        wanted = {tuple(part.settings[key] for key in keys) for part in parts if all(k in part.settings for k in keys)}
        found = {}
        for n_train, n_test, seed in sorted(wanted):
            split = self.split_of({"n_train": n_train, "n_test": n_test, "seed": seed})
            lists = [["/".join(Path(path).parts[-2:]) for path in images.paths] for images in split]
            if set(lists[0]) & set(lists[1]):
                raise InvalidInputError("an image is in the training and in the test list of one split.")
            text = json.dumps({"train": lists[0], "test": lists[1]}, indent=0)
            place = self.runs / "splits" / f"{self.dataset}-{n_train}-{n_test}-seed{seed}.json"
            place.parent.mkdir(exist_ok=True)
            place.write_text(text, encoding="utf-8")
            found[place.stem] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return found


def of_classes(images: LabeledImages, classes: Iterable[str]) -> LabeledImages:
    """The images of these classes, in their order."""
    chosen = set(classes)
    return images.take([place for place, label in enumerate(images.labels) if label in chosen])


def _read(path: Path) -> Outcome | None:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = _unpacked(dict(arrays))
            made_of(found)
            return found
    except Exception:  # zipfile and NumPy raise many types on a damaged file; each means that the part is not done
        return None


def _unpacked(arrays: dict[str, NDArray[Any]]) -> Outcome:
    values = json.loads(str(arrays.pop("values"))) if "values" in arrays else {}
    return {**arrays, **values}


def made_of(outcome: Outcome) -> dict[str, Any]:
    """What an outcome was made with."""
    made: dict[str, Any] = json.loads(str(outcome["made"]))
    return made


def _parts_made(outcomes: Outcomes) -> list[dict[str, Any]]:
    """What the parts of a record were made with: an entry for all that were made alike, and each one's digest."""
    groups: dict[str, dict[str, Any]] = {}
    for part, outcome in outcomes:
        made = made_of(outcome)
        digest = made.pop("part")
        group = groups.setdefault(digest_of(made), {**made, "parts": {}})
        group["parts"][digest] = part.title
    return list(groups.values())

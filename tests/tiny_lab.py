"""Labs for the tests of experiments: one of a few pictures, and one whose split is of features given by hand."""

from __future__ import annotations

import numpy as np
from PIL import Image
from synthetic import grating_set

from lnbnn.data.folder import LabeledImages, scan_folder
from lnbnn.features import ImageFeatures
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.parts import full_params

PLAIN = {"index": "exact", "location_weight": 0.0, "scale_weight": 0.0, "query_budget": None}


def image(*vectors: tuple[int, int], xy: tuple[float, float] = (0.5, 0.5)) -> ImageFeatures:
    """An image whose descriptors are these vectors of two 8-bit numbers."""
    n = len(vectors)
    return ImageFeatures(np.array(vectors, np.uint8), np.full((n, 2), xy, np.float32), np.full(n, 16.0), (100, 80))


def plain_params(method: str, **changes: object) -> dict[str, object]:
    """All parameters of a method of the NBNN family whose distances are those of the vectors alone."""
    return full_params(method, PLAIN | changes)


class TinyLab(Lab):
    """A lab whose every split is the one given: features by class."""

    def __init__(self, runs, train: dict[str, list[ImageFeatures]], test: dict[str, list[ImageFeatures]]) -> None:
        super().__init__("tiny", LabeledImages((), ()), runs, n_jobs=1)
        self.split = tuple(
            LabeledImages(
                tuple(one for images in side.values() for one in images),
                tuple(label for label, images in side.items() for _ in images),
            )
            for side in (train, test)
        )

    def split_of(self, settings, classes=None):
        return self.split


def grating_lab(folder):
    """A lab of pictures: three classes of six gratings."""
    for number, (picture, label) in enumerate(zip(*grating_set(n_classes=3, n_images=6), strict=True)):
        (folder / "images" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / "images" / label / f"{number}.png")
    return Lab("gratings", scan_folder(folder / "images"), folder / "runs", n_jobs=1)


def counted(calls, value=1.0, **settings):
    """A part that notes each time it is computed."""

    def compute(lab, own):
        assert own == settings
        calls.append(settings)
        return {"value": np.array(value)}

    return Part("counted", settings, compute)


def sum_of(parts, **paper):
    return Experiment(
        name="sum",
        title="",
        settings={},
        plan=lambda settings: parts,
        summarize=lambda settings, outcomes: {"sum": float(sum(arrays["value"] for _, arrays in outcomes))},
        tabulate=lambda results: "",
        paper=paper,
    )

"""Dense SIFT at the paper's settings against OpenCV's SIFT on the same grid, on one thread, in one run.

The images are the built-in photographs at 300 px: nothing is downloaded. Where kornia and torch are installed, kornia's
DenseSIFTDescriptor is timed too, one scale after the other.

    python benchmarks/dense_sift.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import cv2
import numpy as np
from common import run, table, values_of

from lnbnn import DenseSIFT
from lnbnn.data.toy import PHOTOS, load_photos
from lnbnn.files.images import resize_longest
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.base import Outcome, Settings

SETTINGS: Settings = {
    "grid": {"bin_sizes": [4, 6, 9], "step_px": 3, "longest_side": 300},
    "photos": list(PHOTOS),
    "repeats": 5,
}
QUICK: Settings = {"photos": ["camera"], "repeats": 1}


def plan(settings: Settings) -> list[Part]:
    """One part; kornia is in it where it is installed."""
    has_kornia = find_spec("kornia") is not None and find_spec("torch") is not None
    return [Part("dense-sift", settings | {"kornia": has_kornia}, compute, timed=True)]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Time all of them on every photograph."""
    cv2.setNumThreads(1)
    grid, repeats = settings["grid"], settings["repeats"]
    ours, theirs = DenseSIFT(**grid), cv2.SIFT_create()
    kornia = kornia_sift(grid) if settings["kornia"] else None
    photos = load_photos()
    rows = []
    for name in settings["photos"]:
        image = resize_longest(photos[name], grid["longest_side"])
        features = ours.extract(image)
        points = features.xy * features.size
        # OpenCV's bins are 1.5 times a keypoint's size, ours a quarter of a patch's side: these are the same patches.
        sizes = features.scale / 6
        keypoints = [cv2.KeyPoint(float(x), float(y), float(s)) for (x, y), s in zip(points, sizes, strict=True)]
        row = {"photo": name, "n_descriptors": len(features)}
        row["ours_ms"] = median_ms(repeats, ours.extract, image)
        row["opencv_ms"] = median_ms(repeats, theirs.compute, image, keypoints)
        if kornia is not None:
            row["kornia_ms"] = median_ms(repeats, kornia, image)
        rows.append(row)
        lab.progress("timing", len(rows), len(settings["photos"]))
    return {"photos": rows}


def kornia_sift(grid: Settings) -> Callable[[np.ndarray], object]:
    """kornia's dense SIFT at the same bin sizes and step."""
    import torch
    from kornia.feature import DenseSIFTDescriptor

    torch.set_num_threads(1)
    scales = [DenseSIFTDescriptor(spatial_bin_size=size, stride=grid["step_px"]) for size in grid["bin_sizes"]]

    def extract(image: np.ndarray) -> object:
        with torch.no_grad():
            tensor = torch.from_numpy(image.astype(np.float32) / 255)[None, None]
            return [scale(tensor) for scale in scales]

    return extract


def median_ms(repeats: int, work: Callable[..., object], *arguments: object) -> float:
    """Median CPU milliseconds of a few repeats, after one to warm up; everything runs on this thread."""
    work(*arguments)
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work(*arguments)
        times.append(1000 * (time.process_time() - begin))
    return float(np.round(statistics.median(times), 2))


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """Medians over the photographs."""
    rows = values_of(outcomes[0][1])["photos"]

    def median(field: str) -> float:
        return round(statistics.median(row[field] for row in rows), 2)

    ratios = {
        who: [row[f"{who}_ms"] / row["ours_ms"] for row in rows if f"{who}_ms" in row] for who in ("opencv", "kornia")
    }
    results = {
        "ours_ms_median": median("ours_ms"),
        "opencv_ms_median": median("opencv_ms"),
        "n_descriptors_median": int(median("n_descriptors")),
        "ratio_median": round(statistics.median(ratios["opencv"]), 1),
        "ratio_range": [round(min(ratios["opencv"]), 1), round(max(ratios["opencv"]), 1)],
        "photos": rows,
    }
    if ratios["kornia"]:
        results["kornia_ms_median"] = median("kornia_ms")
        results["kornia_ratio_median"] = round(statistics.median(ratios["kornia"]), 1)
    return results


def tabulate(results: dict[str, Any]) -> str:
    """One row per program."""
    rows = [[name, f"{results[field]:.1f}"] for name, field in _ROWS if field in results]
    return table("dense SIFT of | CPU ms per image", rows)


_ROWS = (("lnbnn", "ours_ms_median"), ("OpenCV", "opencv_ms_median"), ("kornia", "kornia_ms_median"))
TITLE = "Dense SIFT against OpenCV's SIFT on the same grid"
EXPERIMENT = Experiment("dense-sift", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, dataset="")

if __name__ == "__main__":
    run(EXPERIMENT)

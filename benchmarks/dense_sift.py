"""Dense SIFT at the paper's settings against OpenCV's SIFT on the same grid, on one thread, in one run.

The images are the built-in photographs at 300 px: nothing is downloaded. Where kornia and torch are installed, kornia's
DenseSIFTDescriptor is timed too, one scale after the other.
"""

from collections.abc import Callable
from importlib.util import find_spec
from statistics import median

import cv2
import numpy as np
from common import benchmark, cpu_seconds, parts_over, table

from lnbnn import DenseSIFT
from lnbnn.data.toy import PHOTOS, load_photos
from lnbnn.files.images import resize
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings

GRID: Settings = {"bin_sizes": [4, 6, 9], "step_px": 3, "longest_side": 300}
HAS_KORNIA = find_spec("kornia") is not None and find_spec("torch") is not None
SETTINGS: Settings = {"grid": GRID, "photos": list(PHOTOS), "repeats": 5, "kornia": HAS_KORNIA}
QUICK: Settings = {"photos": ["camera"], "repeats": 1}


def compute(lab: Lab, settings: Settings) -> Outcome:
    cv2.setNumThreads(1)
    grid = settings["grid"]
    ours, theirs, photos = DenseSIFT(**grid), cv2.SIFT_create(), load_photos()
    kornia = kornia_sift(grid) if settings["kornia"] else None

    def cpu_ms(work: Callable[..., object], *args: object) -> float:
        return round(1000 * median(cpu_seconds(settings["repeats"], work, *args)), 2)

    rows = []
    for name in settings["photos"]:
        image = resize(photos[name], grid["longest_side"])
        features = ours.extract(image)
        # OpenCV's bins are 1.5 times a keypoint's size, ours a quarter of a patch's side: these are the same patches.
        places = zip(*(features.xy * features.size).T.tolist(), (features.scale / 6).tolist(), strict=True)
        keypoints = [cv2.KeyPoint(x, y, size) for x, y, size in places]
        row = {"photo": name, "n_descriptors": len(features), "ours_ms": cpu_ms(ours.extract, image)}
        row["opencv_ms"] = cpu_ms(theirs.compute, image, keypoints)
        rows.append(row | ({"kornia_ms": cpu_ms(kornia, image)} if kornia else {}))
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


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    rows = outcomes[0][1]["photos"]
    ratios = [row["opencv_ms"] / row["ours_ms"] for row in rows]
    results = {f"{who}_ms_median": round(median(row[f"{who}_ms"] for row in rows), 2) for who in ("ours", "opencv")}
    results |= {"n_descriptors_median": int(median(row["n_descriptors"] for row in rows))}
    results |= {"ratio_median": round(median(ratios), 1), "ratio_range": [round(min(ratios), 1), round(max(ratios), 1)]}
    if settings["kornia"]:
        results["kornia_ms_median"] = round(median(row["kornia_ms"] for row in rows), 2)
        results["kornia_ratio_median"] = round(median(row["kornia_ms"] / row["ours_ms"] for row in rows), 1)
    return results | {"photos": rows}


def tabulate(results: Results) -> str:
    names = {"lnbnn": "ours_ms_median", "OpenCV": "opencv_ms_median", "kornia": "kornia_ms_median"}
    rows = [[name, f"{results[field]:.1f}"] for name, field in names.items() if field in results]
    return table("dense SIFT of | CPU ms per image", rows)


EXPERIMENT = benchmark(globals(), plan=parts_over("dense-sift", compute, timed=True), dataset="")

"""Dense SIFT at the paper's settings against OpenCV's SIFT on the same grid, on one thread, in one run.

Writes results/dense-sift.json. The images are the built-in photographs at 300 px: nothing is downloaded. Where kornia
and torch are installed, kornia's DenseSIFTDescriptor is timed too, one scale after the other.

    python benchmarks/dense_sift.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from lnbnn import DenseSIFT
from lnbnn.data.toy import load_photos
from lnbnn.files.images import resize_longest
from lnbnn.lab.records import make_record, write_record

HERE = Path(__file__).resolve().parent.parent
SETTINGS = {"bin_sizes": [4, 6, 9], "step_px": 3, "longest_side": 300}
REPEATS = 5


def main() -> None:
    """Time both on every photograph and write the record."""
    cv2.setNumThreads(1)
    start = time.perf_counter()
    ours = DenseSIFT(**SETTINGS)
    theirs = cv2.SIFT_create()
    kornia = kornia_sift()
    rows = []
    for name, photo in load_photos().items():
        image = resize_longest(photo, 300)
        features = ours.extract(image)
        points = features.xy * features.size
        # OpenCV's bins are 1.5 times a keypoint's size, ours a quarter of a patch's side: these are the same patches.
        sizes = features.scale / 6
        keypoints = [cv2.KeyPoint(float(x), float(y), float(s)) for (x, y), s in zip(points, sizes, strict=True)]
        ours_ms = median_ms(lambda image=image: ours.extract(image))
        theirs_ms = median_ms(lambda image=image, keypoints=keypoints: theirs.compute(image, keypoints))
        rows.append({"photo": name, "n_descriptors": len(features), "ours_ms": ours_ms, "opencv_ms": theirs_ms})
        if kornia is not None:
            rows[-1]["kornia_ms"] = median_ms(lambda image=image: kornia(image))
        print(f"{name:12s} {len(features):6d} descriptors  ours {ours_ms:6.1f} ms  OpenCV {theirs_ms:6.1f} ms")
    ratios = [row["opencv_ms"] / row["ours_ms"] for row in rows]
    results = {
        "ours_ms_median": round(statistics.median(row["ours_ms"] for row in rows), 2),
        "opencv_ms_median": round(statistics.median(row["opencv_ms"] for row in rows), 2),
        "n_descriptors_median": int(statistics.median(row["n_descriptors"] for row in rows)),
        "ratio_median": round(statistics.median(ratios), 1),
        "ratio_range": [round(min(ratios), 1), round(max(ratios), 1)],
        "photos": rows,
    }
    if kornia is not None:
        results["kornia_ms_median"] = round(statistics.median(row["kornia_ms"] for row in rows), 2)
        results["kornia_ratio_median"] = round(statistics.median(row["kornia_ms"] / row["ours_ms"] for row in rows), 1)
    record = make_record(
        "dense-sift",
        "python benchmarks/dense_sift.py",
        settings=SETTINGS | {"threads": 1, "repeats": REPEATS},
        seeds=[],
        results=results,
        seconds=time.perf_counter() - start,
    )
    write_record(HERE / "results" / "dense-sift.json", record)
    print(
        f"{results['ratio_median']} times as fast as OpenCV's SIFT on the same grid (median of {len(rows)} photographs)"
    )


def kornia_sift() -> Callable[[np.ndarray], object] | None:
    """kornia's dense SIFT at the same three bin sizes and step, or None where it is not installed."""
    try:
        import torch
        from kornia.feature import DenseSIFTDescriptor
    except ImportError as error:
        print(f"kornia is left out ({error})")
        return None
    torch.set_num_threads(1)
    scales = [DenseSIFTDescriptor(spatial_bin_size=size, stride=SETTINGS["step_px"]) for size in SETTINGS["bin_sizes"]]

    def extract(image: np.ndarray) -> object:
        with torch.no_grad():
            tensor = torch.from_numpy(image.astype(np.float32) / 255)[None, None]
            return [scale(tensor) for scale in scales]

    return extract


def median_ms(work: Callable[[], object]) -> float:
    """Median CPU milliseconds of a few repeats, after one to warm up; everything runs on this thread."""
    work()
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        times.append(1000 * (time.process_time() - begin))
    return float(np.round(statistics.median(times), 2))


if __name__ == "__main__":
    main()

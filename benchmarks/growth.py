"""How the time of a search grows with the number of classes and of reference descriptors, over 16-fold ranges.

Caltech 101, the default index. Draws docs/images/growth.png, with the fits t = a + b log2(n) and t = a n^p to each curve.

    python benchmarks/growth.py
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from common import run

from lnbnn import DenseSIFT
from lnbnn.indexes import make_index
from lnbnn.lab import Experiment, Lab, Part
from lnbnn.lab.axes import new_plot
from lnbnn.lab.base import Outcome, Settings
from lnbnn.reading.extraction import features_of
from lnbnn.reading.location import append_location

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS: Settings = {
    "n_train": 15,
    "n_test": 15,
    "seed": 0,
    "n_neighbors": 10,
    "queries_an_image": 500,
    "n_images_asked": 30,
    "shares": [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4],  # of the descriptors
    "repeats": 3,
}
QUICK: Settings = {"n_train": 4, "n_test": 2, "n_images_asked": 3, "shares": [1 / 8, 1 / 4], "repeats": 1}


def plan(settings: Settings) -> list[Part]:
    """One part per curve."""
    own = settings | {"descriptor": "dense-sift", "descriptor_params": DenseSIFT().settings()}
    own["index"] = make_index("faiss").settings()
    return [
        Part(f"growth {curve}", own | {"curve": curve}, compute, timed=True) for curve in ("descriptors", "classes")
    ]


def compute(lab: Lab, settings: Settings) -> Outcome:
    """The points of one curve."""
    train, test = lab.split_of(settings)
    descriptor = DenseSIFT(**settings["descriptor_params"])
    images, asked = (
        lab.ask(lambda path: append_location(features_of(path, descriptor), 1.6), paths)
        for paths in (train.paths, test.paths[:: max(1, len(test) // settings["n_images_asked"])])
    )
    asked = [rows[np.linspace(0, len(rows) - 1, settings["queries_an_image"]).astype(int)] for rows in asked]
    n_classes = len(set(train.labels))
    points = []
    for share in settings["shares"]:
        if settings["curve"] == "descriptors":
            thinned, n = [vectors[:: round(1 / share)] for vectors in images], n_classes
        else:  # every fourth descriptor of some classes
            kept = np.linspace(0, n_classes - 1, round(4 * share * n_classes)).astype(int)
            places = [settings["n_train"] * place + one for place in kept for one in range(settings["n_train"])]
            thinned, n = [images[place][::4] for place in places], len(kept)
        points.append(measure(thinned, asked, n, settings))
        lab.progress("measuring", len(points), len(settings["shares"]))
    return {"points": points}


def measure(images: list[np.ndarray], asked: list[np.ndarray], n_classes: int, settings: Settings) -> dict[str, Any]:
    """CPU microseconds per query descriptor in an index of these images: the best of some repeats, mean over images."""
    index = make_index("faiss", settings["index"])
    for number, vectors in enumerate(images):
        index.add(vectors, (number << 20) + np.arange(len(vectors)))
    begin, cpu = time.perf_counter(), time.process_time()
    index.build()
    build_s, build_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    rounds = []
    for _ in range(settings["repeats"] + 1):
        begin = time.thread_time()
        for vectors in asked:
            index.search(vectors, settings["n_neighbors"] + 1)
        rounds.append(1e6 * (time.thread_time() - begin) / (len(asked) * settings["queries_an_image"]))
    return {
        "n_classes": n_classes,
        "n_descriptors": len(index),
        "us_a_descriptor": round(min(rounds[1:]), 2),
        "us_a_descriptor_worst": round(max(rounds[1:]), 2),
        "build_s": round(build_s, 1),
        "build_cpu_s": round(build_cpu_s, 1),
        "index": index.describe(),
        "bytes_a_descriptor": round(index.nbytes / len(index), 1),
    }


def summarize(settings: Settings, outcomes: list[tuple[Part, Outcome]]) -> dict[str, Any]:
    """Each curve with its fits."""
    results = {}
    for part, found in outcomes:
        curve, points = part.settings["curve"], found["points"]
        results[f"by_{curve}"] = {"points": points, **fits([point[f"n_{curve}"] for point in points], points)}
    return results


def fits(sizes: list[int], points: list[dict[str, Any]]) -> dict[str, Any]:
    """t = a + b log2(n) and t = a n^p by least squares."""
    n, t = np.log2(np.array(sizes, float)), np.array([point["us_a_descriptor"] for point in points])
    slope, start = np.polyfit(n, t, 1)
    power, _ = np.polyfit(n, np.log2(t), 1)
    worst = float(np.abs(start + slope * n - t).max() / t.mean())
    return {
        "us_for_each_doubling": round(float(slope), 2),
        "worst_departure_from_logarithm": round(worst, 3),
        "power": round(float(power), 3),
        "times_for_16_fold": round(float(t[-1] / t[0]), 2),
    }


def tabulate(results: dict[str, Any]) -> str:
    """One column per size, for both curves, and their fits."""
    lines = []
    for name, curve in results.items():
        words = name.removeprefix("by_")
        lines += [
            f"| {words} | " + " | ".join(f"{point['n_' + words]:,}" for point in curve["points"]) + " |",
            "|---" * (len(curve["points"]) + 1) + "|",
            "| CPU us a query descriptor | "
            + " | ".join(f"{point['us_a_descriptor']:.1f}" for point in curve["points"])
            + " |",
            "",
            f"{curve['times_for_16_fold']:.2f} times the time for 16 times the {words}: "
            f"{curve['us_for_each_doubling']:.1f} us for each doubling, within "
            f"{100 * curve['worst_departure_from_logarithm']:.0f} % of a logarithm, or the power {curve['power']:.2f}.",
            "",
        ]
    return "\n".join(lines)


def draw(results: dict[str, Any]) -> Figure:
    """Both curves with their logarithms."""
    names = {"by_descriptors": "reference descriptors", "by_classes": "classes, 15 images each"}
    figure, panels = new_plot("", "CPU microseconds per query descriptor", size=(8, 3.2), n_panels=2, share_y=True)
    for axes, (name, curve) in zip(panels, results.items(), strict=True):
        n = np.array([point[name.replace("by_", "n_")] for point in curve["points"]], float)
        t = np.array([point["us_a_descriptor"] for point in curve["points"]])
        slope, start = np.polyfit(np.log2(n), t, 1)
        axes.plot(n, t, "o")
        axes.plot(n, start + slope * np.log2(n), "-", label=f"{start:.0f} + {slope:.1f} log2(n)")
        axes.set(xscale="log", xlabel=names[name])
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right")
    return figure


TITLE = "CPU time against the number of descriptors and of classes"
EXPERIMENT = Experiment("growth", TITLE, SETTINGS, plan, summarize, tabulate, QUICK, draw=draw, source="")

if __name__ == "__main__":
    run(EXPERIMENT)

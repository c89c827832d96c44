"""How the time of a search grows with the number of classes and of reference descriptors, over 16-fold ranges.

Caltech 101, the default index. Draws docs/images/growth.png, with the fits t = a + b log2(n) to the curves.
"""

from typing import Any

import numpy as np
from common import benchmark, cpu_seconds, parts_over, table, watch

from lnbnn.descriptors import make_descriptor
from lnbnn.features import append_location
from lnbnn.indexes import make_index
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.axes import new_plot
from lnbnn.reading.extraction import features_of

SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seed": 0, "n_neighbors": 10, "repeats": 3}
SETTINGS |= {"queries_an_image": 500, "n_images_asked": 30, "shares": [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4]}
SETTINGS |= {"curves": ["descriptors", "classes"], "descriptor": "dense-sift"}
QUICK: Settings = {"n_train": 4, "n_test": 2, "n_images_asked": 3, "shares": [1 / 8, 1 / 4], "repeats": 1}


def compute(lab: Lab, settings: Settings) -> Outcome:
    train, test = lab.split_of(settings)
    descriptor = make_descriptor(settings["descriptor"], settings["descriptor_params"])
    images, asked = (
        lab.ask(lambda path: append_location(features_of(path, descriptor), 1.6), paths)
        for paths in (train.paths, test.paths[:: max(1, len(test) // settings["n_images_asked"])])
    )
    asked = [rows[np.linspace(0, len(rows) - 1, settings["queries_an_image"]).astype(int)] for rows in asked]
    points, n_train, n_classes = [], settings["n_train"], len(set(train.labels))
    for share in settings["shares"]:
        if settings["curve"] == "descriptors":
            thinned, n = [vectors[:: round(1 / share)] for vectors in images], n_classes
        else:  # every fourth descriptor of some classes
            kept = np.linspace(0, n_classes - 1, round(4 * share * n_classes)).astype(int)
            thinned = [images[n_train * place + one][::4] for place in kept for one in range(n_train)]
            n = len(kept)
        points.append({"n_classes": n, **measure(thinned, asked, settings)})
        lab.progress("measuring", len(points), len(settings["shares"]))
    return {"points": points}


def measure(images: list[np.ndarray], asked: list[np.ndarray], settings: Settings) -> dict[str, Any]:
    """CPU microseconds per query descriptor in an index of these images: the best of some repeats, mean over images."""
    index = make_index("faiss")
    for number, vectors in enumerate(images):
        index.add(vectors, (number << 20) + np.arange(len(vectors)))
    with watch() as building:
        index.build()

    def search() -> None:
        for vectors in asked:
            index.search(vectors, settings["n_neighbors"] + 1)

    n_queries = len(asked) * settings["queries_an_image"]
    us = [1e6 * seconds / n_queries for seconds in cpu_seconds(settings["repeats"], search)]
    return {
        "n_descriptors": len(index),
        "us_a_descriptor": round(min(us), 2),
        "us_a_descriptor_worst": round(max(us), 2),
        "build_s": round(building.wall_s, 1),
        "build_cpu_s": round(building.cpu_s, 1),
        "index": index.describe(),
        "bytes_a_descriptor": round(index.nbytes / len(index), 1),
    }


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """Each curve with t = a + b log2(n) and t = a n^p by least squares."""
    results = {}
    for part, found in outcomes:
        curve, points = part.settings["curve"], found["points"]
        n = np.log2(np.array([point[f"n_{curve}"] for point in points], float))
        t = np.array([point["us_a_descriptor"] for point in points])
        slope, start = np.polyfit(n, t, 1)
        results[f"by_{curve}"] = {
            "points": points,
            "us_for_each_doubling": round(float(slope), 2),
            "worst_departure_from_logarithm": round(float(np.abs(start + slope * n - t).max() / t.mean()), 3),
            "power": round(float(np.polyfit(n, np.log2(t), 1)[0]), 3),
            "times_for_16_fold": round(float(t[-1] / t[0]), 2),
        }
    return results


def tabulate(results: Results) -> str:
    texts = []
    for name, curve in results.items():
        words, points = name.removeprefix("by_"), curve["points"]
        sizes = " | ".join([words, *(f"{point['n_' + words]:,}" for point in points)])
        times = ["CPU us per query descriptor", *(f"{point['us_a_descriptor']:.1f}" for point in points)]
        departure = 100 * curve["worst_departure_from_logarithm"]
        texts.append(
            f"{table(sizes, [times])}\n{curve['times_for_16_fold']:.2f} times the time for 16 times the {words}: "
            f"{curve['us_for_each_doubling']:.1f} us for each doubling, within {departure:.0f} % of a logarithm, "
            f"or the power {curve['power']:.2f}.\n"
        )
    return "\n".join(texts)


def draw(results: Results) -> Any:
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


EXPERIMENT = benchmark(globals(), plan=parts_over("growth", compute, timed=True, curves="curve"), source="")

"""How the time of a search grows with the descriptors in a Milvus standalone server, over a 16-fold range.

Dense SIFT of Caltech 101 on the grid of the paper. Each size is a collection of its own on a server that is started
here; each is searched through the cells near a query, as the index does, and through all cells, as the engine would.
"""

import sys
from typing import Any

import faiss
import numpy as np
from common import HERE, benchmark, parts_over, show, table, watch

from lnbnn.descriptors import make_descriptor
from lnbnn.features import append_location
from lnbnn.indexes import make_index
from lnbnn.indexes.faiss_kmeans import one_thread
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.axes import new_plot, plain_log
from lnbnn.reading.extraction import features_of

SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seed": 0, "n_neighbors": 10, "n_rows": 10_500_000}
SETTINGS |= {"shares": [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0], "queries_an_image": 250, "n_images_asked": 40, "n_true": 200}
SETTINGS |= {"rows_per_cell": 0, "descriptor": "dense-sift"}
SETTINGS |= {"descriptor_params": {"bin_sizes": [4, 6, 9], "step_px": 3}}
QUICK: Settings = {"n_train": 3, "n_test": 2, "n_rows": 64_000, "n_images_asked": 4, "n_true": 20}
QUICK |= {"shares": [1 / 16, 1.0], "rows_per_cell": 4000}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """One size: the server is new, so that nothing else is in it."""
    sys.path.insert(0, str(HERE / "tests"))
    from milvus_server import MilvusServer

    rows, asked = descriptors(lab, settings)
    with MilvusServer() as server:
        params: Settings = {"uri": server.uri}
        if settings["rows_per_cell"]:
            params["n_cells"] = max(1, len(rows) // settings["rows_per_cell"])
        index = make_index("milvus", params)
        index.add(rows, np.arange(len(rows)))
        with watch() as building:
            index.build(lambda done, total: show("building", done, total))
        n_cells = len(index._centers)
        near = measure(index, asked, settings["n_neighbors"])
        truth = nearest(rows, np.vstack(asked)[: settings["n_true"]], settings["n_neighbors"])
        recall = recall_of(index, asked, truth)
        index.n_cell_probes = n_cells
        everywhere = measure(index, asked[: max(1, len(asked) // 4)], settings["n_neighbors"])
        return {
            "n_descriptors": len(rows),
            "n_cells": n_cells,
            "build_s": round(building.wall_s),
            "us_a_descriptor": near,
            "us_a_descriptor_everywhere": everywhere,
            "recall": recall,
            "recall_everywhere": recall_of(index, asked, truth),
        }


def descriptors(lab: Lab, settings: Settings) -> tuple[np.ndarray, list[np.ndarray]]:
    """So many rows, an even choice from all training images; and the query descriptors of some test images."""
    train, test = lab.split_of(settings)
    descriptor = make_descriptor(settings["descriptor"], settings["descriptor_params"])
    n_rows = round(settings["n_rows"] * settings["share"])
    per_image = -(-n_rows // len(train))

    def chosen(path: str, n: int) -> np.ndarray:
        vectors = append_location(features_of(path, descriptor), 1.6)
        return vectors[np.linspace(0, len(vectors) - 1, min(n, len(vectors))).astype(int)]

    rows = np.vstack(lab.ask(lambda path: chosen(path, per_image), train.paths))[:n_rows]
    paths = test.paths[:: max(1, len(test) // settings["n_images_asked"])]
    return rows, lab.ask(lambda path: chosen(path, settings["queries_an_image"]), paths)


def measure(index: Any, asked: list[np.ndarray], n_neighbors: int) -> float:
    """Wall-clock microseconds per query descriptor, an image at a time: the median over images."""
    times = []
    for vectors in asked[:1] + asked:  # the first warms up
        with watch() as searching:
            index.search(vectors, n_neighbors + 1)
        times.append(1e6 * searching.wall_s / len(vectors))
    return round(float(np.median(times[1:])), 1)


def nearest(rows: np.ndarray, queries: np.ndarray, n_neighbors: int) -> np.ndarray:
    """The distance of the last of the true neighbors of each query."""
    best = np.full((len(queries), n_neighbors + 1), np.inf, np.float32)
    for start in range(0, len(rows), 1 << 18):
        block = faiss.IndexFlatL2(rows.shape[1])
        block.add(rows[start : start + (1 << 18)].astype(np.float32))
        with one_thread():
            found = block.search(queries.astype(np.float32), n_neighbors + 1)[0]
        best = np.sort(np.hstack([best, found]), axis=1)[:, : n_neighbors + 1]
    return best


def recall_of(index: Any, asked: list[np.ndarray], truth: np.ndarray) -> float:
    """The share of the true neighbors that are found."""
    queries = np.vstack(asked)[: len(truth)]
    distances = index.search(queries, truth.shape[1])[0]
    return round(float((distances <= truth[:, -1:]).mean()), 4)


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    points = [
        {name: value for name, value in found.items() if not isinstance(value, np.ndarray)} for _, found in outcomes
    ]
    n = np.log2([point["n_descriptors"] for point in points])
    results: Results = {"points": points}
    for name in ("us_a_descriptor", "us_a_descriptor_everywhere"):
        t = np.array([point[name] for point in points])
        results[name] = {
            "times_for_the_range": round(float(t[-1] / t[0]), 2),
            "power": round(float(np.polyfit(n, np.log2(t), 1)[0]), 3),
        }
    results["range"] = round(points[-1]["n_descriptors"] / points[0]["n_descriptors"], 1)
    return results


def tabulate(results: Results) -> str:
    rows = []
    for point in results["points"]:
        times = [f"{point[name]:,.0f}" for name in ("us_a_descriptor", "us_a_descriptor_everywhere")]
        shares = [f"{100 * point[name]:.1f}" for name in ("recall", "recall_everywhere")]
        rows.append([f"{point['n_descriptors']:,}", str(point["n_cells"]), *times, *shares, f"{point['build_s']:,}"])
    header = "descriptors | cells | us per query, near cells | all cells | recall, %, near cells | all cells | build, s"
    near, everywhere = results["us_a_descriptor"], results["us_a_descriptor_everywhere"]
    return table(header, rows) + (
        f"\nFor {results['range']:.0f} times the descriptors a query takes {near['times_for_the_range']:.1f} times as "
        f"long through the cells near it (the power {near['power']:.2f}), and {everywhere['times_for_the_range']:.1f} "
        f"times through all (the power {everywhere['power']:.2f}).\n"
    )


def draw(results: Results) -> Any:
    figure, axes = new_plot("descriptors in Milvus standalone", "microseconds per query descriptor", size=(5, 3.2))
    n = [point["n_descriptors"] for point in results["points"]]
    for name, words in (("us_a_descriptor", "cells near the query"), ("us_a_descriptor_everywhere", "all cells")):
        axes.plot(n, [point[name] for point in results["points"]], "o-", label=words)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(n, [f"{one / 1e6:.2g} M" for one in n])
    axes.minorticks_off()
    plain_log(axes.yaxis)
    axes.legend()
    return figure


EXPERIMENT = benchmark(globals(), plan=parts_over("engine growth", compute, timed=True, shares="share"), source="")

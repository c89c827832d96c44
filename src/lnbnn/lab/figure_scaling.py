"""The figure on scaling: time an image against the number of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnbnn.data.folder import LabelledImages
from lnbnn.lab.base import Arrays, Experiment, Part, markdown_table
from lnbnn.lab.lab import Lab
from lnbnn.lab.parts import full_params
from lnbnn.lab.timing import make_timed, read_features, timed_totals

__all__ = ["EXPERIMENT"]

_SPARSE = {"bin_sizes": [6, 9, 14, 21], "step_px": 8}

SETTINGS: dict[str, Any] = {
    "n_train": 15,
    "n_test": 12,
    "seed": 0,
    "n_classes": [2, 4, 8, 16, 32, 64, 101, 256],
    "params": {"descriptor_params": _SPARSE, "scale_weight": 0.0, "query_budget": 250},
    "runs": [
        ["local-nbnn", "faiss", {}],
        ["local-nbnn", "flann", {"checks": 128}],
        ["nbnn", "flann", {"checks": 128}],
    ],
}
QUICK: dict[str, Any] = {
    "n_train": 4,
    "n_test": 4,
    "n_classes": [2, 4, 6],
    "params": {"descriptor_params": _SPARSE, "scale_weight": 0.0, "query_budget": 60},
}
PAPER = {"ratio at 256 classes": "100", "nbnn": "linear", "local-nbnn": "logarithmic"}


def plan(settings: dict[str, Any]) -> list[Part]:
    """One part a method and index."""
    parts = []
    for method, index, index_params in settings["runs"]:
        own = {key: settings[key] for key in ("n_train", "n_test", "seed", "n_classes")}
        own |= {"method": method, "index": index, "index_params": index_params}
        own["params"] = full_params(method, {**settings["params"], "index": index, "index_params": index_params})
        parts.append(Part(f"classes {method} {index}", own, _compute(own)))
    return parts


def _compute(own: dict[str, Any]):  # type: ignore[no-untyped-def]
    def compute(lab: Lab) -> Arrays:
        """CPU seconds of each query image; the same images, of the first two classes, at every number of classes."""
        train, test = lab.split(own["n_train"], own["n_test"], own["seed"])
        order = np.random.default_rng(own["seed"]).permutation(sorted(set(train.labels))).tolist()
        counts = [n for n in own["n_classes"] if n <= len(order)]
        queries = _of_classes(test, order[:2])
        seconds = []
        for n_classes in counts:
            some = _of_classes(train, order[:n_classes])
            classifier = make_timed(own["method"], own["params"])
            classifier.fit(some.paths, some.labels, store=lab.store, progress=lab.progress)
            features = read_features(classifier, queries.paths, lab)
            seconds.append(timed_totals(classifier, features, lab, f"{n_classes} classes")[1])
        return {"n_classes": np.array(counts), "image_seconds": np.array(seconds)}

    return compute


def _of_classes(images: LabelledImages, classes: list[str]) -> LabelledImages:
    kept = [place for place, label in enumerate(images.labels) if label in set(classes)]
    return LabelledImages(tuple(images.paths[i] for i in kept), tuple(images.labels[i] for i in kept))


def summarize(settings: dict[str, Any], outcomes: list[tuple[Part, Arrays]]) -> dict[str, Any]:
    """Median CPU milliseconds at each number of classes, how they grow, and the ratio at the right end."""
    curves = []
    for part, arrays in outcomes:
        n_classes = np.asarray(arrays["n_classes"], dtype=np.float64)
        cpu_ms = 1000 * np.median(arrays["image_seconds"], axis=1)
        curves.append(
            {
                "method": part.settings["method"],
                "index": part.settings["index"],
                "index_params": part.settings["index_params"],
                "n_classes": [int(n) for n in n_classes],
                "cpu_ms": np.round(cpu_ms, 3).tolist(),
                **growth(n_classes, cpu_ms),
            }
        )
    last = {(curve["method"], curve["index"]): curve["cpu_ms"][-1] for curve in curves}
    slow = last.get(("nbnn", "flann"))
    ratios = {f"{m} {i}": round(slow / ms, 1) for (m, i), ms in last.items() if slow and m != "nbnn"}
    return {"curves": curves, "nbnn_to_local_at_the_right_end": ratios}


def growth(n_classes: NDArray[np.float64], cpu_ms: NDArray[np.float64]) -> dict[str, float]:
    """How a time grows: the exponent of a power law, and the errors of a line in log n and of a line in n.

    Returns
    -------
    dict
        ``exponent`` p of time ~ n^p; ``log_error`` and ``linear_error``, root mean square errors of the two lines as
        shares of the mean time.
    """
    exponent = np.polyfit(np.log(n_classes), np.log(cpu_ms), 1)[0]
    found = {"exponent": round(float(exponent), 3)}
    for name, x in (("log_error", np.log(n_classes)), ("linear_error", n_classes)):
        line = np.polyval(np.polyfit(x, cpu_ms, 1), x)
        found[name] = round(float(np.sqrt(np.mean((line - cpu_ms) ** 2)) / cpu_ms.mean()), 3)
    return found


def tabulate(results: dict[str, Any]) -> str:
    """One row a method and index."""
    curves = results["curves"]
    header = [
        "method",
        "index",
        *(f"{n} classes" for n in curves[0]["n_classes"]),
        "grows as n^p, p",
        "times NBNN's speed",
    ]
    rows = []
    for curve in curves:
        ratio = results["nbnn_to_local_at_the_right_end"].get(f"{curve['method']} {curve['index']}", "")
        times = [f"{ms:.1f} ms" for ms in curve["cpu_ms"]]
        rows.append([f"`{curve['method']}`", f"`{curve['index']}`", *times, f"{curve['exponent']:.2f}", str(ratio)])
    return markdown_table(header, rows)


EXPERIMENT = Experiment(
    name="figure-scaling",
    title="CPU time an image against the number of classes",
    settings=SETTINGS,
    quick=QUICK,
    paper=PAPER,
    plan=plan,
    summarize=summarize,
    tabulate=tabulate,
    draw="scaling_figure",
)

"""Spatially Local Coding on test images: our grid and the published one, ridge regression and SVMs.

Nothing is chosen by it. Both classifiers see the same vectors, so a row costs one coding of the images.
"""

import statistics
from typing import Any

import numpy as np
from common import benchmark, grouped, parts_over, table, watch
from sklearn.svm import LinearSVC

from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings
from lnbnn.lab.parts import accuracy, full_params, truth_of
from lnbnn.reading.extraction import features_of

PUBLISHED_GRID = {"bin_sizes": [4, 6, 9], "step_px": 4}
ROWS: dict[str, Settings] = {
    "six scales every 8 px": {"max_descriptors": None},
    "six scales every 8 px, 4,096 words": {"max_descriptors": None, "n_words": 4096, "n_samples": 1 << 18},
    "three scales every 4 px, as published": {"max_descriptors": None, "descriptor_params": PUBLISHED_GRID},
}
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seeds": [0], "inverse_penalty": 10.0}
SETTINGS["rows"] = {name: {"params": full_params("slc", params)} for name, params in ROWS.items()}
QUICK: Settings = {"n_train": 4, "n_test": 2, "rows": {"few words": {"params": full_params("slc", {"n_words": 16})}}}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Code all images once; train and ask both classifiers."""
    train, test = lab.split_of(settings)
    classifier = lab.fit("slc", settings["params"], train, keep_features=False)
    method = classifier.method_

    def vector(path: str) -> Any:
        return method.vector_of(features_of(path, classifier.descriptor_))

    with watch() as asked:
        vectors = np.stack(lab.ask(vector, list(test.paths))).astype(np.float64)
    truth = truth_of(classifier, test)
    svms = LinearSVC(C=settings["inverse_penalty"], random_state=0).fit(method.vectors, method.references.places)
    return {
        "ridge": accuracy(vectors @ method.coef.T + method.intercept, truth),
        "svm": accuracy(svms.decision_function(vectors), truth),
        "cpu_ms_per_image": round(1000 * asked.cpu_s / len(test), 1),
    }


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    """By row, the means over the splits."""
    return {
        name: {key: round(statistics.mean(one[key] for one in found), 2) for key in found[0]}
        for name, found in grouped(outcomes, "row").items()
    }


def tabulate(results: Results) -> str:
    rows = [
        [name, f"{row['ridge']:.1f}", f"{row['svm']:.1f}", f"{row['cpu_ms_per_image']:.0f} ms"]
        for name, row in results.items()
    ]
    return table("codes | ridge regression, % | linear SVMs, % | CPU per image", rows)


plan = parts_over("slc", compute, rows="row", seeds="seed")
EXPERIMENT = benchmark(globals())

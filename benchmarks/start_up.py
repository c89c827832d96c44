"""Opening a model, the first answer of a new process, memory, adding one image; and where the time of an answer goes.

A model of some classes of Caltech 101 at the default settings is made and saved.
"""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from common import benchmark, cpu_seconds, parts_over, python, table, watch
from large import apart
from large import opening as open_model

from lnbnn.files.images import read_gray
from lnbnn.indexes.faiss_kmeans import one_thread
from lnbnn.indexes.selection import rerank
from lnbnn.lab import Lab, Outcome, Results, Settings
from lnbnn.scoring import local_nbnn_updates

SETTINGS: Settings = {"n_classes": 30, "n_train": 15, "n_test": 1, "seed": 0, "preset": "balanced"}
SETTINGS |= {"repeats": 5, "n_added": 6}
QUICK: Settings = {"n_classes": 3, "n_train": 8, "repeats": 1, "n_added": 2}


def compute(lab: Lab, settings: Settings) -> Outcome:
    train, test = lab.split_of(settings, sorted(set(lab.data.labels))[: settings["n_classes"]])
    repeats, median = range(settings["repeats"]), statistics.median
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        with watch() as fit:
            classifier = lab.fit("local-nbnn", settings["params"], train, keep_features=False)
        classifier.save(model)
        n_descriptors = sum(image.n_descriptors for image in classifier.images_)
        over_raw = classifier.nbytes_ / (128 * n_descriptors)
        adding = [one_more(classifier, path) for path in test.paths[: settings["n_added"]]]
        opening = [apart(open_model, model, settings) for _ in repeats]
        answers = [python("-m", "lnbnn", "predict", model, test.paths[0], "--format", "json") for _ in repeats]
        bytes_on_disk = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    return {
        "stages": stages(classifier, test.paths),
        "n_descriptors": n_descriptors,
        "bytes_on_disk": bytes_on_disk,
        "index_bytes_over_raw": round(over_raw, 3),
        "fit_s": round(fit.wall_s, 1),
        "fit_cpu_s": round(fit.cpu_s, 1),
        "open_s_median": round(median(one["wall_s"] for one in opening), 3),
        "open_cpu_s_median": round(median(one["cpu_s"] for one in opening), 3),
        "first_answer_s_median": round(median(answer.wall_s for answer in answers), 2),
        "first_answer_cpu_s_median": round(median(answer.cpu_s for answer in answers), 2),
        "add_one_image_cpu_ms_median": round(median(adding[1:]), 1),
        "add_first_image_cpu_ms": round(adding[0], 1),
    }


def stages(classifier: Any, paths: tuple[str, ...]) -> dict[str, float]:
    """CPU time of each stage of an answer: medians over the images, an image's best of a few repeats."""
    index = classifier.index_
    structure, rows, wide = index._structure, (index._table.stored, index._table.added), index._parameters(None)
    in_tree, n_probes = wide.quantizer_params, wide.nprobe
    tree = faiss.downcast_index(structure.quantizer)
    found = []
    for path in paths:
        gray = read_gray(path, 300)
        features = classifier.query_features(path)
        asked = classifier.query_vectors(features)
        vectors = np.ascontiguousarray(asked[:: max(1, len(asked) // 250)][:250])
        widened, n = index._widen(vectors), len(vectors)
        distances, labels = classifier.matching_.neighbors(vectors)
        with one_thread():
            candidates = structure.search(widened, 44, params=wide)[1]
            row = {
                "read_and_decode_ms": best(lambda: read_gray(path, 300)) / 1000,  # noqa: B023
                "extract_ms": best(classifier.descriptor_.extract, gray) / 1000,
                "nearest_lists_us": best(tree.search, widened, n_probes, params=in_tree) / n,
                "lists_and_codes_us": best(structure.search, widened, 44, params=wide) / n,
            }
        row["compare_again_us"] = best(rerank, vectors, *rows, candidates, 11) / n
        row["score_us"] = best(lambda: local_nbnn_updates(distances, labels, 10).totals(len(classifier.classes_))) / n  # noqa: B023
        row["whole_search_us"] = best(index.search, vectors, 11) / n
        row["answer_ms"] = best(classifier.decision_function, [features]) / 1000
        found.append(row)
    return {name: round(statistics.median(row[name] for row in found), 2) for name in found[0]}


def best(work: Callable[..., object], *args: Any, **kwargs: Any) -> float:
    """CPU microseconds of the best of a few repeats."""
    return 1e6 * min(cpu_seconds(3, work, *args, **kwargs))


def one_more(classifier: Any, path: str) -> float:
    """CPU milliseconds of taking the descriptors of one more image into the index, extraction left out."""
    vectors = classifier.matching_.vectors(classifier.image_features(path))
    ids = ((len(classifier.images_) + 1000) << 20) + np.arange(len(vectors))
    with watch() as adding:
        classifier.index_.add(vectors, ids)
    classifier.index_.remove(ids)
    return 1000 * adding.cpu_s


def tabulate(results: Results) -> str:
    stages = results["stages"]
    rows = {
        "reading and decoding a file": f"{stages['read_and_decode_ms']:.1f} ms",
        "extracting descriptors, default grid": f"{stages['extract_ms']:.1f} ms",
        "searching, per query descriptor": f"{stages['whole_search_us']:.1f} us",
        "... finding the nearest lists": f"{stages['nearest_lists_us']:.1f} us",
        "... scanning the codes": f"{stages['lists_and_codes_us'] - stages['nearest_lists_us']:.1f} us",
        "... re-ranking": f"{stages['compare_again_us']:.1f} us",
        "scoring, per query descriptor": f"{stages['score_us']:.1f} us",
        "all query descriptors of an image, stopping when sure": f"{stages['answer_ms']:.1f} ms",
    }
    return table("stage | CPU", [[stage, spent] for stage, spent in rows.items()]) + (
        f"\n{results['n_descriptors'] / 1e6:.1f} million descriptors. Index and labels take "
        f"{results['index_bytes_over_raw']:.2f} times the raw 8-bit descriptors. Opening the model takes "
        f"{results['open_s_median']:.2f} s, the first answer of a new process "
        f"{results['first_answer_s_median']:.1f} s ({results['first_answer_cpu_s_median']:.1f} s CPU), "
        f"adding the descriptors of one image to the index {results['add_one_image_cpu_ms_median']:.0f} ms CPU.\n"
    )


EXPERIMENT = benchmark(globals(), plan=parts_over("start-up", compute, timed=True), source="")

"""Answers of every method, descriptor and index on a small set, to be compared before and after a change of structure.

    python tests/golden.py record FILE.npz [MODELS.tar.gz]     # what this version answers, and its models
    python tests/golden.py compare FILE.npz [MODELS.tar.gz]    # bit by bit; ends with 1 where anything differs

``tests/test_golden.py`` compares with the record that an earlier version made, within rounding, and opens its models.
"""

from __future__ import annotations

import inspect
import os
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from synthetic import make_features

from lnbnn import load

METHODS = {
    "local-nbnn": ("LocalNBNN", {}),
    "local-nbnn, knobs": ("LocalNBNN", {"n_neighbors": 4, "location_weight": 0.8, "scale_weight": 0.1}),
    "nbnn": ("NBNN", {}),
    "nbnn-log-odds": ("LogOddsNBNN", {}),
    "nbnn-affine": ("AffineNBNN", {}),
    "nbnn-kernel": ("NBNNKernel", {"classifier": "svm"}),
    "local-nbnn-kernel": ("LocalNBNNKernel", {"response": "unit", "levels": 2}),
    "pooled-svm": ("PooledSVM", {}),
    "spm-hard": ("HardSpatialPyramid", {"n_words": 12}),
    "spm-soft": ("SoftSpatialPyramid", {"n_words": 12}),
}
INDEXES = {
    "exact": ("exact", {}),
    "flat": ("faiss", {}),
    "ivf-8bit": ("faiss", {"form": "ivf-8bit", "n_lists": 8}),
    "ivf-4bit": ("faiss", {"form": "ivf-4bit", "n_lists": 8}),
    "flann": ("flann", {}),
}
DESCRIPTORS = ("dense-sift", "root-sift", "keypoint-sift", "deep")
SINCE = {"deep": "deep-small"}  # what descriptors of the record are called now
SMALL = {"bin_sizes": [4, 6], "step_px": 8, "longest_side": 96}


def picture(kind, seed):
    """Stripes, checks, discs or waves in color, noisy and moved by the seed."""
    rng = np.random.default_rng([kind, seed])
    x, y = np.meshgrid(np.arange(128) + rng.integers(16), np.arange(96) + rng.integers(16))
    pattern = [
        y // 7 % 2,
        (x // 9 + y // 9) % 2,
        (x % 24 - 12) ** 2 + (y % 24 - 12) ** 2 < 60,
        np.sin(x / 5 + y / 11) > 0,
    ]
    gray = 50 + 140 * pattern[kind] + rng.normal(0, 12, pattern[0].shape)
    color = np.stack([gray, gray[:, ::-1], 255 - gray], axis=-1)
    return np.clip(color, 0, 255).astype(np.uint8)


def images(folder, per_class, first_seed):
    paths, labels = [], []
    for kind in range(4):
        for number in range(per_class):
            path = folder / f"{kind}-{first_seed + number}.png"
            Image.fromarray(picture(kind, first_seed + number)).save(path)
            paths.append(str(path))
            labels.append("abcd"[kind])
    return paths, labels


def kind_of(name):
    from lnbnn.classifiers import affine_nbnn, fusion, kernels, local_nbnn, nbnn, trained

    return next(
        getattr(room, name) for room in (local_nbnn, nbnn, affine_nbnn, kernels, trained, fusion) if hasattr(room, name)
    )


def make(method, descriptor="dense-sift", index="exact"):
    name, changes = METHODS[method]
    kind = kind_of(name)
    given = {
        "descriptor": SINCE.get(descriptor, descriptor),
        "descriptor_params": SMALL if descriptor in ("dense-sift", "root-sift") else None,
        "index": INDEXES[index][0],
        "index_params": INDEXES[index][1],
        "n_jobs": 1,
        **changes,
    }
    names = inspect.signature(kind).parameters
    return kind(**{key: value for key, value in given.items() if key in names})


def answers_of(model, queries, train):
    """Whatever the model says of images, as arrays."""
    found = {"scores": model.decision_function(queries), "labels": model.predict(queries)}
    if hasattr(model, "totals"):
        found["totals"] = model.totals(queries)
        found["reference_totals"] = model.reference_totals()
    try:
        model.calibrate(unknown=True)
        found["false_accept_rates"] = rates_before(model.fitted(), found["scores"])
    except ValueError:
        try:
            model.calibrate()
        except ValueError:
            return found
    fitted = model.fitted()  # of an answer, the version before had what the temperature says
    fitted.calibration = None if fitted.calibration is None else replace(fitted.calibration, confidence=None)
    found["probabilities"] = model.predict_proba(queries)
    return found


def rates_before(model, scores):
    """The rates by what the version before went by: how far an answer stands out, of all images together."""
    from lnbnn.model.unknown import best_class_z, false_accept_rates

    return false_accept_rates(best_class_z(scores), np.sort(best_class_z(model.unknown_scores())))


def changed(model, extra):
    """Images added, removed and relabeled, in memory."""
    model.partial_fit(extra[0], extra[1])
    model.remove([1, 6])
    model.relabel([2], "d")
    return model


EXACT_CASES = [(method, "dense-sift", "exact") for method in METHODS]
CASES = [
    *EXACT_CASES,
    *[(method, "dense-sift", index) for method in ("local-nbnn", "nbnn") for index in INDEXES],
    *[(method, descriptor, "flat") for method in ("local-nbnn", "pooled-svm") for descriptor in DESCRIPTORS],
]


def all_answers(folder, cases=CASES):
    """The answers of each case and of a fusion, by the names they have in a record."""
    train, queries, extra = images(folder, 4, 0), images(folder, 2, 50), images(folder, 1, 90)
    result = {}
    for case in cases:
        model = make(*case).fit(*train)
        for name, value in answers_of(model, queries[0], train).items():
            result[" | ".join((*case, name))] = value
        if case[0] in ("local-nbnn", "nbnn", "nbnn-log-odds"):
            result[" | ".join((*case, "changed"))] = changed(model, extra).decision_function(queries[0])
    fusion = kind_of("LateFusion")([("a", make("local-nbnn")), ("b", make("pooled-svm"))], n_jobs=1).fit(*train)
    for name, value in answers_of(fusion, queries[0], train).items():
        result[f"fusion | {name}"] = value
    return result


# ---- models ---------------------------------------------------------------------------------------------------------


def tiny(seed, n=14):
    rng = np.random.default_rng(seed)
    return make_features(rng.integers(0, 100, (n, 8), dtype=np.uint8) + np.uint8(20 * (seed % 3)), seed=seed)


QUERIES = [tiny(seed) for seed in range(70, 76)]


def write_models(folder):
    """A small model of each method, some changed after the fit, and their answers."""
    train, labels = [tiny(seed) for seed in range(12)], ["abc"[seed % 3] for seed in range(12)]
    for method in METHODS:
        model = make(method).fit(train, labels)
        if method == "local-nbnn":
            model.calibrate(unknown=True)
        model.save(folder / method)
    fusion = kind_of("LateFusion")([("a", make("local-nbnn")), ("b", make("pooled-svm"))], n_jobs=1)
    fusion.fit(train, labels).save(folder / "fusion")
    from lnbnn import edit

    make("local-nbnn", index="ivf-8bit").fit(train, labels).save(folder / "changed")
    with edit(folder / "changed") as editor:
        editor.add([tiny(40), tiny(41)], ["c", "z"])
        editor.remove([3])
        editor.relabel([4], "z")


def unpack_models(archive, folder):
    """The models of an archive, in ``folder/models``."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


def model_answers(folder):
    result = {}
    for path in sorted(folder.iterdir()):
        model = load(path)
        result[f"model {path.name} | scores"] = model.decision_function(QUERIES)
        result[f"model {path.name} | labels"] = model.predict(QUERIES)
        if path.name == "local-nbnn":
            result["model local-nbnn | probabilities"] = model.predict_proba(QUERIES)
            result["model local-nbnn | reject"] = model.predict(QUERIES, reject=0.3).astype(str)
    return result


def main():
    action, record, *archive = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "models").mkdir()
        result = all_answers(folder)
        if archive and action == "record":
            write_models(folder / "models")
            with tarfile.open(archive[0], "w:gz") as tar:
                tar.add(folder / "models", "models")
        elif archive:
            unpack_models(archive[0], folder)
        if archive:
            result |= model_answers(folder / "models")
    if action == "record":
        np.savez_compressed(record, **result)
        print(f"{record}: {len(result)} arrays, {os.path.getsize(record)} bytes")
        return
    with np.load(record) as before:
        names = sorted(before.files)
        different = [
            name
            for name in names
            if name not in result
            or before[name].dtype != result[name].dtype
            or before[name].tobytes() != np.asarray(result[name]).tobytes()
        ]
    for name in different:
        print("differs:", name)
    print(f"{len(names) - len(different)} of {len(names)} arrays are the same to the bit")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()

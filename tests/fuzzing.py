"""Damaged and hostile files: a clear error each time, never a crash, a hang, a huge allocation or a wrong answer.

    python tests/fuzzing.py FOLDER --model 2000 --forged 2000 --images 2000 --seed 0

prints what it did as JSON, and fails on the first that is not refused as it should be. ``--model`` changes bytes of a
model's files; ``--forged`` does the same and makes every checksum right again, as someone who means harm would;
``--images`` changes bytes of pictures. Each is tried in a child process with little memory to spare and little time.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import faiss
import numpy as np
from forged import forge_checksums
from PIL import Image
from synthetic import grating, make_features

from lnbnn import NBNN, LocalNBNN, load
from lnbnn.errors import ImageReadError, LnbnnError
from lnbnn.files.images import decode, resize
from lnbnn.model.changes import edit, list_images

SPARE_BYTES = 1 << 30
LONGEST_S = 20
A_CHILD = 25


def features(seed, n=40):
    rng = np.random.default_rng(seed)
    return make_features(rng.integers(0, 128, (n, 16), dtype=np.uint8), seed=seed)


QUERIES = [features(seed, 10) for seed in (9000, 9001)]


def make_models(folder):
    """Small models that have, together, every kind of file."""
    kinds = {
        "lists": LocalNBNN(n_neighbors=5, index_params={"form": "ivf-8bit", "n_lists": 4}, n_jobs=1),
        "codes": LocalNBNN(n_neighbors=5, index_params={"form": "ivf-4bit", "n_lists": 4}, n_jobs=1),
        "exact": LocalNBNN(n_neighbors=5, index="exact", n_jobs=1),
        "classes": NBNN(index="exact", n_jobs=1),
    }
    for name, model in kinds.items():
        model.fit([features(seed) for seed in range(8)], list("aabbccdd")).remove(1).calibrate().save(folder / name)
        with edit(folder / name) as editor:
            editor.add([features(50), features(51)], ["a", "z"])
            editor.remove(5)
    return [folder / name for name in kinds]


def mutate(data, rng):
    """The bytes with one thing changed: bits, a run of bytes, a number, cut short, made longer, or a part moved."""
    data = bytearray(data)
    kind = rng.integers(7)
    place = int(rng.integers(len(data))) if len(data) else 0
    if rng.random() < 0.5:
        place = min(place, int(rng.integers(1, 300)))  # headers are where the harm is
    if kind == 0:
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        number = (0, 1, 255, 1 << 31, (1 << 63) - 1, (1 << 64) - 1)[rng.integers(6)]
        data[place : place + 8] = number.to_bytes(8, "little")
    elif kind == 2:
        number = (0, 1, 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1)[rng.integers(6)]
        data[place : place + 4] = number.to_bytes(4, "little")
    elif kind == 3:
        del data[place:]
    elif kind == 4:
        data[place:place] = rng.bytes(int(rng.integers(1, 64)))
    elif kind == 5:
        data[place : place + 16] = rng.bytes(16)
    else:
        size = int(rng.integers(1, 200))
        other = int(rng.integers(len(data)))
        data[place : place + size] = data[other : other + size]
    return bytes(data)


def in_a_child(work, cases):
    """What ``work`` says of each case, run in children with limits; a child that dies fails all."""
    found = Counter()
    cases = list(cases)
    for start in range(0, len(cases), A_CHILD):
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(out)
            code = 1
            try:
                _limit_memory()
                with os.fdopen(into, "w", buffering=1) as file:
                    for case in cases[start : start + A_CHILD]:
                        signal.alarm(LONGEST_S)
                        file.write(f"{case}\t{work(case)}\n")
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(into)
        with os.fdopen(out) as file:
            lines = [line.rstrip("\n").split("\t") for line in file]
        status = os.waitpid(child, 0)[1]
        if status != 0:
            raise AssertionError(f"case {cases[start + len(lines)]} ended its process: status {status}")
        found.update(outcome for _, outcome in lines)
    return dict(found)


def _limit_memory():
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, used + SPARE_BYTES))


def fuzz_models(folder, *, n, seed, forged):
    """Open and ask models of which one file is changed."""
    models = make_models(folder)
    files = [(model, file) for model in models for file in sorted(model.rglob("*")) if file.is_file()]
    passed_over = {"writer.lock", *(["manifest.json"] if forged else [])}
    files = [(model, file) for model, file in files if file.name not in passed_over]
    expected = {model: load(model).totals(QUERIES) for model in models}
    tags = {model: [(i.id, i.label, i.name) for i in list_images(model)] for model in models}

    def work(case):
        rng = np.random.default_rng([seed, case, int(forged)])
        model, file = files[int(rng.integers(len(files)))]
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(model, copy)
        target = copy / file.relative_to(model)
        before = target.read_bytes()
        after = mutate(before, rng)
        if after == before:
            return "unchanged"
        target.write_bytes(after)
        if forged:
            forge_checksums(copy)
        try:
            opened = load(copy)
            totals = opened.totals(QUERIES)
        except LnbnnError as error:
            assert len(str(error).splitlines()) == 1, error
            return "refused"
        if forged:
            assert totals.shape[0] == len(QUERIES)
            return "opened"
        assert np.array_equal(totals, expected[model]), f"{target}: taken for right"
        assert [(i.id, i.label, i.name) for i in opened.stored_images()] == tags[model], f"{target}: taken for right"
        return "means the same"

    return in_a_child(work, range(n))


def picture_files():
    """One small picture in each of the formats people have."""
    gray = Image.fromarray(grating(30, seed=1, side=64))
    files = []
    for kind, options in (
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("WEBP", {}),
        ("PPM", {}),
        ("TGA", {}),
        ("ICO", {}),
        ("JPEG2000", {}),
        ("AVIF", {}),
    ):
        buffer = io.BytesIO()
        try:
            gray.convert("RGB").save(buffer, kind, **options)
        except (OSError, KeyError):  # a Pillow built without it
            continue
        files.append(buffer.getvalue())
    return files


def fuzz_images(*, n, seed):
    """Decode pictures of which some bytes are changed."""
    files = picture_files()

    def work(case):
        rng = np.random.default_rng([seed, case, 2])
        data = files[int(rng.integers(len(files)))]
        for _ in range(int(rng.integers(1, 4))):
            data = mutate(data, rng)
        try:
            gray = resize(decode(data, 48), 48)
        except ImageReadError as error:
            assert len(str(error).splitlines()) == 1, error
            return "refused"
        assert gray.dtype == np.uint8
        assert max(gray.shape) == 48
        return "decoded"

    return in_a_child(work, range(n))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=int, default=0)
    parser.add_argument("--forged", type=int, default=0)
    parser.add_argument("--images", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)  # its threads do not survive a fork
    warnings.simplefilter("ignore")  # Pillow says a lot of such files
    result = {}
    if options.model:
        result["model"] = fuzz_models(options.folder / "m", n=options.model, seed=options.seed, forged=False)
    if options.forged:
        result["forged"] = fuzz_models(options.folder / "f", n=options.forged, seed=options.seed, forged=True)
    if options.images:
        result["images"] = fuzz_images(n=options.images, seed=options.seed)
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())

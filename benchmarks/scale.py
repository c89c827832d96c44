"""The arithmetic of docs/scale.md: what ImageNet would take, from the records and from stated assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from common import table
from prose import NOT_YET

from lnbnn.model.folder import MAX_MANIFEST_BYTES

Read = Callable[[str], Any]

SETS = {"ImageNet 1k": 1_281_167, "ImageNet 21k": 14_197_122}
DESCRIPTORS = {"cells of a network": 62, "dense SIFT": 1000}  # per image
N_QUERIES = {"cells of a network": 62, "dense SIFT": 250}  # searched for per question; SIFT stops once the lead is sure
IMAGE_BYTES = 139  # of an image in the list of a model
DIMS = 131  # 128 dimensions, size and place: a byte each
ID_BYTES = 8
LIST_BYTES = 17 + 8  # 4-bit codes of 136 dimensions, the number of the row
EMBEDDED_BYTES = DIMS + ID_BYTES + LIST_BYTES
KEY_BYTES = 2 * 8  # in Milvus: the id, and that of the image
MILVUS_CELL_ROWS, MILVUS_CELLS = 1 << 18, 1000  # past these many cells they grow, and the time of a search with them
CORES, MEMORY_GIB, DISK_GIB, USD_PER_HOUR = 32, 256, 4000, 2.0  # of one machine
USABLE = 0.75  # of its memory

# Bytes per vector of Milvus's own indexes: in the memory of its server, and of their files, by Milvus's own defaults.
# Of HNSW, a node has 2 M links of 4 bytes, M = 16, and a few in the layers above. Of DISKANN, codes of an eighth and a
# cache of a tenth of the vectors are in memory, the vectors and 56 links of 4 bytes on the disk.
FLOATS = 4 * DIMS
MILVUS = {
    "IVF_FLAT": (FLOATS, FLOATS),
    "IVF_SQ8": (DIMS, DIMS),
    "HNSW": (FLOATS + 2 * 16 * 4 + 8, FLOATS + 2 * 16 * 4 + 8),
    "DISKANN": (round(FLOATS * (0.125 + 0.1)), FLOATS + 56 * 4),
    "IVF_FLAT, mmap": (0, FLOATS),
}
MILVUS_BYTES = MILVUS["IVF_FLAT"][0] + KEY_BYTES  # what the times were measured with


@dataclass(frozen=True)
class Measured:
    """What the records say, per core and descriptor; None where there is no record yet."""

    extracted_per_s: dict[str, float] | None
    build_us_at: Callable[[float], float] | None
    us_at: Callable[[float], float] | None
    shard_cost: float | None
    milvus_build_s: float | None
    milvus_us_at: Callable[[float], float] | None
    found: str


def measured(read: Read) -> Measured:
    """The figures that the arithmetic starts from."""
    large, work, milvus = (
        record and record.results for record in map(read, ("growth-large", "ray-work", "engine-growth"))
    )
    searches = work["searches"] if work else None
    return Measured(
        dict(zip(DESCRIPTORS, (work["network"]["per_s"], work["extraction"]["Ray, 1 worker"]["per_s"]), strict=True))
        if work
        else None,
        _build_growth(large["points"]) if large else None,
        _search_growth(large) if large else None,
        max(1.0, searches["embedded"]["per_s"] / searches["FAISS in 1 shard on Ray"]["per_s"]) if work else None,
        milvus["points"][-1]["build_s"] / milvus["points"][-1]["n_descriptors"] if milvus else None,
        _milvus_growth(milvus) if milvus else None,
        _recall(large, milvus) if large and milvus else "",
    )


def _search_growth(large: Any) -> Callable[[float], float]:
    """Microseconds of a core per search: the last that was measured, and so many more for each doubling."""
    last = large["points"][-1]
    return lambda n: float(last["us_per_query"] + large["us_for_each_doubling"] * math.log2(n / last["n_descriptors"]))


def _build_growth(points: Any) -> Callable[[float], float]:
    """Microseconds of a core per vector built: a power of the number of vectors, through the first and last point."""
    (few, least), (many, most) = (
        (point["n_descriptors"], 1e6 * point["build_cpu_s"] / point["n_descriptors"])
        for point in (points[0], points[-1])
    )
    power = math.log(most / least) / math.log(many / few) if many > few else 0.0
    return lambda n: float(most * (n / many) ** max(0.0, power))


def _milvus_growth(milvus: Any) -> Callable[[float], float]:
    """Microseconds of a small server per search: the power that was measured; linear once there are no more cells."""
    last, power = milvus["points"][-1], milvus["us_a_descriptor"]["power"]
    most = MILVUS_CELL_ROWS * MILVUS_CELLS
    return lambda n: float(
        last["us_a_descriptor"] * (min(n, most) / last["n_descriptors"]) ** power * max(1.0, n / most)
    )


def _recall(large: Any, milvus: Any) -> str:
    first, last, other = large["points"][0], large["points"][-1], milvus["points"][-1]
    return (
        f"Fewer of the nearest neighbors are found as the index grows: embedded {100 * first['recall_at_10']:.0f} % of "
        f"the ten nearest among {_count(first['n_descriptors'])}, {100 * last['recall_at_10']:.0f} % among "
        f"{_count(last['n_descriptors'])} (`growth-large`); Milvus {100 * other['recall']:.0f} % among "
        f"{_count(other['n_descriptors'])} (`engine-growth`). What is lost at the sizes above, and what that does to "
        "the accuracy, is not known; more lists and cells visited find more, for more time.\n"
    )


def render(read: Read) -> str:
    """The tables, and the assumptions below them."""
    found = measured(read)
    ways = (("embedded", "embedded"), ("shards", "Ray shards"), ("milvus", "Milvus, IVF_FLAT"))
    rows = [_row(found, way, images, name, kind) for images in SETS for kind in DESCRIPTORS for way, name in ways]
    columns = ["set, descriptors", "vectors", "models", "way", "index", "machines", "h to extract", "h to build"]
    columns += ["questions per s", "USD to build", "USD per million questions"]
    lacking = [place for place in range(len(columns)) if all(row[place] in (NOT_YET, "-") for row in rows)]
    shown = [place for place in range(len(columns)) if place not in lacking]
    text = table(" | ".join(columns[place] for place in shown), [[row[place] for place in shown] for row in rows])
    if lacking:
        text += f"\nNot on record yet: {', '.join(columns[place] for place in lacking)}.\n"
    return (
        text
        + _assumptions()
        + ("\n" + found.found if found.found else "")
        + "\n"
        + _milvus_options(read("milvus-options") is not None)
    )


def n_models(images: str) -> int:
    """How many models list so many images."""
    return math.ceil(SETS[images] * IMAGE_BYTES / MAX_MANIFEST_BYTES)


def _row(found: Measured, way: str, images: str, name: str, kind: str) -> list[str]:
    n, models, room = SETS[images] * DESCRIPTORS[kind], n_models(images), MEMORY_GIB * 2**30 * USABLE
    n_bytes = n * (MILVUS_BYTES if way == "milvus" else EMBEDDED_BYTES)
    words = [f"{images}, {kind}", _count(n), str(models), name, _bytes(n_bytes)]
    if way != "milvus" and n / models * (DIMS + ID_BYTES) > room:  # Milvus is filled in parts
        return [*words, "not possible in this version", *["-"] * 5]
    if way == "embedded" and (n_bytes > DISK_GIB * 2**30 or n * LIST_BYTES > room):
        return [*words, "too large for one", *["-"] * 5]
    machines = 1 if way == "embedded" else math.ceil(n_bytes / room)
    speeds = found.extracted_per_s
    extract_h = None if speeds is None else SETS[images] / speeds[kind] / CORES / machines / 3600
    build_h = _build_hours(found, way, n, n / models / machines, machines)
    per_s = _questions_per_s(found, way, n / models / machines, models * N_QUERIES[kind])
    hours = None if extract_h is None or build_h is None else extract_h + build_h
    return [
        *words,
        str(machines),
        _number(extract_h),
        _number(build_h),
        _number(per_s),
        _number(None if hours is None else hours * machines * USD_PER_HOUR),
        _number(None if per_s is None else 1e6 / per_s / 3600 * machines * USD_PER_HOUR),
    ]


def _build_hours(found: Measured, way: str, n: int, n_each: float, machines: int) -> float | None:
    if way == "milvus":
        return None if found.milvus_build_s is None else found.milvus_build_s * n / machines / 3600
    return None if found.build_us_at is None else found.build_us_at(n_each) * n / 1e6 / CORES / machines / 3600


def _questions_per_s(found: Measured, way: str, n_each: float, n_queries: int) -> float | None:
    """Every machine searches its part of every model for every question."""
    if way == "milvus":
        return None if found.milvus_us_at is None else 1e6 / found.milvus_us_at(n_each) / n_queries
    cost = 1.0 if way == "embedded" else found.shard_cost
    if found.us_at is None or cost is None:
        return None
    return CORES * 1e6 / found.us_at(n_each) / cost / n_queries


def _assumptions() -> str:
    per_image = ", ".join(
        f"{n:,} per image ({N_QUERIES[kind]} searched per question), {kind}" for kind, n in DESCRIPTORS.items()
    )
    return (
        f"\nAssumed: {per_image}; {DIMS} bytes per vector, {ID_BYTES} per id, {LIST_BYTES} in the lists "
        f"({MILVUS_BYTES} in all in Milvus); machines of {CORES} cores, {MEMORY_GIB} GiB of memory of which "
        f"{100 * USABLE:.0f} % hold the index, {DISK_GIB:,} GiB of disk, {USD_PER_HOUR:.2f} USD per hour. The embedded "
        "index needs its lists in memory and its vectors on the disk; shards and Milvus hold all in memory. The "
        "machine that fits holds the vectors of a model and their ids in its memory, too; where it cannot, the row "
        f"says so (Milvus is filled in parts). A model lists its images in {MAX_MANIFEST_BYTES >> 20} MiB at "
        f"{IMAGE_BYTES} bytes each, {_count(MAX_MANIFEST_BYTES / IMAGE_BYTES, 1)} images; a larger set takes several "
        "models, every one of which is asked, and whose answers this version does not merge. "
        "Work is assumed to divide evenly by cores.\n"
        "\nMeasured: images extracted per second and core, and the cost of a search through Ray, at least that of one "
        "without (`ray-work`); CPU time per vector built, which grows as a power, and per search, which grows by so "
        "much for each doubling (`growth-large`), both of dense SIFT; Milvus (`engine-growth`): its times of a whole "
        f"server of two cores, without those of a larger one. Its searches grow by the power that was measured up to "
        f"{_count(MILVUS_CELL_ROWS * MILVUS_CELLS)} vectors per server, and linearly from there.\n"
    )


def _milvus_options(is_measured: bool) -> str:
    room = MEMORY_GIB * 2**30 * USABLE
    names = [f"{images}, {kind}" for images in SETS for kind in DESCRIPTORS]
    rows = []
    for name, (in_memory, on_disk) in MILVUS.items():
        totals = [SETS[images] * n * (in_memory + KEY_BYTES) for images in SETS for n in DESCRIPTORS.values()]
        machines = [f"{_bytes(total)}, {math.ceil(total / room)}" for total in totals]
        rows.append(
            [
                f"`{name.replace(', ', '`, `')}`",
                f"{in_memory + KEY_BYTES:,}",
                f"{FLOATS + KEY_BYTES + on_disk:,}",
                *machines,
            ]
        )
    header = " | ".join(["Milvus option", "bytes per vector in memory", "on disk", *names])
    text = table(header, rows) + (
        "\nMemory of all servers, and how many they are, by arithmetic from Milvus's defaults; on the disk, the "
        "vectors as they came and the index. `DISKANN` was not tried: the server of the tests refuses it. With `mmap`, "
        "the vectors that are asked for should fit into the memory, or the disk decides the speed; that server took "
        "the setting and held as much as without."
    )
    if is_measured:
        text += " What the others cost in time and recall on one small server: [kinds](milvus.md#kinds-of-index)."
    return text + "\n"


def _count(n: float, digits: int = 0) -> str:
    return f"{n / 1e9:.2f} G" if n >= 1e9 else f"{n / 1e6:.{digits}f} M"


def _bytes(n: float) -> str:
    return f"{n / 2**40:.1f} TiB" if n >= 2**40 else f"{n / 2**30:.0f} GiB"


def _number(value: float | None) -> str:
    if value is None:
        return NOT_YET
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"

"""The arithmetic of docs/scale.md: what ImageNet would take, from the records and from stated assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from common import table
from prose import NOT_YET

Read = Callable[[str], Any]

SETS = {"ImageNet 1k": 1_281_167, "ImageNet 21k": 14_197_122}
DESCRIPTORS = {"cells of a network": 62, "dense SIFT": 1000}  # per image
N_QUERIES = {"cells of a network": 62, "dense SIFT": 250}  # searched for per question; SIFT stops once the lead is sure
VECTOR_BYTES = 131  # 128 dimensions, size and place
ID_BYTES = 8
LIST_BYTES = 17 + 8  # 4-bit codes of 136 dimensions, the number of the row
MILVUS_BYTES = VECTOR_BYTES + 2 * 8  # IVF_SQ8: a byte per dimension, the key and the image
CORES, MEMORY_GIB, DISK_GIB, USD_PER_HOUR = 32, 256, 4000, 2.0  # of one machine
USABLE = 0.75  # of its memory


@dataclass(frozen=True)
class Measured:
    """What the records say, per core and descriptor; None where there is no record yet."""

    extracted_per_s: dict[str, float] | None
    build_cpu_s: float | None
    us_at: Callable[[float], float] | None
    shard_cost: float | None
    milvus_build_s: float | None
    milvus_us: float | None


def measured(read: Read) -> Measured:
    """The figures that the arithmetic starts from."""
    large, work, milvus = (
        record and record.results for record in map(read, ("growth-large", "ray-work", "engine-growth"))
    )
    last = large["points"][-1] if large else None

    def us_at(n: float) -> float:
        return float(last["us_per_query"] + large["us_for_each_doubling"] * math.log2(n / last["n_descriptors"]))

    searches = work["searches"] if work else None
    return Measured(
        dict(zip(DESCRIPTORS, (work["network"]["per_s"], work["extraction"]["Ray, 1 worker"]["per_s"]), strict=True))
        if work
        else None,
        last["build_cpu_s"] / last["n_descriptors"] if last else None,
        us_at if large else None,
        searches["embedded"]["per_s"] / searches["FAISS in 1 shard on Ray"]["per_s"] if work else None,
        milvus["points"][-1]["build_s"] / milvus["points"][-1]["n_descriptors"] if milvus else None,
        milvus["points"][-1]["us_a_descriptor"] if milvus else None,
    )


def render(read: Read) -> str:
    """The tables, and the assumptions below them."""
    found = measured(read)
    rows = [
        _row(found, way, images, name, kind)
        for images in SETS
        for kind in DESCRIPTORS
        for way, name in (("embedded", "embedded"), ("shards", "Ray shards"), ("milvus", "Milvus"))
    ]
    columns = ["set, descriptors", "vectors", "way", "bytes", "machines", "h to extract", "h to build"]
    columns += ["questions per s", "USD to build", "USD per million questions"]
    lacking = [place for place in range(len(columns)) if all(row[place] in (NOT_YET, "-") for row in rows)]
    shown = [place for place in range(len(columns)) if place not in lacking]
    text = table(" | ".join(columns[place] for place in shown), [[row[place] for place in shown] for row in rows])
    if lacking:
        text += f"\nNot on record yet: {', '.join(columns[place] for place in lacking)}.\n"
    return text + _assumptions()


def _row(found: Measured, way: str, images: str, name: str, kind: str) -> list[str]:
    n = SETS[images] * DESCRIPTORS[kind]
    n_bytes = n * {"embedded": VECTOR_BYTES + ID_BYTES + LIST_BYTES, "milvus": MILVUS_BYTES}.get(
        way, VECTOR_BYTES + ID_BYTES + LIST_BYTES
    )
    room = MEMORY_GIB * 2**30 * USABLE
    machines = 1 if way == "embedded" else math.ceil(n_bytes / room)
    if way == "embedded" and (n_bytes > DISK_GIB * 2**30 or n * LIST_BYTES > room):
        return [f"{images}, {kind}", _count(n), name, _bytes(n_bytes), "too large for one", *["-"] * 5]
    speeds = found.extracted_per_s
    extract_h = None if speeds is None else SETS[images] / speeds[kind] / CORES / machines / 3600
    build_h = _build_hours(found, way, n, machines)
    per_s = _questions_per_s(found, way, n / machines, N_QUERIES[kind])
    hours = None if extract_h is None or build_h is None else extract_h + build_h
    return [
        f"{images}, {kind}",
        _count(n),
        name,
        _bytes(n_bytes),
        str(machines),
        _number(extract_h),
        _number(build_h),
        _number(per_s),
        _number(None if hours is None else hours * machines * USD_PER_HOUR),
        _number(None if per_s is None else 1e6 / per_s / 3600 * machines * USD_PER_HOUR),
    ]


def _build_hours(found: Measured, way: str, n: int, machines: int) -> float | None:
    if way == "milvus":
        return None if found.milvus_build_s is None else found.milvus_build_s * n / machines / 3600
    return None if found.build_cpu_s is None else found.build_cpu_s * n / CORES / machines / 3600


def _questions_per_s(found: Measured, way: str, n_each: float, n_queries: int) -> float | None:
    """Every machine searches its part for every question."""
    if way == "milvus":
        return None if found.milvus_us is None else 1e6 / found.milvus_us / n_queries
    cost = 1.0 if way == "embedded" else found.shard_cost
    if found.us_at is None or cost is None:
        return None
    return CORES * 1e6 / found.us_at(n_each) / cost / n_queries


def _assumptions() -> str:
    per_image = ", ".join(
        f"{n:,} per image ({N_QUERIES[kind]} searched per question), {kind}" for kind, n in DESCRIPTORS.items()
    )
    return (
        f"\nAssumed: {per_image}; {VECTOR_BYTES} bytes per vector, {ID_BYTES} per id, {LIST_BYTES} in the lists "
        f"({MILVUS_BYTES} in all in Milvus, IVF_SQ8); machines of {CORES} cores, {MEMORY_GIB} GiB of memory of which "
        f"{100 * USABLE:.0f} % hold the index, {DISK_GIB:,} GB of disk, {USD_PER_HOUR:.2f} USD per hour. The embedded "
        "index needs its lists in memory and its vectors on the disk; shards and Milvus hold all in memory. Work is "
        "assumed to divide evenly by cores. Measured: images extracted per second and core, and the cost of a search "
        "through Ray (`ray-work`), CPU time per vector built, and per search with its growth for each doubling "
        "(`growth-large`), both of dense SIFT; Milvus (`engine-growth`): its times of a whole small server, without "
        "the cores of a larger one.\n"
    )


def _count(n: float) -> str:
    return f"{n / 1e9:.2f} G" if n >= 1e9 else f"{n / 1e6:.0f} M"


def _bytes(n: float) -> str:
    return f"{n / 1e12:.1f} TB" if n >= 1e12 else f"{n / 1e9:.0f} GB"


def _number(value: float | None) -> str:
    if value is None:
        return NOT_YET
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"

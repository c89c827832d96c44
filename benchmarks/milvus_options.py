"""What the kinds of index of a Milvus standalone server cost: time to build, memory, time of a search, recall.

Dense SIFT of Caltech 101 on the grid of the paper, a million descriptors. Each kind has a new server. When the index is
built the server is ended and started again, so that its memory is that of a server that answers, not of one that built.
"""

import sys
import time
from typing import Any

import numpy as np
from common import HERE, benchmark, parts_over, show, table, values_of, watch
from engine_growth import descriptors, measure, nearest, recall_of

from lnbnn.errors import LnbnnError
from lnbnn.indexes import make_index
from lnbnn.lab import Lab, Outcome, Outcomes, Results, Settings

OPTIONS: Settings = {
    "IVF_FLAT": {"index_params": {}},
    "IVF_FLAT, mmap": {"index_params": {"mmap": True}},
    "IVF_SQ8": {"index_params": {"index_type": "IVF_SQ8"}},
    "HNSW": {"index_params": {"index_type": "HNSW"}},
    "HNSW, mmap": {"index_params": {"index_type": "HNSW", "mmap": True}},
}
SETTINGS: Settings = {"n_train": 15, "n_test": 15, "seed": 0, "n_neighbors": 10, "n_rows": 1_000_000, "share": 1.0}
SETTINGS |= {"queries_an_image": 250, "n_images_asked": 40, "n_true": 200, "descriptor": "dense-sift"}
SETTINGS |= {"descriptor_params": {"bin_sizes": [4, 6, 9], "step_px": 3}, "options": OPTIONS}
QUICK: Settings = {"n_train": 3, "n_test": 2, "n_rows": 20_000, "n_images_asked": 4, "n_true": 20}
STARTS_WITHIN_S = 120.0


def compute(lab: Lab, settings: Settings) -> Outcome:
    sys.path.insert(0, str(HERE / "tests"))
    from milvus_server import MilvusServer

    rows, asked = descriptors(lab, settings)
    truth = nearest(rows, np.vstack(asked)[: settings["n_true"]], settings["n_neighbors"])
    with MilvusServer() as server:
        empty_mib, _ = server.memory_mib()
        index = make_index("milvus", {"uri": server.uri, **settings["index_params"]})
        index.add(rows, np.arange(len(rows)))
        with watch() as building:
            index.build(lambda done, total: show("building", done, total))
        built_mib, _ = server.memory_mib()
        server.kill()
        open_again(index, server.start().uri)
        us = measure(index, asked, settings["n_neighbors"])
        resident_mib, in_files_mib = server.memory_mib()
        found = {
            "n_descriptors": len(rows),
            "index": index.describe(),
            "build_s": round(building.wall_s),
            "empty_mib": empty_mib,
            "built_mib": built_mib,
            "resident_mib": resident_mib,
            "in_files_mib": in_files_mib,
            "us_a_descriptor": us,
            "recall": recall_of(index, asked, truth),
        }
        del index
        return found


def open_again(index: Any, uri: str) -> None:
    """Use the collection of an index on a server that was started again; it takes a while to load what it had."""
    index._collection.uri, until = uri, time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            index._collection.open().catch_up()
            return
        except LnbnnError:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    return {"options": {part.settings["option"]: values_of(found) for part, found in outcomes}}


def tabulate(results: Results) -> str:
    options = results["options"]
    rows = [
        [
            ", ".join(f"`{word}`" for word in name.split(", ")),
            f"{found['build_s']:,}",
            f"{found['resident_mib']:,}",
            f"{found['in_files_mib']:,}",
            f"{max(0, found['resident_mib'] - found['empty_mib']) * 2**20 / found['n_descriptors']:,.0f}",
            f"{found['us_a_descriptor']:,.0f}",
            f"{100 * found['recall']:.1f}",
        ]
        for name, found in options.items()
    ]
    first = next(iter(options.values()))
    header = "option | build, s | server's memory, MiB | of it pages of files | more than empty, bytes per descriptor"
    header += " | us per query | recall, %"
    return table(header, rows) + (
        f"\n{first['n_descriptors']:,} descriptors on one standalone server (2.3.5), which was started again after the "
        f"build; an empty one holds {first['empty_mib']:,} MiB. Memory is what is resident; the system can drop pages "
        "of files. Recall: of the true neighbors of each query, k + 1 of them. `DISKANN` is refused by this server, "
        "and was not tried elsewhere.\n"
    )


EXPERIMENT = benchmark(globals(), plan=parts_over("milvus options", compute, timed=True, options="option"), source="")

"""Faults of a model on a real Milvus server at random moments: the model must be as before or as after.

    python tests/milvus_faults.py FOLDER --faults 9 --seed 0

kills the writer, kills the server, or cuts the connection between them, in turn, while changes are made; prints what it
did as JSON, and fails on the first model that is not whole. At the end nothing may be left over on the server.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from killing import change, features, next_state, state_after
from milvus_server import MilvusServer, Wire

from lnbnn import LocalNBNN
from lnbnn.errors import LnbnnError
from lnbnn.indexes.milvus_collection import Collection
from lnbnn.indexes.milvus_state import states_in
from lnbnn.model.changes import compact

FAULTS = ("writer killed", "server killed", "connection cut")
ENDS_WITHIN_S = 90.0


def fit(folder, uri, held):
    """A model of what is held, whose every change goes to the server at once."""
    ordered = sorted(held)
    params = {"uri": uri, "index_type": "FLAT", "max_pending": 0}
    model = LocalNBNN(n_neighbors=5, index="milvus", index_params=params, n_jobs=1)
    model.fit([features(held[i][0]) for i in ordered], [held[i][1] for i in ordered]).save(folder)


def write(folder, state, number, seed):
    """Make changes until something fails: the number of each that is done goes to stdout, the error to stderr."""
    logging.disable(logging.WARNING)
    while True:
        step, state = next_state(state, number, seed)
        try:
            change(folder, step)
        except LnbnnError as error:
            print(error, file=sys.stderr)
            sys.exit(3)
        number += 1
        print(number, flush=True)


def start_writer(folder, state, number, seed):
    held = json.dumps([[i, *entry] for i, entry in state[0].items()])
    words = [sys.executable, "-W", "ignore", __file__, str(folder), "--write", held, str(state[1]), str(number)]
    return subprocess.Popen([*words, "--seed", str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def one_fault(kind, folder, state, number, seed, rng, server, wire):
    """Start a writer, let the fault happen at a random moment of its changes, mend, look at the model."""
    writer = start_writer(folder, state, number, seed)
    first = writer.stdout.readline()  # from here on it is in the middle of the second change
    time.sleep(rng.uniform(0.0, 5.0))
    if kind == "writer killed":
        writer.kill()
    elif kind == "server killed":
        server.kill()
    else:
        wire.cut()
    try:
        rest, told = writer.communicate(timeout=8.0)
    except subprocess.TimeoutExpired:  # what waits in files is written without a server
        writer.kill()
        rest, told = writer.communicate()
    assert first, f"after the fault before this nothing can be changed: {told}"
    assert writer.returncode in (3, -9), f"the writer ended with {writer.returncode}: {told}"
    lines = [line for line in told.splitlines() if line.strip()]
    assert len(lines) == (writer.returncode == 3), told
    if kind == "server killed":
        server.start()
        wire.lead_to(server.port)
    wire.mend()
    wait_for(folder)
    state, number, _ = state_after(folder, state, number, seed, (first + rest).split())
    return state, number


def wait_for(folder):
    """Wait until the collection can be opened again: a server takes a while to load what it had."""
    until = time.monotonic() + ENDS_WITHIN_S
    while True:
        try:
            for _, state in states_in(folder):
                Collection(state.uri, state.name, state.n_dims).open().marks()
            return
        except LnbnnError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def left_over(folder):
    """Rows of the model's collection that the model does not know, and other collections of lnbnn."""
    ((where, state),) = states_in(folder)
    collection = Collection(state.uri, state.name, state.n_dims).open()
    there = np.concatenate(list(collection.ids()))
    known = np.load(where / "ids.npy")
    assert len(np.setdiff1d(known, there)) == 0
    return len(there) - len(known) + len(collection.marks()) - 1, len(collection.others())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", nargs=3)
    options = parser.parse_args()
    if options.write:
        held = {int(i): (seed, label) for i, seed, label in json.loads(options.write[0])}
        write(options.folder, (held, int(options.write[1])), int(options.write[2]), options.seed)
    logging.disable(logging.WARNING)
    state, number = ({number: (number, "abc"[number // 2]) for number in range(6)}, 6), 0
    rng, done = np.random.default_rng(options.seed), dict.fromkeys(FAULTS, 0)
    folder = options.folder / "model"
    with MilvusServer() as server:
        wire = Wire(server.port)
        fit(folder, wire.uri, state[0])
        for place in range(options.faults):
            kind = FAULTS[place % len(FAULTS)]
            state, number = one_fault(kind, folder, state, number, options.seed, rng, server, wire)
            done[kind] += 1
            print(f"{place + 1} of {options.faults}: {kind}, {number} changes", file=sys.stderr, flush=True)
        compact(folder)
        n_rows, n_collections = left_over(folder)
        assert n_rows == n_collections == 0, f"{n_rows} rows and {n_collections} collections are left over"
        wire.close()
    print(json.dumps({"faults": done, "changes": number, "left_over": n_rows}))
    sys.stdout.flush()
    os._exit(0)  # pymilvus would wait for a server that is gone


if __name__ == "__main__":
    main()

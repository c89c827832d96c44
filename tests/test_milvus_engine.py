"""Models on a real Milvus server, which is started here and ended: the commands, and exact answers."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import clustered_vectors

from lnbnn.errors import LnbnnError
from lnbnn.indexes import make_index

pytestmark = pytest.mark.engines


def test_the_commands(milvus_server, photos, tmp_path, run_main, save_texture):
    """A model on the server answers as an embedded one through its whole life; at the end nothing is left there."""
    small = ["-D", "bin_sizes=4,6", "-D", "step_px=8", "-D", "longest_side=96"]
    models = {"milvus": ["-I", f"uri={milvus_server.uri}", "-I", "index_type=FLAT"], "exact": []}
    new = save_texture(tmp_path / "new.png", "rows", 77)
    answers = {}
    for index, options in models.items():
        model = tmp_path / index
        assert run_main("fit", photos, model, *small, "--index", index, *options).code == 0
        assert run_main("add", model, "--label", "rows", new).code == 0
        assert run_main("remove", model, "0").code == 0
        answers[index] = [run_main("predict", model, photos, "--format", "json").out]
        assert run_main("compact", model).code == 0
        answers[index] += [run_main("predict", model, photos, "--format", "json").out]
        assert run_main("check", model).code == 0
    assert answers["milvus"] == answers["exact"]
    assert "ranking" in answers["exact"][0]
    assert not list((tmp_path / "milvus").rglob("vectors.npy"))


@pytest.mark.parametrize("kind", ["FLAT", "IVF_FLAT", "IVF_SQ8", "HNSW"])
def test_neighbors_through_each_kind_of_index(milvus_server, kind):
    """All cells and lists: exact where the vectors are stored as they are, near where they are rounded."""
    vectors, queries = clustered_vectors(3000, 20, seed=1), clustered_vectors(50, 20, seed=2)
    params = {"uri": milvus_server.uri, "index_type": kind, "n_lists": 8, "n_cells": 3, "n_cell_probes": 3}
    index, exact = make_index("milvus", params), make_index("exact")
    for one in (index, exact):
        one.add(vectors, np.arange(3000))
    (distances, ids), (true, true_ids) = (one.search(queries, 10) for one in (index, exact))
    if kind in ("FLAT", "IVF_FLAT"):
        assert np.array_equal(distances, true)
        assert np.array_equal(ids, true_ids)
    else:
        shared = [len(set(a) & set(b)) / 10 for a, b in zip(ids.tolist(), true_ids.tolist(), strict=True)]
        assert np.mean(shared) > 0.9


def test_an_index_that_the_server_takes_but_does_not_build_is_refused(milvus_server, monkeypatch):
    monkeypatch.setattr("lnbnn.indexes.milvus_collection._DOUBT_S", 10.0)
    index = make_index("milvus", {"uri": milvus_server.uri, "index_type": "DISKANN"})
    index.add(clustered_vectors(3000, 20), np.arange(3000))
    with pytest.raises(LnbnnError, match="took the index DISKANN but put no vectors into it"):
        index.build()

"""The arithmetic of docs/scale.md, by hand, from records that are made up."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lnbnn.model.folder import MAX_MANIFEST_BYTES

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))
scale = pytest.importorskip("scale")

RECORDS = {
    "growth-large": {
        "points": [
            {"n_descriptors": 4_000_000, "us_per_query": 30.0, "build_cpu_s": 200.0, "recall_at_10": 0.5},
            {"n_descriptors": 64_000_000, "us_per_query": 40.0, "build_cpu_s": 6400.0, "recall_at_10": 0.4},
        ],
        "us_for_each_doubling": 2.0,
    },
    "ray-work": {
        "extraction": {"Ray, 1 worker": {"per_s": 50.0}},
        "network": {"per_s": 10.0},
        "searches": {"embedded": {"per_s": 30_000.0}, "FAISS in 1 shard on Ray": {"per_s": 15_000.0}},
    },
    "engine-growth": {
        "points": [{"n_descriptors": 16_384_000, "build_s": 1638.4, "us_a_descriptor": 500.0, "recall": 0.8}],
        "us_a_descriptor": {"power": 0.5},
    },
}


def read(name):
    return SimpleNamespace(results=RECORDS[name]) if name in RECORDS else None


def row(words, way):
    lines = [line for line in scale.render(read).splitlines() if line.startswith(f"| {words} |")]
    (found,) = [line.strip("| ").split(" | ") for line in lines if f"| {way} |" in line]
    return found


def number(text):
    return float(text.replace(",", ""))


def test_one_machine_by_hand():
    n = 1_281_167 * 1000
    found = row("ImageNet 1k, dense SIFT", "embedded")
    assert found[2:6] == ["1", "embedded", f"{n * (131 + 8 + 25) / 2**30:.0f} GiB", "1"]
    assert number(found[6]) == pytest.approx(1_281_167 / 50 / 32 / 3600, abs=0.01)
    # 50 us per vector of 4 million, 100 of 64 million: for 16 times the vectors twice the time each, the power 1/4
    assert number(found[7]) == pytest.approx(n * 1e-4 * (n / 64e6) ** 0.25 / 32 / 3600, rel=0.05)
    us = 40 + 2 * 4.323  # 64 million doubled so often
    assert number(found[8]) == pytest.approx(32e6 / us / 250, abs=1)


def test_shards_pay_for_the_way_and_search_a_smaller_part():
    found = row("ImageNet 1k, dense SIFT", "Ray shards")
    assert found[5] == "2"
    assert number(found[8]) == pytest.approx(32e6 / (40 + 2 * 3.323) / 2 / 250, abs=1)


def test_shards_on_one_machine_are_never_faster_than_the_index_in_the_process(monkeypatch):
    """A record says so where the embedded index was measured on a busier machine."""
    searches = {"embedded": {"per_s": 25_000.0}, "FAISS in 1 shard on Ray": {"per_s": 30_000.0}}
    monkeypatch.setitem(RECORDS, "ray-work", RECORDS["ray-work"] | {"searches": searches})
    one, other = (row("ImageNet 1k, cells of a network", way) for way in ("embedded", "Ray shards"))
    assert one[8] == other[8]


def test_milvus_by_hand():
    """Twice the time for four times the vectors, up to a thousand cells of 262,144; from there on linearly."""
    us_at = scale.measured(read).milvus_us_at
    most = 262_144 * 1000
    assert us_at(16_384_000) == 500
    assert us_at(4 * 16_384_000) == 1000
    assert us_at(most) == pytest.approx(2000)
    assert us_at(3 * most) == pytest.approx(6000)
    found = row("ImageNet 1k, dense SIFT", "Milvus, IVF_FLAT")
    n = 1_281_167_000
    assert found[4:6] == [f"{n * (4 * 131 + 16) / 2**30:.0f} GiB", "4"]
    assert number(found[7]) == pytest.approx(n * 1e-4 / 4 / 3600, rel=0.1)
    assert number(found[8]) == pytest.approx(1e6 / us_at(n / 4) / 250, rel=0.05)


def test_the_limits_are_those_of_the_package():
    assert MAX_MANIFEST_BYTES / scale.IMAGE_BYTES > 3_800_000
    assert [scale.n_models(images) for images in scale.SETS] == [1, 4]
    milvus = pytest.importorskip("lnbnn.indexes.milvus_index", exc_type=ImportError)
    assert milvus.default_n_cells(10 * scale.MILVUS_CELL_ROWS) == 10
    assert milvus.default_n_cells(1 << 60) == scale.MILVUS_CELLS


def test_several_models_are_all_asked():
    """21k images are listed by 4 models: a question searches all of them, each a quarter of the vectors."""
    found = row("ImageNet 21k, cells of a network", "embedded")
    assert found[2] == "4"
    n = 14_197_122 * 62
    us = RECORDS["growth-large"]["points"][1]["us_per_query"] + 2 * 1.782  # 64 million doubled so often is n / 4
    assert n / 4 == pytest.approx(64e6 * 2**1.782, rel=0.001)
    assert number(found[8]) == pytest.approx(32e6 / us / 4 / 62, abs=2)


@pytest.mark.parametrize("way", ["embedded", "Ray shards"])
def test_what_the_machine_that_fits_cannot_hold_is_said(way):
    assert row("ImageNet 21k, dense SIFT", way)[5:] == ["not possible in this version", *["-"] * 5]


def test_memory_of_the_options_of_milvus():
    text = scale.render(read)
    assert "| `IVF_FLAT` | 540 | 1,064 | 40 GiB, 1 |" in text
    assert "| `IVF_SQ8` | 147 | 671 | 11 GiB, 1 |" in text
    assert "| `IVF_FLAT`, `mmap` | 16 |" in text
    assert {"`HNSW`", "`DISKANN`"} <= set(text.split())


def test_the_loss_of_recall_is_stated():
    text = scale.render(read)
    assert "50 % of the ten nearest among 4 M, 40 % among 64 M" in text
    assert "Milvus 80 % among 16 M" in text


def test_without_records_only_sizes_are_known():
    text = scale.render(lambda name: None)
    assert text.splitlines()[0] == "| set, descriptors | vectors | models | way | index | machines |"
    assert (
        "Not on record yet: h to extract, h to build, questions per s, USD to build, USD per million questions." in text
    )

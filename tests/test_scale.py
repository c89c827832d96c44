"""The arithmetic of docs/scale.md, by hand, from records that are made up."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))
scale = pytest.importorskip("scale")

RECORDS = {
    "growth-large": {
        "points": [{"n_descriptors": 64_000_000, "us_per_query": 40.0, "build_cpu_s": 6400.0}],
        "us_for_each_doubling": 2.0,
    },
    "ray-work": {
        "extraction": {"Ray, 1 worker": {"per_s": 50.0}},
        "network": {"per_s": 10.0},
        "searches": {"embedded": {"per_s": 30_000.0}, "FAISS in 1 shard on Ray": {"per_s": 15_000.0}},
    },
    "engine-growth": {"points": [{"n_descriptors": 10_000_000, "build_s": 1000, "us_a_descriptor": 500.0}]},
}


def read(name):
    return SimpleNamespace(results=RECORDS[name])


def row(words, way):
    lines = [line for line in scale.render(read).splitlines() if line.startswith(f"| {words} |")]
    (found,) = [line.strip("| ").split(" | ") for line in lines if f"| {way} |" in line]
    return found


def test_one_machine_by_hand():
    n = 1_281_167 * 1000
    found = row("ImageNet 1k, dense SIFT", "embedded")
    assert found[3:5] == [f"{n * (131 + 8 + 25) / 1e9:.0f} GB", "1"]
    assert float(found[5]) == pytest.approx(1_281_167 / 50 / 32 / 3600, abs=0.01)
    assert float(found[6]) == pytest.approx(n * 1e-4 / 32 / 3600, abs=0.06)
    us = 40 + 2 * 4.323  # 64 million doubled so often
    assert float(found[7].replace(",", "")) == pytest.approx(32e6 / us / 250, abs=1)


def test_shards_pay_for_the_way_and_search_a_smaller_part():
    found = row("ImageNet 1k, dense SIFT", "Ray shards")
    assert found[4] == "2"
    assert float(found[7].replace(",", "")) == pytest.approx(32e6 / (40 + 2 * 3.323) / 2 / 250, abs=1)


def test_milvus_by_hand():
    found = row("ImageNet 21k, dense SIFT", "Milvus")
    assert found[4] == "11"
    assert found[7] == "8"  # a server of two thousand searches a second
    assert float(found[6]) == pytest.approx(14_197_122_000 * 1e-4 / 11 / 3600, abs=0.5)


def test_what_does_not_fit_is_said():
    assert row("ImageNet 21k, dense SIFT", "embedded")[4:] == ["too large for one", *["-"] * 5]


def test_without_records_only_sizes_are_known():
    text = scale.render(lambda name: None)
    assert text.splitlines()[0] == "| set, descriptors | vectors | way | bytes | machines |"
    assert (
        "Not on record yet: h to extract, h to build, questions per s, USD to build, USD per million questions." in text
    )

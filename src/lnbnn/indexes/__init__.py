"""Nearest-neighbor indexes, one backend per file; the registry maps public names to them."""

from __future__ import annotations

from typing import Any

from lnbnn.indexes.base import Index, LeaveOut
from lnbnn.params import resolve

__all__ = ["INDEXES", "Index", "LeaveOut", "make_index"]

INDEXES = {
    "exact": "lnbnn.indexes.exact:ExactIndex",
    "faiss": "lnbnn.indexes.faiss_index:FaissIndex",
    "flann": "lnbnn.indexes.flann_index:FlannIndex",
    "milvus": "lnbnn.indexes.milvus_index:MilvusIndex",
    "ray-shards": "lnbnn.indexes.ray_shards:RayShards",
}


def make_index(name: str, params: dict[str, Any] | None = None) -> Index:
    """A new, empty index of the named kind with the given settings."""
    return resolve(INDEXES, name, "index").from_params(params or {})

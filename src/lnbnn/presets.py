"""Named settings of Local NBNN: points between accuracy and speed."""

from __future__ import annotations

import copy
from typing import Any

from lnbnn.errors import UnknownNameError

__all__ = ["PRESETS", "preset_params"]

PRESETS: dict[str, dict[str, Any]] = {
    # What the constructors say: six scales every 8 pixels, 500 query descriptors, half once the lead is sure.
    "balanced": {},
    # The features and distances of the authors' program, and every query descriptor.
    "paper": {
        "descriptor_params": {"bin_sizes": [4, 6, 9], "step_px": 3},
        "scale_weight": 0.0,
        "query_budget": None,
        "stop_confidence": None,
    },
    # A coarser grid, a narrower search and fewer questions.
    "fast": {
        "descriptor_params": {"bin_sizes": [6, 9, 14, 21, 31], "step_px": 12},
        "index_params": {"n_probes": 2, "rerank_factor": 3},
        "query_budget": 1000,
        "stop_confidence": 0.9,
    },
    # The cells of a small network: for everyday photos. Needs the extra lnbnn[deep].
    "deep": {"descriptor": "deep", "n_neighbors": 20},
}


def preset_params(name: str) -> dict[str, Any]:
    """Constructor keywords of a preset: what it changes from the defaults."""
    if name not in PRESETS:
        raise UnknownNameError(f"Unknown preset {name!r}; choose one of: {', '.join(sorted(PRESETS))}.")
    return copy.deepcopy(PRESETS[name])

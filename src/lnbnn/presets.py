"""Named settings of Local NBNN: points between accuracy and speed."""

from __future__ import annotations

import copy
from typing import Any

from lnbnn.errors import UnknownNameError

__all__ = ["PRESETS", "preset_params"]

PRESETS: dict[str, dict[str, Any]] = {
    # What the constructors say: five scales every 6 pixels, 2,000 query descriptors.
    "balanced": {},
    # The features of the authors' program, every query descriptor, and a wide search.
    "paper": {
        "descriptor_params": {"bin_sizes": [4, 6, 9], "step_px": 3},
        "index_params": {"n_probes": 4},
        "query_budget": None,
    },
    # A coarser grid and fewer questions.
    "fast": {
        "descriptor_params": {"bin_sizes": [6, 9, 14, 21], "step_px": 8},
        "index_params": {"n_probes": 1},
        "query_budget": 500,
    },
}


def preset_params(name: str) -> dict[str, Any]:
    """Constructor keywords of a preset: what it changes from the defaults."""
    if name not in PRESETS:
        raise UnknownNameError(f"Unknown preset {name!r}; choose one of: {', '.join(sorted(PRESETS))}.")
    return copy.deepcopy(PRESETS[name])

"""What the model says about a photo, as on the command line, under the photo's original name."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np

from lnbnn.classifiers.base import check_rate
from lnbnn.page.photo_store import PhotoStore
from lnbnn.page.served_model import Opened
from lnbnn.trust.evidence import Evidence, explain
from lnbnn.trust.matches import match_photos

__all__ = ["answer", "evidence"]

_MATCHED = 4  # labeled photos whose patches are shown


def answer(opened: Opened, file: Path, name: str, *, top: int, reject: float | None) -> dict[str, Any]:
    """What ``lnbnn predict --format json`` says, with the probability of every class listed."""
    check_rate(reject)
    (found,) = opened.classifier.iter_answers([file], reject=reject)
    content = found.as_json(top)
    if "error" in content:
        content["error"] = content["error"].replace(str(file), name)
    return content | {"path": name, "probabilities": list(found.probabilities[:top])}


def evidence(
    opened: Opened, photo_store: PhotoStore, file: Path, *, label: str | None, against: str | None, top: int
) -> dict[str, Any]:
    """What ``lnbnn explain --format json`` says, with the evidence map."""
    found = explain(opened.classifier, file, label=label, against=against)
    photos = found.photos
    folders = photo_store.folders_of([photo.image for photo in photos[:_MATCHED]])
    drawn = match_photos(found.matches, photos[:_MATCHED], folders=folders)
    content = found.as_json()
    return content | {
        "answer": found.ranking[0][0],
        "photos": content["photos"][:top],
        "n_photos": len(photos),
        "pairs": [pair for one in drawn for pair in one.as_json()],
        "map": _map(found),
    }


def _map(found: Evidence) -> dict[str, Any]:
    """The evidence of each pixel from -127 (against) to 127 (for), row by row, in base64."""
    limit = float(np.quantile(np.abs(found.map), 0.995)) or 1.0
    values = np.clip(found.map / limit * 127.0, -127, 127).round().astype(np.int8)
    height, width = values.shape
    return {"width": width, "height": height, "values": base64.b64encode(values.tobytes()).decode("ascii")}

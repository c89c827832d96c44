"""Features on disk: extracted once per image, found again by content, never by file name."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

import numpy as np

from lnbnn.descriptors.base import Descriptor
from lnbnn.errors import InvalidInputError, LnbnnError
from lnbnn.features import ImageFeatures
from lnbnn.files.atomic import atomic_path, remove_abandoned

__all__ = ["FeatureStore"]

_LAYOUT = 2  # of one stored file
_ABANDONED_S = 3600.0  # an entry is written in a moment

_logger = logging.getLogger(__name__)


class FeatureStore:
    """A folder of extracted features, keyed by image bytes, descriptor, all its settings and its version.

    Each entry is written to a temporary file and renamed, so that a kill leaves whole entries only; what it leaves in
    the folder ``unfinished`` is removed when the store is opened an hour later or after. An entry carries a
    digest of its key and arrays: one that is damaged, or another's, counts as absent, with one warning, and is written
    again. Several processes may share one store.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._warned = False
        self._unfinished = self.folder / "unfinished"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(f"{folder}: cannot be used as a feature cache ({error.strerror}).") from error
        remove_abandoned(self._unfinished, _ABANDONED_S)

    def key(self, digest: str, descriptor: Descriptor) -> str:
        """Hexadecimal name of the entry for the picture file with this SHA-256 and these settings."""
        given = {key: value for key, value in descriptor.settings().items() if key not in descriptor.learned_settings}
        settings = [_LAYOUT, descriptor.name, descriptor.version, given]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + bytes.fromhex(digest)).hexdigest()

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def get(self, key: str) -> ImageFeatures | None:
        """The stored features, or None."""
        path = self._path(key)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                width, height = arrays["size"].tolist()
                features = ImageFeatures(arrays["descriptors"], arrays["xy"], arrays["scale"], (width, height))
                if arrays["digest"].tobytes() == _digest(key, features):
                    return features
        except FileNotFoundError:
            return None
        except Exception as error:  # zipfile and NumPy raise many types on a damaged file; each means: no entry
            _logger.debug("%s: %s", path, error)
        if not self._warned:
            self._warned = True
            _logger.warning(
                "%s: damaged, or not what its name says; such features are extracted again (said once per cache)", path
            )
        return None

    def put(self, key: str, features: ImageFeatures) -> None:
        """Store features; raises :class:`~lnbnn.errors.LnbnnError` when the disk is full or read-only."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            self._unfinished.mkdir(exist_ok=True)
            with atomic_path(path, self._unfinished) as partial, open(partial, "wb") as file:
                np.savez(
                    file,
                    descriptors=features.descriptors,
                    xy=features.xy,
                    scale=features.scale,
                    size=np.array(features.size),
                    digest=np.frombuffer(_digest(key, features), np.uint8),
                )
        except OSError as error:
            raise LnbnnError(f"{path}: features cannot be stored ({error.strerror or error}).") from error

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.npz"


def _digest(key: str, features: ImageFeatures) -> bytes:
    """Of an entry's key and all that it holds."""
    digest = hashlib.sha256(f"{key} {features.size}".encode())
    for array in (features.descriptors, features.xy, features.scale):
        digest.update(f" {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return digest.digest()

"""Any network file in the ONNX format as a descriptor, run by ONNX Runtime on the CPU."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from lnbnn.descriptors.base import MAX_NETWORK_BYTES, StoredNetwork
from lnbnn.descriptors.network import Network, NetworkDescriptor
from lnbnn.descriptors.onnx_file import open_network
from lnbnn.errors import InvalidInputError
from lnbnn.files.regular import read_regular

__all__ = ["OnnxNetwork"]


class OnnxNetwork(NetworkDescriptor):
    """The cells of a feature map, or the patch tokens, of a network file.

    Parameters
    ----------
    source : str
        ``PATH`` or ``PATH@OUTPUT``: an output of the network, or any value inside it. By default the last output that
        is a feature map or a row of patch tokens.
    stored, longest_side, mean, std, n_components, whitening, sha256
        As in :class:`~lnbnn.descriptors.network.NetworkDescriptor`. A file made by ``lnbnn export-onnx`` carries the
        size, mean and std; for others give them.

    Notes
    -----
    The file is parsed and checked before it is run; one that keeps its weights in other files is refused. Still, a
    network is a program: run files from people you trust. A model keeps a copy of the file in its folder.
    """

    name = "onnx:"

    def network_to_store(self) -> StoredNetwork:
        """The content of the file, and the output that is used."""
        if self.stored is not None:
            return self.stored
        path, output = _split(self.source)
        return StoredNetwork(_read(path), output)

    def _network(self) -> Network:
        if self.stored is not None:
            return _open_stored(self.stored, self.name)
        path, output = _split(self.source)
        try:
            state = os.stat(path)
        except OSError as error:
            raise InvalidInputError(f"{path}: no such network file ({error.strerror}); check the path.") from error
        return _open(str(path), output, state.st_mtime_ns, state.st_size)


def _split(source: str) -> tuple[Path, str | None]:
    path, at, output = source.rpartition("@")
    if not at or Path(source).exists():
        return Path(source), None
    return Path(path), output or None


@lru_cache(maxsize=4)
def _open(path: str, output: str | None, modified: int, size: int) -> Network:
    if size > MAX_NETWORK_BYTES:
        raise InvalidInputError(f"{path}: larger than 2 GiB; not a network in one file.")
    return open_network(_read(Path(path)), output, name=path)


@lru_cache(maxsize=4)
def _open_stored(stored: StoredNetwork, name: str) -> Network:
    return open_network(stored.data, stored.output, name=name)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_NETWORK_BYTES, follow_link=True)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror or error}).") from error

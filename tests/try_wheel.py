"""Install a wheel into empty environments, away from the checkout, and use it: `python tests/try_wheel.py dist/*.whl`.

On the Python that runs this: the help of every command, a fit and a predict, a changed model, then the extras one by
one with what each is for (not timm: it brings PyTorch). On other declared versions of Python, where they are found:
the help, a fit and a predict with the network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PICTURES = """
import sys, numpy as np
from pathlib import Path
from PIL import Image
rng = np.random.default_rng(0)
x, y = np.meshgrid(np.arange(120), np.arange(90))
for name, pattern in {"rows": y // 6 % 2, "columns": x // 6 % 2, "checks": (x // 8 + y // 8) % 2}.items():
    for number in range(4):
        folder = Path("new" if number == 3 else f"photos/{name}")
        folder.mkdir(parents=True, exist_ok=True)
        noisy = np.clip(60 + 130 * pattern + rng.normal(0, 12, pattern.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{name}-{number}.png")
"""
DECLARED = "from importlib.metadata import metadata; print(*metadata('lnbnn').get_all('Provides-Extra'))"
EXTRAS = {
    "demo": [["demo", "--output", "shown"]],
    "flann": [["fit", "photos", "with-flann", "--index", "flann"]],
    "milvus": [["fit", "photos", "on-milvus", "--index", "milvus", "-I", "uri=vectors.db"]],
    "deep-small": [["fit", "photos", "with-small", "--descriptor", "deep-small"]],
    "page": [["serve", "--help"]],
    "deep": [["fit", "photos", "with-deep", "--preset", "deep"]],
}


class Environment:
    """A new virtual environment with the wheel in it, and an empty folder to work in."""

    def __init__(self, python: str, wheel: Path, folder: Path) -> None:
        self.folder, self.wheel = folder, wheel
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        (folder / "work").mkdir()
        start = time.perf_counter()
        self.install("")
        self.install_s = time.perf_counter() - start

    def install(self, extra: str) -> None:
        wanted = f"{self.wheel}[{extra}]" if extra else str(self.wheel)
        self.run(
            "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--constraint",
            HERE / "requirements.lock",
            wanted,
        )

    def run(self, program: str, *words: object) -> str:
        """What a program of the environment prints; the checkout is out of its sight."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [self.folder / "venv" / "bin" / program, *map(str, words)]
        done = subprocess.run(command, cwd=self.folder / "work", env=variables, capture_output=True, text=True)
        if done.returncode:
            sys.exit(
                f"{program} {' '.join(map(str, words))} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout

    def lnbnn(self, *words: object) -> str:
        return self.run("lnbnn", *words)


def use(environment: Environment, *options: str) -> None:
    """The version, the help, a fit with these options, and an answer."""
    place = environment.run("python", "-c", "import lnbnn; print(lnbnn.__file__)")
    assert str(environment.folder) in place, f"not the installed package: {place}"
    version = environment.lnbnn("--version").split()[1]
    assert environment.wheel.name.startswith(f"lnbnn-{version}-"), (version, environment.wheel.name)
    assert "Usage: lnbnn" in environment.lnbnn("--help")
    environment.run("python", "-c", PICTURES)
    environment.lnbnn("fit", "photos", "model", *options)
    answers = environment.lnbnn("predict", "model", "new", "--format", "csv").splitlines()[1:]
    first = [row.split(",") for row in answers if row.split(",")[1] == "1"]
    assert len(first) == 3, answers
    assert all(Path(path).name.startswith(label) for path, _, label, *_ in first), answers


def use_all(environment: Environment) -> None:
    """The help of every command; a class is added, the model is whole, and an answer is explained."""
    listed = "from lnbnn.cli import app; import typer; print(*typer.main.get_command(app).commands)"
    for command in environment.run("python", "-c", listed).split():
        assert "Usage: lnbnn" in environment.lnbnn(command, "--help"), command
    environment.lnbnn("add", "model", "--label", "other", "new/checks-3.png")
    environment.lnbnn("check", "model")
    environment.lnbnn("explain", "model", "new/rows-3.png", "-o", "why.png")


def found_pythons() -> dict[str, str]:
    """The declared versions of Python that are here, but for the one that runs this, by version."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [one.rpartition(" ")[2] for one in project["classifiers"] if one.startswith("Programming Language")]
    found = {}
    for version in declared:
        if "." not in version or version == "{}.{}".format(*sys.version_info[:2]):
            continue
        places = [
            shutil.which(f"python{version}") or "",
            *glob(f"{Path.home()}/.pyenv/versions/{version}.*/bin/python"),
        ]
        for place in filter(None, places):
            if subprocess.run([place, "-c", ""], capture_output=True).returncode == 0:
                found[version] = place
                break
        else:
            print(f"Python {version}: not here", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--this-python-only", action="store_true")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    own = "{}.{}".format(*sys.version_info[:2])
    pythons = {own: sys.executable} | ({} if options.this_python_only else found_pythons())
    with ThreadPoolExecutor(2) as pool:
        for outcome in [
            pool.submit(try_on, version, python, wheel, version == own) for version, python in pythons.items()
        ]:
            outcome.result()


def try_on(version: str, python: str, wheel: Path, with_extras: bool) -> None:
    """Everything on one Python."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        environment = Environment(python, wheel, Path(folder))
        print(f"Python {version}: installed in {environment.install_s:.0f} s", flush=True)
        use(environment, *([] if with_extras else ["--preset", "deep"]))
        if with_extras:
            use_all(environment)
            declared = environment.run("python", "-c", DECLARED).split()
            for extra, commands in EXTRAS.items():
                if extra not in declared:
                    continue
                environment.install(extra)
                for words in commands:
                    environment.lnbnn(*words)
                print(f"Python {version}: extra {extra} works", flush=True)
        print(f"Python {version}: {wheel.name} works ({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()

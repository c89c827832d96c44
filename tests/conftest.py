"""What several test files share: a tiny set of photos, a model of it, and ways to run the command line."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from clusters import RayNodes
from milvus_server import MilvusServer
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

import lnbnn
from lnbnn.cli import app, main
from lnbnn.data.folder import read_images

SMALL_GRID = {"bin_sizes": [4, 6], "step_px": 8, "longest_side": 96}  # about 190 descriptors per image
SMALL_OPTIONS = ["-D", "bin_sizes=4,6", "-D", "step_px=8", "-D", "longest_side=96"]


@dataclass(frozen=True)
class Outcome:
    """How a run of the command ended: its exit code, and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of a run that failed; nothing else may be on stderr, and no result on stdout."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("lnbnn: error: ")
        assert self.out == ""
        assert self.code == 1
        return lines[0]


def make_texture(kind: str, seed: int, size: tuple[int, int] = (110, 96)) -> NDArray[np.uint8]:
    """A noisy gray picture: "rows", "columns" or "checks", moved a little by the seed."""
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(size[0]) + rng.integers(12), np.arange(size[1]) + rng.integers(12))
    pattern = {"rows": y // 6 % 2, "columns": x // 6 % 2, "checks": (x // 8 + y // 8) % 2}[kind]
    return np.clip(60 + 130 * pattern + rng.normal(0, 12, pattern.shape), 0, 255).astype(np.uint8)


@pytest.fixture(scope="session")
def save_texture() -> Callable[..., Path]:
    """``save_texture(path, kind, seed)``: a textured picture file, its folders made as needed."""

    def save(path: Path, kind: str, seed: int = 100, size: tuple[int, int] = (110, 96)) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(make_texture(kind, seed, size)).save(path)
        return path

    return save


@pytest.fixture(scope="session")
def make_photos(save_texture: Callable[..., Path]) -> Callable[..., Path]:
    """``make_photos(folder)``: three classes of three photos, with the same three file names in each class."""

    def make(folder: Path) -> Path:
        for place, kind in enumerate(("checks", "columns", "rows")):
            for number in range(3):
                save_texture(folder / kind / f"photo_{number}.png", kind, seed=10 * place + number, size=(110, 96))
        return folder

    return make


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory, make_photos: Callable[..., Path]) -> Path:
    """The tiny set, shared: to be read only."""
    return make_photos(tmp_path_factory.mktemp("shared") / "photos")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """A model of the tiny set with every kind of file a model has, shared: to be read only."""
    data = read_images(photos)
    folder = tmp_path_factory.mktemp("shared") / "model"
    index_params = {"form": "ivf-8bit", "n_lists": 4}
    classifier = lnbnn.LocalNBNN(descriptor_params=SMALL_GRID, index_params=index_params)
    classifier.fit(data.paths, data.labels).save(folder)
    return folder


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayNodes]:
    """Two nodes on this machine that this process is connected to, for the tests that change nothing about them."""
    from lnbnn.cluster.connection import connect, disconnect

    with pytest.MonkeyPatch.context() as patch, RayNodes(2) as nodes:
        for name in nodes.env.keys() - os.environ.keys():
            patch.setenv(name, nodes.env[name])
        connect(nodes.address)
        yield nodes
        disconnect()


@pytest.fixture(scope="module")
def milvus_server() -> Iterator[MilvusServer]:
    """A Milvus standalone server of one test file: one runs on a machine at a time."""
    with MilvusServer() as started:
        yield started


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line where the page could not be tried as people use it."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    if any("the page is not tried" in reason for reason in skipped):
        terminalreporter.write_line("no chromium is installed: the page was not tried in a browser")


@pytest.fixture
def run() -> Callable[..., Outcome]:
    """``run("predict", model, path)``: the Typer application alone, as a user sees it when nothing fails."""

    def run_app(*args: object) -> Outcome:
        result = CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "200"}, catch_exceptions=False)
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run_app


@pytest.fixture
def run_main(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Outcome]]:
    """``run_main("predict", model, path)``: the whole command, errors included; a traceback fails the test."""
    on_terminate = signal.getsignal(signal.SIGTERM)

    def run_command(*args: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(arg) for arg in args])
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    yield run_command
    signal.signal(signal.SIGTERM, on_terminate)


@pytest.fixture
def fit(run_main: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """``fit(photos, model, *options)``: ``lnbnn fit`` on a small grid."""
    return lambda images, target, *options: run_main("fit", images, target, *SMALL_OPTIONS, *options)

"""The command that makes the paper's tables and figures: reproduce."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lnbnn.cli.console import note, progress_bars, say
from lnbnn.errors import DatasetError

if TYPE_CHECKING:
    from lnbnn.data.folder import LabelledImages
    from lnbnn.lab import Experiment, PartStatus

__all__ = ["reproduce"]

_QUICK_CLASSES = 6


def reproduce(
    name: Annotated[str, typer.Argument(help="table1, figure-k, figure-computation, figure-scaling, table2, or all.")],
    dataset: Annotated[str, typer.Option(help="caltech101 or caltech256.")] = "caltech101",
    data: Annotated[
        Path | None,
        typer.Option(help="Where the data set is; by default where `lnbnn data` looks.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for records and pictures.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Folder for features and finished parts; a run goes on from it.")] = Path(
        "runs"
    ),
    splits: Annotated[
        int | None, typer.Option(min=1, help="Use only the first N seeded splits of the plan.", show_default=False)
    ] = None,
    train: Annotated[
        int | None, typer.Option(min=1, help="Of table2, only the column of this many images.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few classes and images: does it run?")] = False,
    finished: Annotated[
        bool,
        typer.Option("--finished", help="Do no work: record the parts that are done, of a run that still goes on."),
    ] = False,
    background: Annotated[
        bool, typer.Option("--background", help="Start it, print where its log is, and return.")
    ] = False,
) -> None:
    """Make a table or figure of the paper from raw images, ours beside the paper's.

    Each finished part is kept: a run that was stopped goes on where it was. Writes a record (JSON) and, for a figure,
    a picture.
    """
    from lnbnn.files.outputs import check_folder
    from lnbnn.lab import EXPERIMENTS, get_experiment

    experiments = [get_experiment(each) for each in (EXPERIMENTS if name == "all" else [name])]
    for folder in (output, runs):
        check_folder(folder)
    if background:
        _start_in_background(runs)
        return
    images = _quick_images(dataset, data, runs) if quick else _all_images(dataset, data)
    for experiment in experiments:
        settings = _settings(experiment, splits, train, quick)
        command = _command(experiment.name, dataset, splits, train, quick, finished)
        name = dataset + ("-quick" if quick else "")
        _reproduce_one(experiment, settings, command, name, images, output, runs, finished)


def _settings(experiment: Experiment, splits: int | None, train: int | None, quick: bool) -> dict[str, Any]:
    settings = experiment.settings | (experiment.quick if quick else {})
    for key in [key for key in settings if key.startswith("seeds")]:
        settings[key] = settings[key][:splits]
    if train is not None and isinstance(settings["n_train"], list):
        if train not in settings["n_train"]:
            columns = " or ".join(map(str, settings["n_train"]))
            raise typer.BadParameter(f"{experiment.name} has columns of {columns} images; got {train}")
        settings["n_train"] = [train]
    return settings


def _command(name: str, dataset: str, splits: int | None, train: int | None, quick: bool, finished: bool) -> str:
    options = {"--dataset": dataset if dataset != "caltech101" else None, "--splits": splits, "--train": train}
    words = [f"{option} {value}" for option, value in options.items() if value is not None]
    words += ["--quick"] * quick + ["--finished"] * finished
    return " ".join(["lnbnn reproduce", name, *words])


def _reproduce_one(
    experiment: Experiment,
    settings: dict[str, Any],
    command: str,
    dataset: str,
    images: LabelledImages,
    output: Path,
    runs: Path,
    finished: bool,
) -> None:
    from lnbnn.lab import Lab
    from lnbnn.lab.records import results_digest, write_record

    suffix = dataset.removeprefix("caltech101").lstrip("-")  # the paper's first data set goes without saying
    label = f"{experiment.name}-{suffix}" if suffix else experiment.name
    warning = " (quick: the figures mean nothing)" if dataset.endswith("-quick") else ""
    say("")
    say(f"{experiment.name}: {experiment.title}{warning}")
    with progress_bars() as progress:
        lab = Lab(dataset, images, runs, progress=progress)
        record = lab.run(experiment, settings, command=command, name=label, finished=finished, on_part=_tell)
    write_record(output / f"{label}.json", record)
    for line in experiment.tabulate(record.results).rstrip().splitlines():
        say(line)
    say(f"record: {output / label}.json")
    if experiment.draw:
        from lnbnn.trust import figures

        picture = getattr(figures, experiment.draw)(record.results)
        figures.save_figure(picture, output / f"{label}.png", source=results_digest(record))
        say(f"picture: {output / label}.png")


def _tell(status: PartStatus) -> None:
    what = "kept" if status.kept else f"{status.seconds:.0f} s"
    left = f"; about {_minutes(status.seconds_left)} left" if status.seconds_left else ""
    note(f"[{status.number}/{status.total}] {status.part.title}: {what}{left}")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _all_images(dataset: str, data: Path | None) -> LabelledImages:
    from lnbnn.data import DATASETS
    from lnbnn.data.published import load_set
    from lnbnn.params import resolve

    return load_set(resolve(DATASETS, dataset, "data set"), data)


def _quick_images(dataset: str, data: Path | None, runs: Path) -> LabelledImages:
    """Images of a few classes of the set, or of the built-in photographs where the set is not at hand."""
    from lnbnn.data.folder import LabelledImages, scan_folder
    from lnbnn.data.toy import write_toy_set

    try:
        images = _all_images(dataset, data)
    except DatasetError:
        if data is not None:
            raise
        note(f"{dataset} is not at hand: the built-in photographs stand in for it.")
        images = scan_folder(write_toy_set(runs / "toy", n_reference=14, n_query=1)[0])
    classes = sorted(set(images.labels))
    chosen = set(classes[:: max(1, len(classes) // _QUICK_CLASSES)][:_QUICK_CLASSES])
    kept = [place for place, label in enumerate(images.labels) if label in chosen]
    return LabelledImages(tuple(images.paths[i] for i in kept), tuple(images.labels[i] for i in kept))


def _start_in_background(runs: Path) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    log = runs / f"reproduce-{time.strftime('%Y%m%d-%H%M%S')}.log"
    arguments = [argument for argument in sys.argv[1:] if argument != "--background"]
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "lnbnn", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ,
        )
    say(f"process {process.pid} works in the background; follow it with: tail -f {log}")

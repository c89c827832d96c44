"""The command that makes the paper's tables and figures: reproduce."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lnbnn.cli.console import Ray, jobs_on, note, progress_bars, say, usage_errors

__all__ = ["reproduce"]


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, figure-k, figure-computation, figure-scaling, table2, or all. Some rows of table 2 alone: "
            "table2-methods, table2-authors-grid, table2-nbnn, table2-nbnn-kernel."
        ),
    ],
    dataset: Annotated[str, typer.Option(help="caltech101 or caltech256.")] = "caltech101",
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of the data set; by default where `lnbnn data` puts it.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for records and pictures.")] = Path("results"),
    runs: Annotated[
        Path, typer.Option(help="Folder for features and finished parts; an interrupted run resumes from it.")
    ] = Path("runs"),
    splits: Annotated[int | None, typer.Option(min=1, help="Use only the first N splits.", show_default=False)] = None,
    train: Annotated[
        int | None,
        typer.Option(min=1, help="For table2: only the column of this many training images.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run on a few classes and images, as a test.")] = False,
    finished: Annotated[
        bool,
        typer.Option("--finished", help="Compute nothing: record the parts that are finished so far."),
    ] = False,
    background: Annotated[
        bool, typer.Option("--background", help="Run in the background, and print where the log is.")
    ] = False,
    ray: Ray = None,
) -> None:
    """Reproduce a table or figure of the paper from raw images, beside the paper's figures.

    Finished parts are kept: an interrupted run resumes. Writes a record (JSON) and, for a figure, a picture.
    """
    from lnbnn.errors import InvalidInputError
    from lnbnn.files.outputs import check_folder
    from lnbnn.lab import Lab, PartStatus, get_experiments
    from lnbnn.lab.reproduce import chosen_settings, columns_of, find_images, start_in_background
    from lnbnn.lab.reproduce import reproduce as run

    experiments = get_experiments(name)
    for folder in (output, runs):
        check_folder(folder)
    if background:
        process, log = start_in_background([word for word in sys.argv[1:] if word != "--background"], runs)
        say(f"process {process.pid} runs in the background; follow it with: tail -f {log}")
        return
    n_jobs = jobs_on(ray, None)
    images = find_images(dataset, data, runs, quick=quick, note=note)
    set_name = dataset + "-quick" * quick
    given = {"--dataset": dataset if dataset != "caltech101" else None, "--splits": splits, "--train": train}
    options = [f"{option} {value}" for option, value in given.items() if value is not None]
    options += ["--quick"] * quick + ["--finished"] * finished

    def tell(status: PartStatus) -> None:
        note(str(status))

    missing: list[InvalidInputError] = []
    n_records = 0
    for experiment in experiments:
        with usage_errors():
            settings = chosen_settings(experiment, splits=splits, train=train, quick=quick, images=images, note=note)
        command = " ".join(["lnbnn reproduce", experiment.name, *options])
        say("")
        say(f"{experiment.name}: {experiment.title}{' (quick: the figures mean nothing)' * quick}")
        for own in columns_of(settings):
            try:
                with progress_bars() as progress:
                    lab = Lab(set_name, images, runs, n_jobs=n_jobs, progress=progress)
                    done = run(experiment, own, lab, command=command, output=output, finished=finished, on_part=tell)
            except InvalidInputError as error:
                if not finished:
                    raise
                missing.append(error)
                note(str(error))
                continue
            n_records += 1
            for line in experiment.tabulate(done.record.results).rstrip().splitlines():
                say(line)
            say(f"record: {done.path}")
            if done.picture is not None:
                say(f"picture: {done.picture}")
    if missing and not n_records:
        raise missing[0]

"""What the commands share: arguments and options, results on stdout, everything else on stderr, progress bars."""

from __future__ import annotations

import csv
import enum
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lnbnn.descriptors import DESCRIPTORS
from lnbnn.errors import InvalidInputError
from lnbnn.escaping import cell_text, csv_cell, json_text, line_text, message_text
from lnbnn.params import RenamedWarning

if TYPE_CHECKING:
    from lnbnn.cluster.tasks import RayCluster
    from lnbnn.data.folder import LabeledImages
    from lnbnn.reading.store import FeatureStore

__all__ = [
    "DESCRIPTOR_NAMES",
    "MAX_LISTED",
    "Cache",
    "DescriptorParams",
    "Force",
    "Format",
    "Images",
    "Jobs",
    "ModelDir",
    "PhotoFolders",
    "Ray",
    "Strict",
    "TrustNetwork",
    "human_bytes",
    "human_number",
    "jobs_on",
    "note",
    "open_cache",
    "parse_bytes",
    "parse_params",
    "print_choice",
    "print_csv",
    "print_json",
    "print_table",
    "progress_bars",
    "read_set",
    "report_skipped",
    "say",
    "usage_errors",
]

MAX_LISTED = 20
"""How many files are named one by one."""


# ---- arguments and options ------------------------------------------------------------------------------------------

DESCRIPTOR_NAMES = ", ".join(
    {"onnx:": "onnx:PATH[@OUTPUT]", "timm:": "timm:MODEL[@LAYER]"}.get(name, name + "LAYER" * name.endswith("@"))
    for name in DESCRIPTORS
)
"""What can be given as a descriptor, for the help."""

ModelDir = Annotated[Path, typer.Argument(help="A model folder made by **lnbnn fit**.", show_default=False)]
Images = Annotated[
    Path,
    typer.Argument(
        help="A folder with one subfolder of pictures per class, or a CSV list (path,label) from lnbnn split.",
        show_default=False,
    ),
]
DescriptorParams = Annotated[
    list[str] | None,
    typer.Option("--descriptor-param", "-D", metavar="NAME=VALUE", help="e.g. -D step_px=3 -D bin_sizes=4,6,9"),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Threads; default: all cores.", show_default=False)
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on a Ray cluster: auto (the one this machine is in), local, or HOST:PORT.",
        show_default=False,
    ),
]
Cache = Annotated[
    Path | None, typer.Option("--cache", help="Feature cache folder, to read from and add to.", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace a model that is there already.")]
PhotoFolders = Annotated[
    list[Path] | None,
    typer.Option(
        help="A folder with the labeled photos, if they have moved; may be repeated.",
        show_default=False,
    ),
]
TrustNetwork = Annotated[
    bool,
    typer.Option(
        "--trust-network", help="Allow a network that is not in the model's folder, or download it; see the docs."
    ),
]


class Format(enum.StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"
    csv = "csv"


def read_set(images: Path) -> LabeledImages:
    """The labeled images of a folder or list; skipped files are noted."""
    from lnbnn.data.folder import read_images

    data = read_images(images)
    for text in data.notes:
        note(text)
    return data


def open_cache(folder: Path | None) -> FeatureStore | None:
    """The feature cache, if one is wanted."""
    if folder is None:
        return None
    from lnbnn.reading.store import FeatureStore

    return FeatureStore(folder)


def jobs_on(ray: str | None, jobs: int | None) -> int | RayCluster | None:
    """What reads images and answers questions: threads, or a Ray cluster, which is connected to now."""
    if ray is None:
        return jobs
    from lnbnn.cluster.tasks import RayCluster

    cluster = RayCluster(ray, n_jobs=jobs)
    with usage_errors():
        cluster.check()
    cluster.connect()
    return cluster


# ---- output ---------------------------------------------------------------------------------------------------------


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, show_header: bool = True) -> None:
    """A table on stdout; as wide as it needs when that is not a terminal."""
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(*(Column(name, overflow="fold") for name in columns), show_header=show_header)
    for row in rows:
        table.add_row(*map(cell_text, row))
    width = None if sys.stdout.isatty() else 200
    Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False).print(table)


def print_choice(choice: dict[str, Any]) -> None:
    """What was tried on the labeled photos, what was chosen, and what accuracy to expect."""
    if choice["trials"]:
        rows = [
            (name, f"{100 * accuracy:.1f} %", f"{loss:.3f}", f"{weight:.2f}" if weight else "-")
            for name, accuracy, loss, weight in choice["trials"]
        ]
        print_table(["tried, each photo left out", "accuracy", "loss", "weight"], rows)
    if choice["accuracy"] is not None:
        low, high = choice["interval"]
        say(
            f"expected accuracy on new photos like these: {100 * choice['accuracy']:.1f} % "
            f"(95 % interval {100 * low:.1f} to {100 * high:.1f}, mean over the classes)"
        )


def note(text: str) -> None:
    """One line on stderr; lost if stderr is closed."""
    with suppress(OSError):
        print(message_text(text), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """One line on stdout."""
    typer.echo(line_text(text))


def print_json(value: Any) -> None:
    """One JSON object per line on stdout, at once."""
    text = json_text(value)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json_text(value, ascii_only=True)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_csv(rows: Iterable[Sequence[object]]) -> None:
    """Rows of a CSV file on stdout."""
    csv.writer(sys.stdout, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in rows)


def report_skipped(skipped: Iterable[tuple[str, str]], total: int) -> None:
    """List the skipped files, and count them."""
    skipped = list(skipped)
    for _, reason in skipped[:MAX_LISTED]:
        note(f"skipped: {reason}")
    if len(skipped) > MAX_LISTED:
        note(f"skipped: ... and {len(skipped) - MAX_LISTED} more")
    if skipped:
        note(f"{len(skipped)} of {total} images skipped (--strict stops at the first).")


def human_bytes(n: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def human_number(value: float) -> str:
    """A score for humans: 568575.0 -> '568,575', -0.03121 -> '-0.0312'."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """The ``progress`` argument of the library's long steps: a bar per stage, with rate and time left, on stderr.

    Nothing is shown when stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    tasks: dict[str, TaskID] = {}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    ) as bars:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(message_text(stage), total=total, rate="")
            speed = bars.tasks[tasks[stage]].speed
            bars.update(tasks[stage], completed=done, total=total, rate=f"{speed:.1f}/s" if speed else "")

        yield show


# ---- parsing --------------------------------------------------------------------------------------------------------


def parse_bytes(text: str | None, option: str) -> int | None:
    """'1.5GiB' -> 1610612736; K, M, G and T count in 1024s, with or without iB or B."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    size = float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ") if found else 0.0
    if not 1 <= size < 1 << 63:
        raise typer.BadParameter(f"expected a size such as 800MiB or 2GiB; got {text!r}", param_hint=option)
    return int(size)


def parse_params(given: list[str] | None, option: str) -> dict[str, Any]:
    """``["step_px=3", "bin_sizes=4,6,9"]`` as a dict: numbers, lists of numbers, true / false / none, or text."""
    params: dict[str, Any] = {}
    for item in given or []:
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected NAME=VALUE, got {item!r}", param_hint=option)
        values = [_plain_value(part.strip()) for part in text.split(",")]
        if any(isinstance(value, int) and abs(value) >= 1 << 63 for value in values):
            raise typer.BadParameter(f"{key}: the number is too large; got {_shortened(text)}", param_hint=option)
        params[key.strip().replace("-", "_")] = values if len(values) > 1 else values[0]
    return params


def _plain_value(text: str) -> Any:
    try:
        return {"true": True, "false": False, "none": None}[text.lower()]
    except KeyError:
        pass
    if re.fullmatch(r"[+-]?[0-9]{20,}", text):
        return 1 << 63  # more digits than any setting takes; Python reads a few thousand of them only
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Invalid settings are usage errors (exit code 2); old names of settings are noted."""
    with warnings.catch_warnings(record=True) as renamed:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", RenamedWarning)
        try:
            yield
        except InvalidInputError as error:
            raise typer.BadParameter(str(error)) from error
    for warning in renamed:
        note(str(warning.message))

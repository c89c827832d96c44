"""What the commands share: results on stdout, everything else on stderr, progress bars, errors as one line."""

from __future__ import annotations

import csv
import enum
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from lnbnn.errors import InvalidInputError
from lnbnn.escaping import cell_text, csv_cell, json_text, line_text, message_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = [
    "Format",
    "ProgressBars",
    "human_bytes",
    "human_number",
    "note",
    "parse_bytes",
    "parse_params",
    "print_csv",
    "print_json",
    "print_table",
    "report_skipped",
    "say",
    "set_up_log",
    "usage_errors",
]

_MAX_LISTED = 20


class Format(enum.StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"
    csv = "csv"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, show_header: bool = True) -> None:
    """A table on stdout; as wide as it needs when that is not a terminal."""
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(*(Column(name, overflow="fold") for name in columns), show_header=show_header)
    for row in rows:
        table.add_row(*map(cell_text, row))
    width = None if sys.stdout.isatty() else 200
    Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False).print(table)


def note(text: str) -> None:
    """One line on stderr; lost if nobody can read it any more."""
    with suppress(OSError):
        print(message_text(text), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """One line on stdout."""
    typer.echo(line_text(text))


def print_json(value: Any) -> None:
    """One JSON object a line on stdout, at once."""
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
    """Name the files that were left out, and count them."""
    skipped = list(skipped)
    for _, reason in skipped[:_MAX_LISTED]:
        note(f"skipped: {reason}")
    if len(skipped) > _MAX_LISTED:
        note(f"skipped: ... and {len(skipped) - _MAX_LISTED} more")
    if skipped:
        note(f"{len(skipped)} of {total} images skipped (--strict stops at the first).")


def human_bytes(n: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def parse_bytes(text: str | None, option: str) -> int | None:
    """'1.5GiB' -> 1610612736; K, M, G and T count in 1024s, with or without iB or B."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    size = float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ") if found else 0.0
    if not 1 <= size < 1 << 63:
        raise typer.BadParameter(f"expected a size such as 800MiB or 2GiB; got {text!r}", param_hint=option)
    return int(size)


def human_number(value: float) -> str:
    """A score to read: 568575.0 -> '568,575', -0.03121 -> '-0.0312'."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


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


class ProgressBars:
    """Bars with rate and time left on stderr, one a stage; nothing when stderr is not a terminal.

    An instance is the ``progress`` argument of the library's long steps.
    """

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._bars is None:
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(message_text(stage), total=total, rate="")
        task = self._tasks[stage]
        speed = self._bars.tasks[task].speed
        self._bars.update(task, completed=done, total=total, rate=f"{speed:.1f}/s" if speed else "")


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )


@contextmanager
def usage_errors() -> Iterator[None]:
    """Settings that make no sense are errors of the command line (exit code 2)."""
    try:
        yield
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from error


class _NoteHandler(logging.Handler):
    """The library's messages, one line each on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def set_up_log(verbose: bool) -> None:
    """Show the library's messages."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[_NoteHandler()])

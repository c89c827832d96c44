"""The application: global options, the list of commands, and how errors become one line and an exit code."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Annotated, Any

import typer

from lnbnn.cli import (
    commands_change,
    commands_data,
    commands_fit,
    commands_model,
    commands_reproduce,
    commands_serve,
)
from lnbnn.cli.console import note, say
from lnbnn.errors import LnbnnError, UnknownNameError
from lnbnn.escaping import message_text
from lnbnn.version import __version__

__all__ = ["app", "main"]


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)

_debug = False
_GRACE_S = 3.0  # from a signal to the end of the process, for unfinished files to be removed


class _NoteHandler(logging.Handler):
    """The library's messages, one line each on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"lnbnn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more about what is done.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Recognize images from their local descriptors, with no training (Local NBNN).

    Put photos in one folder per class (photos/cat/..., photos/dog/...) and run:

        lnbnn fit photos model

        lnbnn predict model new-photo.jpg
    """
    global _debug
    _debug = debug
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[_NoteHandler()])


for command in (
    commands_fit.fit,
    commands_fit.tune,
    commands_model.predict,
    commands_model.evaluate,
    commands_model.explain,
    commands_model.info,
    commands_model.audit,
    commands_data.data,
    commands_serve.serve,
    commands_change.add,
    commands_change.remove,
    commands_change.relabel,
    commands_change.list_,
    commands_change.calibrate,
    commands_change.check,
    commands_change.merge,
    commands_change.compact,
    commands_data.extract,
    commands_data.split,
    commands_data.demo,
    commands_reproduce.reproduce,
    commands_data.export_onnx,
):
    app.command()(command)


def main(args: list[str] | None = None) -> None:
    """Run the command line; exits with 0, 1 (failure) or 2 (usage error)."""
    atexit.register(gc.freeze)  # all memory goes at once: looking through it for cycles would take 0.1 s
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # FAISS's idle threads sleep instead of spinning
    if hasattr(signal, "SIGTERM"):
        signal.signal(signal.SIGTERM, _stop)  # unwinds, so that unfinished files are removed
    _check_streams()
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")  # files.images has a limit of its own
    try:
        try:
            with _ended_by_signals():
                code = app(args=args, prog_name="lnbnn", standalone_mode=False)
        finally:
            _flush_results()
        sys.exit(code)
    except BrokenPipeError:  # the reader of our output has gone
        sys.exit(1)
    except (LnbnnError, OSError, MemoryError) as error:
        if _debug:
            sys.excepthook = _show_traceback
            raise
        text = str(error) if isinstance(error, LnbnnError) else _system_error(error)
        note(f"lnbnn: error: {text.strip()}")
        sys.exit(2 if isinstance(error, UnknownNameError) else 1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # of click, which typer may bring along under another name
            raise
        from typer.rich_utils import rich_format_error

        error.message = message_text(error.message)  # type: ignore[attr-defined]
        rich_format_error(error)  # type: ignore[arg-type]
        sys.exit(error.exit_code)  # type: ignore[attr-defined]


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    for line in "".join(traceback.format_exception(kind, error, trace)).splitlines():
        note(line)


def _system_error(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "out of memory; use fewer or smaller images, a coarser grid (-D step_px=8) or --preset fast."
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End the process soon after SIGINT or SIGTERM, even if the main thread hangs.

    Python's own handlers wait for native code to return, and a network may run forever.
    """
    if os.name != "posix":
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reader,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)  # ends the watcher, unless a signal came: threads may still have to be waited for


def _watch(reader: int) -> None:
    while number := os.read(reader, 1):
        if number[0] in (signal.SIGINT, signal.SIGTERM):
            time.sleep(_GRACE_S)
            os._exit(128 + number[0])
    os.close(reader)


def _check_streams() -> None:
    """Make any file name printable, and keep files from taking the place of a closed standard stream."""
    is_closed = sys.stdout is None
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
    if sys.stderr is None:  # print would take stdout instead
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if is_closed:
        note("lnbnn: error: the standard output is closed; send it to a file or to /dev/null.")
        sys.exit(1)


def _flush_results() -> None:
    """Flush the last results while an error can still be reported."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):  # there is no file behind it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _stop(number: int, frame: Any) -> None:
    sys.exit(128 + number)

r"""Names and labels on their way out, so that no terminal, spreadsheet, page, plot or shell takes them for a command.

One function for each medium. What is not printable is written as its code (``\x1b``, ``\u202e``, ``\udcff``); a
backslash that could be taken for the start of such a code is written as ``\x5c``. Texts that differ stay different.
"""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from typing import Any

__all__ = [
    "cell_text",
    "csv_cell",
    "guard_formula",
    "html_text",
    "json_text",
    "line_text",
    "message_text",
    "plot_text",
    "shell_word",
    "unguard_formula",
]

_JOINERS = "\u200c\u200d"  # not printable by themselves, but part of words in some scripts and of emoji
_LIKE_A_CODE = re.compile(r"\\(?=x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_SPACE_AT_AN_END = re.compile(r"^ | $")
_FORMULA = re.compile("'*[-=+@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # the wide forms count in some languages


def message_text(value: object) -> str:
    r"""A message as one line, without control characters.

    >>> print(message_text("two\nlines"))
    two\x0alines
    """
    return _in_codes(str(value))


def line_text(value: object) -> str:
    r"""A name as part of a line of results.

    >>> print(line_text("\x1b[31mred"), line_text(r"\x1b[31mred"))
    \x1b[31mred \x5cx1b[31mred
    """
    return _in_codes(_LIKE_A_CODE.sub(r"\\x5c", str(value)))


def cell_text(value: object) -> str:
    r"""A name as a cell of a table, where spaces at its ends would not show.

    >>> print(cell_text("cat "))
    cat\x20
    """
    return _SPACE_AT_AN_END.sub(r"\\x20", line_text(value))


def csv_cell(value: object) -> object:
    r"""A cell of a CSV file for people and spreadsheets; numbers stay as they are.

    >>> csv_cell("=1+1"), csv_cell(-2.5)
    ("'=1+1", -2.5)
    """
    return guard_formula(line_text(value)) if isinstance(value, str) else value


def guard_formula(text: str) -> str:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front, as people type it."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguard_formula(text: str) -> str:
    """The text that :func:`guard_formula` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def json_text(value: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    r"""JSON that is printable, of any text.

    >>> print(json_text(["café", "\x9b31m"]))
    ["café", "\u009b31m"]
    """
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    if text.isprintable():
        return text
    kept = "\n" if ascii_only else _JOINERS + "\n"  # line ends of the text itself: those of strings are in codes
    return "".join(c if c.isprintable() or c in kept else _json_code(c) for c in text)


def html_text(value: object) -> str:
    """Text of an HTML page, or of an attribute in quotes."""
    return html.escape(cell_text(value), quote=True)


def plot_text(value: object) -> str:
    """Text of a matplotlib figure, where dollars would enclose formulas."""
    return line_text(value).replace("$", r"\$")


def shell_word(value: object) -> str:
    r"""A word of a command to copy into a shell.

    >>> print(shell_word("my photos"), shell_word("two\nlines"))
    'my photos' $'two\012lines'
    """
    text = str(value)
    if text.isprintable() and "\\" not in text:
        return shlex.quote(text)
    return "$'" + "".join(c if c.isprintable() and c not in "\\'" else _octal(c) for c in text) + "'"


def _json_code(letter: str) -> str:
    data = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{data[place : place + 4]}" for place in range(0, len(data), 4))


def _octal(letter: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(letter))


def _in_codes(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() or c in _JOINERS else _code(c) for c in text)


def _code(letter: str) -> str:
    number = ord(letter)
    return f"\\x{number:02x}" if number < 1 << 8 else f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"

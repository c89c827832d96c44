"""Names and labels in every medium: harmless, and different where they were different."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnbnn.escaping import (
    cell_text,
    csv_cell,
    guard_formula,
    html_text,
    json_text,
    line_text,
    message_text,
    plot_text,
    shell_word,
    unguard_formula,
)

CODE = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
HOSTILE = {
    "escape sequence": "\x1b]0;owned\x07",
    "C1 control": "\x9b31mred",
    "delete": "a\x7fb",
    "newline": "two\nlines",
    "carriage return": "over\rwritten",
    "NUL": "a\0b",
    "lone surrogate": "caf\udce9",
    "turned round": "gpj.\u202eexe",
    "line separator": "a\u2028b",
    "above 16 bits": "a\U000e0001b",
}
# Letters that are likely to meet: those of codes, formulas and markup, and any others.
TEXTS = st.text(st.one_of(st.sampled_from("\\xuU05cd1b'=+-@\"$&<> \n\t\r\0\x1b\udce9"), st.characters(codec=None)))


def decode(text):
    return CODE.sub(lambda found: chr(int(found[1] or found[2] or found[3], 16)), text)


def is_harmless(text):
    return all(letter.isprintable() or letter in "\u200c\u200d" for letter in text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("medium", [message_text, line_text, cell_text, csv_cell, json_text, html_text, plot_text])
def test_nothing_that_is_not_printable_comes_out(medium, text):
    assert is_harmless(medium(text))


@pytest.mark.parametrize("text", ["plain", "café", "日本 語", "می‌خواهم", "👩‍👧", r"C:\new\data", "[red]x[/red]", "$1"])
def test_ordinary_names_come_out_as_they_are(text):
    assert message_text(text) == line_text(text) == cell_text(text) == csv_cell(text) == text
    assert json_text(text) == f'"{text}"'.replace("\\", "\\\\")


@given(TEXTS)
def test_lines_and_cells_can_be_read_back(text):
    assert is_harmless(line_text(text))
    assert decode(line_text(text)) == decode(cell_text(text)) == text
    assert decode(html.unescape(html_text(text))) == text
    assert decode(plot_text(text).replace(r"\$", "$")) == text


@given(TEXTS)
def test_csv_can_be_read_back_and_starts_no_formula(text):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow([csv_cell(text), 1])
    ((cell, _),) = csv.reader(io.StringIO(file.getvalue()))
    assert cell[:1] not in tuple("=+-@\t\r\n＝＋－＠")
    assert decode(unguard_formula(cell)) == text
    assert unguard_formula(guard_formula(text)) == text


def test_numbers_of_a_csv_file_stay_numbers():
    assert [csv_cell(value) for value in (-3, -0.5, None, True)] == [-3, -0.5, None, True]
    assert csv_cell("-3") == "'-3"


def test_apostrophes_that_guard_nothing_stay():
    for text in ("'tis", "''", "'", "it's"):
        assert guard_formula(text) == unguard_formula(text) == text


@given(st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)))
def test_json_can_be_read_back(value):
    assert json.loads(json_text(value)) == value
    assert is_harmless(json_text(value))
    assert json.loads(json_text(value, indent=1)) == value


@pytest.mark.parametrize("text", ["", "my photos", "it's", "$(touch x)", "two\nlines\\", "caf\udce9's", "\x1b[31m日本"])
def test_a_shell_reads_the_word_as_it_was(text):
    done = subprocess.run(["bash", "-c", f"printf %s {shell_word(text)}"], capture_output=True, check=True)
    assert os.fsdecode(done.stdout) == text
    assert is_harmless(shell_word(text))

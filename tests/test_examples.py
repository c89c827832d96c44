"""The examples run, and show what they say."""

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("skimage")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """``printed(name)``: run an example in an empty folder; what it prints, by line."""

    def run(name):
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
        return capsys.readouterr().out.splitlines()

    return run


def test_quickstart_is_mostly_right(printed, tmp_path):
    right, _, total = printed("quickstart")[0].split()[:3]
    assert int(total) == 8
    assert int(right) >= 7
    assert (tmp_path / "why.png").stat().st_size > 10_000


def test_a_class_that_is_added_is_known(printed):
    before, after = printed("add_a_class")
    assert "page" not in before
    assert after == "after: ['page']"


def test_most_strangers_are_rejected_and_most_known_photos_accepted(printed):
    known, strangers = ([int(number) for number in re.findall(r"\d+", line)] for line in printed("reject_strangers"))
    assert known[1] == strangers[1] == 8
    assert known[0] >= 4
    assert strangers[0] <= 2


def test_wrong_labels_are_found_and_corrected(printed):
    *found, last = printed("find_wrong_labels")
    assert {line.split(":")[0] for line in found} == {"photo 2", "photo 11", "photo 23"}
    assert last == "30 of 30 labels right"


def test_every_example_is_tested():
    tested = set(re.findall(r'printed\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert tested == {path.stem for path in EXAMPLES.glob("*.py")}

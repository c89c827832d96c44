"""The list of planted bugs is kept up: each still fits the code, and the tool tells a bug that is seen from another."""

import pytest
from mutants import HERE, is_killed, passes, read_mutants

MUTANTS = read_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["what"])
def test_a_mutant_fits_the_code(mutant):
    assert set(mutant) == {"what", "file", "old", "new", "tests"}
    assert (HERE / mutant["file"]).read_text(encoding="utf-8").count(mutant["old"]) == 1
    assert mutant["new"] != mutant["old"]
    assert mutant["tests"]
    assert all((HERE / "tests" / name.partition("::")[0]).is_file() for name in mutant["tests"])


def test_every_mutant_has_its_own_words():
    assert len({mutant["what"] for mutant in MUTANTS}) == len(MUTANTS)


def test_a_bug_that_is_seen_and_one_that_is_not(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    code = "def double(x):\n    return 2 * x\n\n\ndef half(x):\n    return x / 2\n"
    (tmp_path / "src" / "arithmetic.py").write_text(code)
    test = "from arithmetic import double\n\n\ndef test_double():\n    assert double(3) == 6\n"
    (tmp_path / "tests" / "test_arithmetic.py").write_text(test)
    seen = {"what": "", "file": "src/arithmetic.py", "old": "2 * x", "new": "3 * x", "tests": ["test_arithmetic.py"]}
    assert passes(tmp_path, seen["tests"])
    assert is_killed(tmp_path, seen)
    assert not is_killed(tmp_path, seen | {"old": "x / 2", "new": "x / 3"})
    assert (tmp_path / "src" / "arithmetic.py").read_text() == code
    with pytest.raises(SystemExit, match="0 places"):
        is_killed(tmp_path, seen | {"old": "y"})

"""Faults of a model on a real Milvus server, which is started here and ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines


def test_faults(tmp_path):
    """One of each: the writer killed, the server killed, the connection cut."""
    program = Path(__file__).parent / "milvus_faults.py"
    words = [sys.executable, "-W", "ignore", str(program), str(tmp_path), "--faults", "3", "--seed", "1"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(done.stdout.splitlines()[-1])["faults"].values()) == 3

"""Compiled functions work, and give the same numbers, whatever state numba's cache on disk is in."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys

import numba
import pytest
from numba.core import caching

from lnbnn import compiled as door
from lnbnn.compiled import compiled

CUT = b"cut in half"


def triple(value):
    return 3.0 * value


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The only folder that numba may use, and nothing said yet."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [caching.UserProvidedCacheLocator])
    monkeypatch.setattr(door, "_said", False)
    return tmp_path / "cache"


def was_cached():
    """Compile the function as a new process would, call it twice, and say whether the cache had it."""
    made = compiled()(triple)
    assert (made(0.1), made(0.1)) == (triple(0.1), triple(0.1))
    return bool(made.stats.cache_hits)


def said(caplog):
    """The one warning so far; forgotten, so that the next process may speak again."""
    (line,) = caplog.messages
    caplog.clear()
    door._said = False
    assert line.startswith("the cache of compiled functions cannot be used (")
    assert "\n" not in line
    return line


def test_a_function_is_compiled_once_and_then_read(cache, caplog):
    assert [was_cached() for _ in range(3)] == [False, True, True]
    assert caplog.messages == []
    assert {path.suffix for path in cache.rglob("*.*")} == {".nbi", ".nbc"}


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize(
    "content",
    [b"", CUT, b"\x00garbage\xff", pickle.dumps(numba.__version__) + pickle.dumps(5)],
    ids=["empty", "cut", "garbage", "other"],
)
def test_a_damaged_entry_is_a_miss_and_is_written_again(cache, caplog, kind, content):
    was_cached()
    (path,) = cache.rglob(f"*.{kind}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is CUT else content)
    assert not was_cached()
    assert said(caplog)
    assert was_cached()
    assert caplog.messages == []


def test_an_entry_that_cannot_be_replaced_is_a_miss_each_time(cache, caplog):
    was_cached()
    (path,) = cache.rglob("*.nbi")
    path.unlink()
    path.mkdir()
    for _ in range(2):
        assert not was_cached()
        assert said(caplog)


@pytest.mark.parametrize("ending", [".nb", ".nbc"])
def test_a_full_disk_is_a_miss_and_leaves_no_half_entry(cache, caplog, monkeypatch, ending):
    def full(path, mode="r", **options):
        if "w" in mode and ending in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return open(path, mode, **options)

    with monkeypatch.context() as patch:
        patch.setattr(caching, "open", full, raising=False)
        assert not was_cached()
    assert "No space left on device" in said(caplog)
    assert not list(cache.rglob("*.*"))
    assert [was_cached() for _ in range(2)] == [False, True]


def test_a_failed_save_never_leaves_the_entry_of_an_older_source(cache, monkeypatch):
    was_cached()
    (data,) = cache.rglob("*.nbc")
    old = data.read_bytes()

    def full(self, name, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:  # as after an update: the index is out of date, the data file is still there
        patch.setattr(caching.UserProvidedCacheLocator, "get_source_stamp", lambda self: "another")
        patch.setattr(caching.IndexDataCacheFile, "_save_data", full)
        assert not was_cached()
    assert data.read_bytes() == old
    monkeypatch.setattr(caching.UserProvidedCacheLocator, "get_source_stamp", lambda self: "another")
    assert not was_cached()


def test_a_cache_that_cannot_be_written_to_is_said_once(cache, caplog, monkeypatch):
    cache.write_bytes(b"")  # below a file nothing can be made, by root neither
    assert not was_cached()
    assert not was_cached()
    assert "no locator available" in said(caplog)


ANSWERING = {
    "dense-sift": "from lnbnn.descriptors.dense_sift import DenseSIFT; DenseSIFT().warm_up()",
    "cells": "from lnbnn.descriptors.normalization import _product; _product(ones, ones)",
    "neighbors": "from lnbnn.indexes.selection import select_smallest; select_smallest(ones, 2)",
    "fisher": "from lnbnn.methods.fisher import Mixture as M; m = M(ones[0], ones, ones); m.sums(ones, m.shares(ones))",
}


@pytest.mark.parametrize("name", ANSWERING)
def test_functions_that_answer_are_read_without_what_the_compiler_needs(name):
    code = f"import numpy as np; ones = np.ones((3, 3), np.float32); {ANSWERING[name]}"
    shown = "import sys; print(*({'numba.np.linalg', 'scipy.linalg'} & set(sys.modules)))"
    for _ in range(2):  # the first one may have to compile
        done = subprocess.run([sys.executable, "-c", f"{code}; {shown}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def run_command(*args, before="", **environment):
    code = f"{before}\nimport sys; from lnbnn.cli import main; main(sys.argv[1:])"
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], env=env, capture_output=True, text=True)


def test_the_command_works_where_nothing_can_be_kept_and_answers_the_same(model, photos, tmp_path, run_main):
    (tmp_path / "file").touch()
    command = ["predict", model, photos / "rows" / "photo_0.png", "--format", "json"]
    only = "from numba.core import caching; caching.CacheImpl._locator_classes = [caching.UserProvidedCacheLocator]"
    done = run_command(*command, before=only, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert (done.returncode, done.stdout) == (0, run_main(*command).out)
    (line,) = done.stderr.splitlines()
    assert line.startswith("the cache of compiled functions cannot be used (")
    assert "NUMBA_CACHE_DIR names a folder" in line


@pytest.mark.parametrize("threads", ["0", "two", "9" * 5000])
def test_a_number_of_threads_that_is_none_is_named(model, photos, threads):
    done = run_command("predict", model, photos / "rows" / "photo_0.png", NUMBA_NUM_THREADS=threads)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("lnbnn: error: the environment variable NUMBA_NUM_THREADS must be a whole number from 1 on")
    assert len(line) < 200

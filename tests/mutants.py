"""Plant bugs, one at a time, and see whether the tests notice: `make mutants`.

Each bug of tests/mutants.toml goes into a copy of the project; the tests named with it are run there until one fails.
Before that they are run without any bug. Ends with exit code 1 if a bug that should be seen is not, beyond 5 in 100.

    python tests/mutants.py                 # all of them
    python tests/mutants.py "table 2" fsync # those whose words hold one of these
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "benchmarks", "examples", "docs", "results")
LEAST_SHARE = 0.95
SECONDS = 600  # a bug may be an endless loop; that is noticed too


def read_mutants(path: Path = HERE / "tests" / "mutants.toml") -> list[dict]:
    """The bugs: ``what``, ``file``, ``old``, ``new`` and ``tests``."""
    return tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]


def copy_project(target: Path, source: Path = HERE) -> Path:
    """What the tests need, compiled code included; times of files are kept, so that it is not compiled again."""
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
    for file in [path for path in source.iterdir() if path.is_file()]:
        shutil.copy2(file, target)
    return target


def passes(project: Path, tests: list[str]) -> bool:
    """Whether these test files pass in a copy of the project."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*command, *(f"tests/{name}" for name in tests)],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1, 2):  # 2: a file that cannot even be imported
        raise SystemExit(f"pytest ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.returncode == 0


def is_killed(project: Path, mutant: dict) -> bool:
    """Whether the tests notice a bug; the copy is as before afterwards."""
    path = project / mutant["file"]
    times = path.stat()
    content = path.read_text(encoding="utf-8")
    if content.count(mutant["old"]) != 1:
        raise SystemExit(f"{mutant['what']}: {content.count(mutant['old'])} places in {mutant['file']}; expected 1.")
    try:
        path.write_text(content.replace(mutant["old"], mutant["new"]), encoding="utf-8")
        return not passes(project, mutant["tests"])
    finally:
        path.write_text(content, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def main(words: list[str]) -> int:
    """Plant the bugs, print which live, and the share that died."""
    mutants = [one for one in read_mutants() if not words or any(word in one["what"] for word in words)]
    if not mutants:
        print(f"no mutant is named {' or '.join(words)}")
        return 2
    began, n_workers = time.monotonic(), min(os.cpu_count() or 1, len(mutants))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(n_workers) as pool:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(n_workers):
            place = Path(folder) / str(number)
            place.mkdir()
            copies.put(copy_project(place))

        def with_a_copy(work, *what):
            project = copies.get()
            try:
                return work(project, *what)
            finally:
                copies.put(project)

        files = sorted({name for one in mutants for name in one["tests"]})
        for name, is_good in zip(files, pool.map(lambda name: with_a_copy(passes, [name]), files), strict=True):
            if not is_good:
                print(f"{name} fails without any bug planted")
                return 2
        killed = []
        for one, is_dead in zip(mutants, pool.map(lambda one: with_a_copy(is_killed, one), mutants), strict=True):
            killed.append(is_dead)
            print(f"[{len(killed)}/{len(mutants)}] {'killed' if is_dead else 'LIVES '}  {one['what']}", flush=True)
    share = sum(killed) / len(killed)
    print(f"{sum(killed)} of {len(killed)} mutants killed ({share:.1%}) in {time.monotonic() - began:.0f} s")
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Every system call of a writer fails once, or is cut off by a signal or the power: the model is as before or as after.

    python tests/faults.py FOLDER --errors --power-cuts

prints what it did as JSON, and fails on the first model that is not whole. The calls are intercepted in Python:
whatever a writer does to the disk goes through the functions that :class:`Intercepted` replaces.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import errno
import io
import json
import logging
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
from synthetic import make_features

from lnbnn import LocalNBNN, load
from lnbnn.errors import LnbnnError
from lnbnn.model import writer as model_writer
from lnbnn.model.changes import calibrate, check_model, compact, edit, list_images
from lnbnn.model.folder import read_manifest

ERRORS = ("EIO", "ENOSPC", "EINTR")
SIGNALS = {"SIGINT": KeyboardInterrupt, "SIGTERM": lambda: SystemExit(143)}


# ---- the disk, intercepted ------------------------------------------------------------------------------------------


class Intercepted:
    """Within ``with``, every call that changes a disk below ``root`` goes through ``act(kind, path, do, detail)``."""

    def __init__(self, root, act):
        self.root, self.act = str(root), act
        self._patches = []

    def __enter__(self):
        for name in ("fsync", "rename", "replace", "mkdir", "unlink", "remove", "rmdir", "open"):
            self._patch(os, name, getattr(self, f"_{name}")(getattr(os, name)))
        opened = self._file(builtins.open)
        self._patch(builtins, "open", opened)
        self._patch(io, "open", opened)
        return self

    def __exit__(self, *_):
        while self._patches:
            self._patches.pop().stop()

    def _patch(self, place, name, function):
        patch = mock.patch.object(place, name, function)
        patch.start()
        self._patches.append(patch)

    def _call(self, kind, path, do, detail=None):
        return self.act(kind, path, do, detail) if path.startswith(self.root) else do()

    @staticmethod
    def _path(path, dir_fd=None):
        text = os.fspath(path)
        return (
            os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text) if dir_fd is not None else os.path.abspath(text)
        )

    def _fsync(self, real):
        return lambda handle: self._call("fsync", os.readlink(f"/proc/self/fd/{handle}"), lambda: real(handle))

    def _rename(self, real):
        return lambda source, target: self._call(
            "rename", self._path(source), lambda: real(source, target), self._path(target)
        )

    _replace = _rename

    def _mkdir(self, real):
        return lambda path, *rest, **named: self._call("mkdir", self._path(path), lambda: real(path, *rest, **named))

    def _unlink(self, real):
        return lambda path, *, dir_fd=None: self._call(
            "unlink", self._path(path, dir_fd), lambda: real(path, dir_fd=dir_fd)
        )

    _remove = _rmdir = _unlink

    def _open(self, real):
        def opened(path, flags, mode=0o777, *, dir_fd=None):
            def do():
                return real(path, flags, mode, dir_fd=dir_fd)

            new = flags & os.O_CREAT and not os.path.lexists(self._path(path, dir_fd))
            return self._call("create", self._path(path, dir_fd), do) if new else do()

        return opened

    def _file(self, real):
        def opened(path, mode="r", *rest, **named):
            if isinstance(path, int) or not set(mode) & set("wax+") or not self._path(path).startswith(self.root):
                return real(path, mode, *rest, **named)
            full = self._path(path)
            kind = "truncate" if os.path.exists(full) else "create"
            return _File(self, full, self._call(kind, full, lambda: real(path, mode, *rest, **named)))

        return opened


class _File:
    """A file open for writing, whose writes are intercepted."""

    def __init__(self, disk, path, file):
        self._disk, self._path, self._file = disk, path, file

    def write(self, data):
        text = data.encode() if isinstance(data, str) else bytes(data)

        def do():
            self._file.write(data)
            self._file.flush()

        self._disk._call("write", self._path, do, text)
        return len(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


# ---- models and changes ---------------------------------------------------------------------------------------------


def features(seed, n=12):
    return make_features(np.random.default_rng(seed).integers(0, 128, (n, 8), dtype=np.uint8), seed=seed)


QUERIES = [features(seed, 6) for seed in (9000, 9001)]


def fitted(n_images=6):
    model = LocalNBNN(n_neighbors=3, index="exact", n_jobs=1)
    return model.fit([features(seed) for seed in range(n_images)], ["abc"[seed % 3] for seed in range(n_images)])


def _edited(change):
    def run(folder):
        with edit(folder) as model:
            change(model)

    return run


CHANGES = {
    "add": _edited(lambda model: model.add([features(50), features(51)], ["a", "d"])),
    "remove": _edited(lambda model: model.remove([0])),
    "relabel": _edited(lambda model: model.relabel(1, "z")),
    "compact": compact,
    "calibrate": calibrate,
    "fit --force": lambda folder: fitted(7).save(folder, overwrite=True),
    "fit": lambda folder: fitted().save(folder),
    "discard": model_writer.discard_model,
}


def state_of(folder):
    """All that the model says and answers, every checksum compared; None if there is no model."""
    if not (folder / "manifest.json").exists():
        return None
    report = check_model(folder)
    assert report.problems == (), report.problems
    manifest = read_manifest(folder)
    held = [(image.id, image.label, image.digest) for image in list_images(folder)]
    calibration = manifest.get("temperature"), manifest.get("unknown_by_class")
    return held, calibration, load(folder).totals(QUERIES).tobytes(), manifest["generation"]


def prepare(folder, change):
    """A model that this change can be made to, with something added and removed before."""
    if change == "fit":
        return
    fitted().save(folder)
    with edit(folder) as model:
        model.add([features(40)], ["b"])
    with edit(folder) as model:
        model.remove([2])


# ---- a call that fails ----------------------------------------------------------------------------------------------


class _Failing:
    """Lets one call, by its number, end with an error before or after it is done."""

    def __init__(self, position, make, after):
        self.position, self.make, self.after = position, make, after
        self.n_calls = 0

    def __call__(self, kind, path, do, detail):
        number, self.n_calls = self.n_calls, self.n_calls + 1
        if number != self.position:
            return do()
        if self.after:
            result = do()
            if kind in ("create", "truncate"):
                os.close(result) if isinstance(result, int) else result.close()
        raise self.make()


def _system_error(name):
    return lambda: OSError(getattr(errno, name), os.strerror(getattr(errno, name)))


def kinds_of_failure():
    """Name, exception, and whether the call was done when it came."""
    for name in ERRORS:
        for after in (False, True):
            yield f"{name} {'after' if after else 'instead of'}", _system_error(name), after
    for name, make in SIGNALS.items():
        for after in (False, True):
            yield f"{name} {'after' if after else 'before'}", make, after


no_waiting = mock.patch.object(os, "fsync", new=mock.Mock(return_value=None))  # what the disk does is simulated


@no_waiting
def fail_everywhere(root, *, changes=tuple(CHANGES), kinds=None, stride=1):
    """Every change, every call of it, every kind of failure; returns how many there were."""
    counts = {"failures": 0, "kept": 0, "changed": 0}
    for change in changes:
        start = root / "start" / change
        prepare(start, change)
        before = state_of(start)
        for name, make, after in kinds or kinds_of_failure():
            position = 0
            while True:
                folder = root / "tried" / change
                if start.exists():
                    shutil.copytree(start, folder)
                act = _Failing(position, make, after)
                said = _tried(change, folder, act)
                if act.n_calls <= position:
                    assert said is None, said
                    assert state_of(folder) != before, f"{change} changes nothing"
                    shutil.rmtree(folder.parent)
                    break
                where = f"{change}, {name} call {position}: {said}"
                counts["changed" if _judge(change, folder, before, said, where) else "kept"] += 1
                counts["failures"] += 1
                shutil.rmtree(folder.parent)
                position += stride
    return counts


def _tried(change, folder, act):
    """Make the change with one call failing; returns what was said, None if nothing was."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with Intercepted(folder.parent, act):
            CHANGES[change](folder)
    except LnbnnError as error:
        return str(error)
    except (KeyboardInterrupt, SystemExit):
        return "a signal"
    return None


def _judge(change, folder, before, said, where):
    """Whether the change was made; fails if the model is neither as before nor as after, or a false word was said."""
    now = state_of(folder)
    if now == before:
        assert said is not None, where
        assert "was changed" not in said or "nothing was changed" in said, where
        made = False
    else:
        assert "nothing was changed" not in (said or ""), where
        made = True
    if change == "discard" and made:
        assert now is None, where
        return made
    if change != "fit" or made:  # the next one finds a model that it can change, and cleans up
        with edit(folder) as model:
            model.add([features(60)], ["q"])
        compact(folder)
        left = {path.name.split("-")[0] for path in folder.iterdir()}
        assert left == {"data", "manifest.json", "writer.lock"}, (where, left)
        assert sum(path.is_dir() for path in folder.iterdir()) == 1, where
    assert not made or state_of(folder)[:3] == _expected(change), where
    return made


@cache
def _expected(change):
    """The state that the change and the ones after it lead to when nothing fails."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "model"
        prepare(folder, change)
        CHANGES[change](folder)
        with edit(folder) as model:
            model.add([features(60)], ["q"])
        compact(folder)
        return state_of(folder)[:3]


# ---- a power cut ----------------------------------------------------------------------------------------------------


class _Inode:
    """A file (``content``) or a folder (``entries``): as it is, as it surely is on the disk, and what is in between."""

    def __init__(self, is_folder):
        self.is_folder = is_folder
        self.content, self.synced = b"", b""
        self.entries, self.kept, self.pending = {}, {}, []


class Recorded:
    """The calls of a change, and the disks that a power cut at any moment of it may leave."""

    def __init__(self, root):
        self.root = Path(root)
        self.calls = []

    def __call__(self, kind, path, do, detail):
        result = do()
        self.calls.append((kind, path, detail))
        return result

    def disks(self, before, rng, n_random=4):
        """(number of calls done, root inode, choice) for every cut, with choices of what had reached the disk."""
        for cut in range(len(self.calls) + 1):
            root = _tree(before)
            for call in self.calls[:cut]:
                _apply(root, self.root, *call)
            inodes = list(_below(root))
            n_pending = sum(len(inode.pending) for inode in inodes)
            dirty = [inode for inode in inodes if not inode.is_folder and inode.content != inode.synced]
            n_choices = n_pending + len(dirty)
            choices = [np.zeros(n_choices, bool), np.ones(n_choices, bool)]
            choices += [np.arange(n_choices) == i for i in range(n_choices)]
            choices += [np.arange(n_choices) != i for i in range(n_choices)]
            choices += [rng.random(n_choices) < 0.5 for _ in range(n_random if n_choices > 1 else 0)]
            for choice in {tuple(choice) for choice in choices}:
                yield cut, root, choice


def _below(inode, seen=None):
    """All inodes that are, were or will be reachable."""
    seen = set() if seen is None else seen
    if id(inode) in seen:
        return
    seen.add(id(inode))
    yield inode
    found = [*inode.entries.values(), *inode.kept.values(), *(child for op in inode.pending for child in op[2:])]
    for child in found:
        yield from _below(child, seen)


def _tree(folder):
    """The inodes of a real folder, all of it on the disk."""
    inode = _Inode(folder.is_dir())
    if inode.is_folder:
        inode.entries = {path.name: _tree(path) for path in folder.iterdir()}
        inode.kept = dict(inode.entries)
    else:
        inode.content = inode.synced = folder.read_bytes()
    return inode


def _apply(root, top, kind, path, detail):
    *way, name = Path(path).relative_to(top).parts or ("",)
    if name == "":
        return _sync(root)
    folder = root
    for step in way:
        folder = folder.entries[step]
    if kind in ("create", "mkdir"):
        child = folder.entries[name] = _Inode(kind == "mkdir")
        folder.pending.append(("link", name, child))
    elif kind == "truncate":
        folder.entries[name].content = b""
    elif kind == "write":
        folder.entries[name].content += detail
    elif kind == "fsync":
        _sync(folder.entries[name])
    elif kind == "unlink":
        del folder.entries[name]
        folder.pending.append(("unlink", name))
    elif kind == "rename":
        new = Path(detail).name
        assert Path(detail).parent == Path(path).parent, "renames stay in their folder"
        child = folder.entries[new] = folder.entries.pop(name)
        folder.pending += [("rename", (name, new), child)]
    return None


def _sync(inode):
    inode.synced, inode.kept, inode.pending = inode.content, dict(inode.entries), []


def _write_out(root, choice, target):
    """The disk with those of the pending calls done that are chosen."""
    chosen = iter(choice)
    entries, contents = {}, {}
    for inode in _below(root):
        if inode.is_folder:
            names = dict(inode.kept)
            for op, name, *child in inode.pending:
                if not next(chosen):
                    continue
                if op == "link":
                    names[name] = child[0]
                elif op == "unlink":
                    names.pop(name, None)
                else:
                    names.pop(name[0], None)
                    names[name[1]] = child[0]
            entries[id(inode)] = names
    for inode in _below(root):
        if not inode.is_folder:
            whole = inode.content == inode.synced or next(chosen)
            contents[id(inode)] = inode.content if whole else inode.synced

    def write(inode, path):
        if inode.is_folder:
            path.mkdir(exist_ok=True)
            for name, child in entries[id(inode)].items():
                write(child, path / name)
        else:
            path.write_bytes(contents[id(inode)])

    write(root, target)


@no_waiting
def cut_the_power(root, change, *, seed=0, without=None):
    """Make a change once, then look at every disk that a power cut may have left of it; returns their number.

    ``without`` is a line of the writer's source at which it does not wait for the disk.
    """
    rng = np.random.default_rng(seed)
    place = root / "place"
    folder = place / "new" / "deep" / "model" if change == "fit" else place / "model"
    place.mkdir(parents=True)
    prepare(folder, change)
    before = state_of(folder)
    kept = shutil.copytree(place, root / "before")
    recorded = Recorded(place)
    with Intercepted(place, recorded), without_sync(without):
        CHANGES[change](folder)
    after = state_of(folder)
    assert after != before
    n_disks = 0
    for cut, disk, choice in recorded.disks(kept, rng):
        target = root / "after"
        _write_out(disk, choice, target)
        where = f"{change}, power cut after call {cut} of {len(recorded.calls)}: {recorded.calls[max(0, cut - 1)][:2]}"
        try:
            now = state_of(target / folder.relative_to(place))
        except LnbnnError as error:
            raise AssertionError(f"{where}: {error}") from error
        assert now == after or (now == before and cut < len(recorded.calls) - _n_cleaning(recorded)), where
        shutil.rmtree(target)
        n_disks += 1
    return n_disks


def _n_cleaning(recorded):
    """How many calls came after the last one that a change must wait for: those after it only tidy up."""
    kinds = [kind for kind, _, _ in recorded.calls]
    return len(kinds) - 1 - max((place for place, kind in enumerate(kinds) if kind == "fsync"), default=-1)


@contextmanager
def without_sync(line):
    """A writer that does not wait for the disk at one line of its source."""
    real = model_writer.sync
    with mock.patch.object(
        model_writer, "sync", lambda path: None if sys._getframe(1).f_lineno == line else real(path)
    ):
        yield


def lines_that_sync():
    """The lines of the writer's source at which it waits for the disk."""
    tree = ast.parse(Path(model_writer.__file__).read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return sorted(call.lineno for call in calls if call.func.id == "sync")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--power-cuts", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    result = {}
    if options.errors:
        result |= fail_everywhere(options.folder / "errors")
    if options.power_cuts:
        cuts = {
            change: cut_the_power(options.folder / f"cut-{change}", change, seed=options.seed) for change in CHANGES
        }
        result["power_cuts"] = sum(cuts.values())
    json.dump(result, sys.stdout)
    print()


if __name__ == "__main__":
    main()

"""How much memory is free: checked before FAISS trains, which crashes without a message if it runs out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from lnbnn.errors import LnbnnError

__all__ = ["check_free", "free_address_space", "free_memory"]


def check_free(what: str, n_bytes: int, n_address_bytes: int) -> None:
    """Raise :class:`~lnbnn.errors.LnbnnError` unless so much memory, and so much address space, is free."""
    for needed, free in ((n_bytes, free_memory()), (n_address_bytes, free_address_space())):
        if free is not None and needed > free:
            raise LnbnnError(
                f"{what} takes about {needed >> 20} MiB of memory, but {max(free, 0) >> 20} MiB are free; "
                "use fewer images, or raise the limit."
            )


def free_memory() -> int | None:
    """Bytes that this process can still use: of the computer, and of the control groups it is in; None if unknown."""
    available = _number(r"^MemAvailable: +(\d+) kB", "/proc/meminfo")
    return min([*_free_in_groups(), *([] if available is None else [available << 10])], default=None)


def free_address_space() -> int | None:
    """Bytes left under the limits of ``ulimit -v`` and ``ulimit -d``; None if there is none, or it is not known."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    frees = []
    for limit, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        soft, _ = resource.getrlimit(limit)
        held = _number(rf"^{used}:\s+(\d+) kB", "/proc/self/status")
        if soft != resource.RLIM_INFINITY and held is not None:
            frees.append(soft - (held << 10))
    return min(frees, default=None)


def _free_in_groups() -> Iterator[int]:
    """What each control group of this process has left, those above them too; nothing where there is no limit."""
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit, used, cache = "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, cache = "/sys/fs/cgroup/memory", "total_inactive_file"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = Path(root + path)
        for folder in (group, *group.parents):
            most, held = _read(folder / limit).strip(), _read(folder / used).strip()
            if folder.is_relative_to(root) and most.isdigit() and held.isdigit():
                yield int(most) - int(held) + (_number(rf"^{cache} (\d+)$", folder / "memory.stat") or 0)


def _number(pattern: str, path: str | os.PathLike[str]) -> int | None:
    found = re.search(pattern, _read(path), re.MULTILINE)
    return None if found is None else int(found[1])


def _read(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

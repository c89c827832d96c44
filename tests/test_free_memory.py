"""How much memory is free."""

from __future__ import annotations

import pytest

from lnbnn.errors import LnbnnError
from lnbnn.indexes import free_memory as memory
from lnbnn.indexes.free_memory import check_free, free_address_space, free_memory


def write_tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def system(tmp_path, monkeypatch):
    """The files of the system, as the test writes them."""
    read = memory._read
    monkeypatch.setattr(memory, "_read", lambda path: read(str(tmp_path) + str(path)))
    return tmp_path


MEMINFO = "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n"


def test_free_memory_of_the_machine(system):
    write_tree(system, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n"})
    assert free_memory() == 8 << 20


def test_free_memory_is_not_known_everywhere(system):
    assert free_memory() is None
    check_free("all", 1 << 60, 0)


@pytest.mark.parametrize("limited", ["sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup"])
def test_free_memory_of_a_control_group(system, limited):
    write_tree(system, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a/b\n"})
    write_tree(system, {f"sys/fs/cgroup{group}/memory.max": "max\n" for group in ("", "/a", "/a/b")})
    files = {"memory.max": "5000000\n", "memory.current": "4000000\n", "memory.stat": "anon 7\ninactive_file 500\n"}
    write_tree(system, {f"{limited}/{name}": text for name, text in files.items()})
    assert free_memory() == 1_000_500


def test_free_memory_of_a_control_group_of_version_1(system):
    write_tree(system, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "3:cpu:/x\n2:memory:/a\n"})
    folder = "sys/fs/cgroup/memory/a"
    files = {"memory.limit_in_bytes": "5000000", "memory.usage_in_bytes": "1", "memory.stat": "total_inactive_file 0\n"}
    write_tree(system, {f"{folder}/{name}": text for name, text in files.items()})
    assert free_memory() == 4_999_999


def test_free_address_space_is_what_the_limit_leaves(system, monkeypatch):
    resource = pytest.importorskip("resource")
    write_tree(system, {"proc/self/status": "VmSize:\t    1024 kB\nVmData:\t     512 kB\n"})
    limits = {resource.RLIMIT_AS: resource.RLIM_INFINITY, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (limits[limit], resource.RLIM_INFINITY))
    assert free_address_space() is None
    limits[resource.RLIMIT_AS] = 5 << 20
    assert free_address_space() == 4 << 20
    limits[resource.RLIMIT_DATA] = 1 << 20
    assert free_address_space() == 1 << 19


def test_what_is_not_free_is_refused_in_a_line(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 10 << 20)
    monkeypatch.setattr(memory, "free_address_space", lambda: 20 << 20)
    check_free("work", 10 << 20, 20 << 20)
    with pytest.raises(LnbnnError, match=r"^work takes about 11 MiB of memory, but 10 MiB are free; use fewer images"):
        check_free("work", 11 << 20, 0)
    with pytest.raises(LnbnnError, match=r"^work takes about 21 MiB of memory, but 20 MiB are free; use fewer images"):
        check_free("work", 0, 21 << 20)

import os
from collections.abc import Callable, Mapping

import pytest

from larder.jobs.processes import Process
from larder.machine import copy_memory_bytes, memory_bytes, small_memory_environment, usable_cores
from tests.support.processes import run_python

GIB = 1024**3
POOL = "ARROW_DEFAULT_MEMORY_POOL"
V1 = "9:name=systemd:/\n4:memory:/job/42\n3:cpu,cpuacct:/job/42\n0::/\n"
V2 = "0::/job/42\n"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a machine of some memory, with some files of control groups."""

    def make(files: Mapping[str, str], size_bytes: int = 16 * GIB) -> None:
        monkeypatch.setattr("larder.machine._physical_bytes", lambda: size_bytes)
        monkeypatch.setattr("larder.machine._lines", lambda path: files.get(path, "").splitlines())

    return make


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 16 * GIB),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/job/42/memory.max": "max\n"}, 16 * GIB),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/job/42/memory.max": f"{GIB}\n"}, GIB),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/job/memory.max": f"{GIB}\n"}, GIB),
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": f"{GIB}\n"}, GIB),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/memory.max": f"{64 * GIB}\n"}, 16 * GIB),
        (
            {
                "/proc/self/cgroup": V1,
                "/sys/fs/cgroup/memory/job/42/memory.limit_in_bytes": "9223372036854771712",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}",
            },
            2 * GIB,
        ),
        ({"/proc/self/cgroup": "nonsense\n\n:::\n0::/../..\n"}, 16 * GIB),
    ],
)
def test_memory_is_what_the_machine_and_its_groups_leave(files, expected, machine):
    machine(files)
    assert memory_bytes() == expected


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(16 * GIB, 2 * GIB), (4 * GIB, GIB // 2), (100 * 1024, 128 * 1024**2)],
)
def test_a_copy_takes_an_eighth_within_bounds(size_bytes, expected, machine):
    machine({}, size_bytes)
    assert copy_memory_bytes() == expected


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, 4096),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/job/42/cpu.max": "max 100000\n"}, 4096),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/job/cpu.max": "100000 100000\n"}, 1),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/job/cpu.max": "10000 100000\n"}, 1),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/job/cpu.max": "150000 100000\n"}, 2),
        ({"/proc/self/cgroup": V2, "/sys/fs/cgroup/job/cpu.max": "1 0\n"}, 4096),
        (
            {
                "/proc/self/cgroup": V1,
                "/sys/fs/cgroup/cpu/job/42/cpu.cfs_quota_us": "-1\n",
                "/sys/fs/cgroup/cpu/job/42/cpu.cfs_period_us": "100000\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
    ],
)
def test_cores_are_those_that_the_process_may_use(files, quota, machine):
    machine(files)
    assert usable_cores() == min(quota, len(os.sched_getaffinity(0)))


_ARROW = """
from larder.machine import keep_memory_small
keep_memory_small()
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""


@pytest.mark.parametrize(("given", "pool"), [({}, "system"), ({POOL: "jemalloc"}, "jemalloc")])
def test_arrow_has_the_allocator_of_the_c_library_unless_told_otherwise(given, pool, monkeypatch):
    monkeypatch.delenv(POOL, raising=False)
    done = run_python("-c", _ARROW, **given)
    assert done.stdout.strip() == pool, done.stderr


_OPEN_FILES = """
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from larder.machine import raise_open_files
setrlimit(RLIMIT_NOFILE, (64, min(getrlimit(RLIMIT_NOFILE)[1], 4096)))
raise_open_files()
print(getrlimit(RLIMIT_NOFILE) == (getrlimit(RLIMIT_NOFILE)[1],) * 2)
"""


def test_as_many_files_may_be_open_as_the_system_allows():
    done = run_python("-c", _OPEN_FILES)
    assert done.stdout.strip() == "True", done.stderr


_IMPORTS = """
from pathlib import Path
from larder.machine import keep_memory_small
keep_memory_small()
import numpy
print(len(list(Path("/proc/self/task").iterdir())))
"""


@pytest.mark.push
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="Linux tells it there")
def test_numpy_starts_no_threads(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    done = run_python("-c", _IMPORTS)
    assert done.stdout.strip() == "1", done.stderr


def test_programs_of_ours_start_with_small_memory(monkeypatch):
    for name in small_memory_environment():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    wanted = small_memory_environment() | {"MALLOC_ARENA_MAX": "7"}
    process = Process()
    found = {name: process.call(os.getenv, name) for name in wanted}
    process.close()
    assert found == wanted

"""Memory and processor cores of this machine that this process may use."""

from __future__ import annotations

import ctypes
import math
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

_LEAST_BYTES = 128 * 1024**2
_MOST_BYTES = 2 * 1024**3
_SHARE = 8

_OPEN_FILES = 65_536
"""More are never needed, and programs that close all possible files take longer with more."""

_CGROUPS = "/sys/fs/cgroup"

_WRITE_RANGE = 2
"""``SYNC_FILE_RANGE_WRITE`` of Linux."""

_LIBRARIES = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}
"""Environment variables of libraries, and their values.

Arrow's own allocators keep a multiple of the memory in use, so Arrow gets the C library's
allocator. numpy's linear algebra, which Larder does not use, starts a thread for each further core.
These threads wait for work by spinning, a third of the CPU time of ``import numpy``. pydantic looks
for plugins in all installed packages, and Larder uses none.
"""

_MALLOC = {
    "MALLOC_ARENA_MAX": (-8, 2),
    "MALLOC_MMAP_THRESHOLD_": (-3, 2 << 20),
    "MALLOC_TRIM_THRESHOLD_": (-1, 4 << 20),
}
"""The environment variables of glibc's allocator, their numbers for mallopt, and their values.

By default, glibc keeps the memory that each thread has freed. After a large block was freed, glibc
no longer maps smaller blocks separately. With these values, files of a usual size and received
pieces are neither mapped nor given back each time. Mapping would cost a page fault for every 4 KiB,
a sixth of the CPU time of copying large objects to a directory.
"""


def copy_memory_bytes() -> int:
    """Return the default of ``copy.memory_bytes``: an eighth of the memory, 128 MiB to 2 GiB."""
    return min(_MOST_BYTES, max(_LEAST_BYTES, memory_bytes() // _SHARE))


def memory_bytes() -> int:
    return min([_physical_bytes(), *(limit for limit in _limits() if limit > 0)])


_processes = 1


def share_machine(processes: int) -> None:
    global _processes
    _processes = processes


def processes_together() -> int:
    """Return the number of processes, including this process, that share the work of a run."""
    return _processes


def usable_cores() -> int:
    """Return the number of cores for this process, at least 1; processes of a run share them."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    cores = min([cores, *(math.ceil(quota) for quota in _quotas() if quota > 0)])
    return max(1, cores // _processes)


def keep_memory_small() -> None:
    """Have this process give freed memory back soon; for programs of Larder's own.

    Call before numpy and Arrow are imported. Variables that are set in the environment win.
    """
    for name, text in _LIBRARIES.items():
        os.environ.setdefault(name, text)
    mallopt = _c_function("mallopt")
    for name, (option, value) in _MALLOC.items():
        if mallopt and name not in os.environ:
            mallopt(option, value)


def raise_open_files() -> None:
    """Raise this process's limit of open files: some systems allow 256 until a process asks."""
    limit, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if allowed == resource.RLIM_INFINITY else min(allowed, _OPEN_FILES)
    if limit != resource.RLIM_INFINITY and limit < most:
        with suppress(OSError, ValueError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, allowed))


def small_memory_environment() -> dict[str, str]:
    """Return environment variables with the effect of `keep_memory_small` from the start."""
    return _LIBRARIES | {name: str(value) for name, (_, value) in _MALLOC.items()}


def give_back_memory() -> None:
    """Return freed memory to the system; glibc keeps freed memory for each thread."""
    trim = _c_function("malloc_trim")
    if trim is not None:
        trim(0)


def start_writing(handle: int, offset: int, length: int) -> None:
    """Have the disk write a range of a file, without waiting for it; fsync reports failures."""
    start = _c_function("sync_file_range")  # Linux alone has it
    if start is not None:
        start(handle, ctypes.c_int64(offset), ctypes.c_int64(length), _WRITE_RANGE)


@cache
def _c_function(name: str) -> Callable[..., int] | None:
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    return function


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limits() -> Iterator[int]:
    """Yield the memory limits of the process's control groups and of all outer groups."""
    for version, folder in _groups("memory"):
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        yield from (_number(line) for line in _lines(f"{folder}/{name}"))


def _quotas() -> Iterator[float]:
    """Yield the processor quotas of these control groups, in cores."""
    for version, folder in _groups("cpu"):
        if version == 2:
            words = " ".join(_lines(f"{folder}/cpu.max")).split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            words = [line for name in names for line in _lines(f"{folder}/{name}")]
        if len(words) == 2 and _number(words[1]):
            yield _number(words[0]) / _number(words[1])


def _groups(controller: str) -> Iterator[tuple[int, str]]:
    """Yield the version and directory of the control groups that limit this process.

    A container sees only its own group, at the top, whatever name /proc/self/cgroup has for it.
    """
    for line in _lines("/proc/self/cgroup"):
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            yield from ((2, folder) for folder in _above(_CGROUPS, path))
        elif controller in names.split(","):
            yield from ((1, folder) for folder in _above(f"{_CGROUPS}/{controller}", path))


def _above(top: str, path: str) -> Iterator[str]:
    inner = PurePosixPath(top + path)
    yield from (str(each) for each in (inner, *inner.parents) if each.is_relative_to(top))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (OSError, ValueError):
        return []


def _number(text: str) -> int:
    """Parse a number; 0 for no limit, such as ``max`` and -1."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else 0

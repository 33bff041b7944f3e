"""Processes that end, and what becomes true meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def run_python(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def wait_until(true: Callable[[], bool], seconds: int = 240) -> None:
    """Poll for so long at most; a busy machine is slow."""
    for _ in range(seconds * 20):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not become true")


def is_running(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for has ended."""
    try:
        os.kill(pid, 0)
        if not Path("/proc/self").exists():  # all that can be found out without /proc
            return True
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]

"""The processes that ``flows.serve`` starts, and the processes of a worker's runs."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from pathlib import Path

from flows.runs.server import ended_hint
from larder.cli.output import tell
from larder.errors import FatalError

STOP_SECONDS = 30.0
"""Time that processes may take to end before they are killed."""

_SHORTEST_SECONDS = 10.0
"""A service that ends earlier twice in a row is not started again."""

_POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
_LAST_WORDS = 2000


class Service:
    """Prefect's server or worker, in a session of its own: Ctrl-C reaches only its parent.

    It writes to a log file, and runs in the folder of the log: files in the working directory set
    settings of Prefect. Without a log file, it writes to stderr. On Linux it ends with its parent,
    even if the parent is killed.
    """

    def __init__(
        self, name: str, log: Path | None, *flags: str, again: Callable[[], object] = lambda: None
    ) -> None:
        self.log = log
        self._name = name
        self._flags = flags
        self._again = again
        self._ended_early = False
        self._start()

    def _start(self) -> None:
        self._began = time.monotonic()
        with self.log.open("ab") if self.log else nullcontext(sys.stderr) as file:
            self._process = subprocess.Popen(  # noqa: S603 - Prefect's command line
                [sys.executable, "-m", "prefect", self._name, "start", *self._flags],
                cwd=self.log.parent if self.log else None,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def check(self) -> bool:
        """Start the service again if it has ended, after ``again``; returns whether it had.

        FatalError: ``run.server``: it has ended early, twice in a row.
        """
        status = self._process.poll()
        if status is None:
            return False
        early = time.monotonic() - self._began < _SHORTEST_SECONDS
        if early and self._ended_early:
            self.check_started()
        self._ended_early = early
        tell(f"the {self._name} ended with status {status}; starting another one")
        self._again()
        self._start()
        return True

    def check_started(self) -> None:
        status = self._process.poll()
        if status is not None:
            message = f"Prefect's {self._name} ended with status {status}: {self._last_line()}"
            hint = ended_hint() if self._name == "server" else "see its log"
            raise FatalError("run.server", message, where=str(self.log or self._name), hint=hint)

    def _last_line(self) -> str:
        if not self.log:
            return "see above"
        lines = self.log.read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def stop(self) -> None:
        """End the service, after the processes that it started."""
        _end(_groups_below(self._process.pid))
        if self._process.poll() is None:
            _end([self._process.pid])
        self._process.wait()


def _end(groups: Iterable[int]) -> None:
    """Ask process groups to end, and kill groups that do not."""
    running = [group for group in groups if _signal(group, signal.SIGTERM)]
    wait_until(lambda: running_groups().isdisjoint(running), STOP_SECONDS)
    for group in running:
        _signal(group, signal.SIGKILL)


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    enough = time.monotonic() + seconds
    while not done():
        if time.monotonic() > enough:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _signal(group: int, number: int) -> bool:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


def _processes() -> list[tuple[int, int, int, str]]:
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="],  # noqa: S607 - POSIX has it everywhere
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split() for line in listing.stdout.splitlines())
    return [(int(pid), int(parent), int(group), state) for pid, parent, group, state in rows]


def _groups_below(process: int) -> list[int]:
    """List the process groups of the children of a process, without its own group."""
    groups = {group for _, parent, group, _ in _processes() if parent == process}
    return sorted(groups - {process})


def running_groups() -> set[int]:
    """Return the process groups with a process that is not a zombie."""
    return {group for _, _, group, state in _processes() if state[0] != "Z"}


def running() -> set[int]:
    return {process for process, *_ in _processes()}


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

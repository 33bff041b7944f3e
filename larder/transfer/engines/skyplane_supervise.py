"""Runs the runner of Skyplane's environment to its end, by force if necessary."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from larder.config.copying import Copy as CopyConfig
from larder.progress import Progress
from larder.transfer.engines.skyplane_cost import spent_usd
from larder.transfer.engines.skyplane_process import (
    RUNNER,
    Event,
    RunnerProcess,
    default_python,
    without_secrets,
)
from larder.units import format_bytes, format_seconds

STAGE = "skyplane"
"""Name of the stage in the progress; its bytes are not verified."""

_POLL_SECONDS = 0.2
_REST_SECONDS = 1.0
_SWEEP_SECONDS = 300.0
_SETTLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SkyplaneLimits:
    """What a transfer may use; the fields of ``copy.skyplane``, and ``copy.max_cost_usd``.

    Attributes:
        max_instances: Machines on each side.
        timeout_seconds: For the whole transfer, with the start of its machines.
        stall_seconds: Without any progress.
        grace_seconds: For the runner to end its machines by itself, before it is killed.
        max_cost_usd: The most that the transfer may cost.
        python: The Python that has Skyplane; None for that of ``make skyplane``.
    """

    max_instances: int = 1
    timeout_seconds: float = 7200.0
    stall_seconds: float = 600.0
    grace_seconds: float = 270.0
    max_cost_usd: float | None = None
    python: Path | None = None

    @staticmethod
    def of(config: CopyConfig) -> SkyplaneLimits:
        """The limits in a cluster file."""
        chosen = config.skyplane
        return SkyplaneLimits(
            max_instances=chosen.max_instances,
            timeout_seconds=chosen.timeout_seconds,
            stall_seconds=chosen.stall_seconds,
            max_cost_usd=config.max_cost_usd,
            python=Path(chosen.python) if chosen.python else None,
        )

    @property
    def interpreter(self) -> Path:
        """See ``python``."""
        return (self.python or default_python()).expanduser()

    @property
    def most_seconds(self) -> float:
        """After this time no machine runs any more, if the clouds can be reached."""
        return self.timeout_seconds + self.grace_seconds + _SWEEP_SECONDS


@dataclass(frozen=True, slots=True)
class SkyplaneReport:
    """How a transfer ended. Whatever it says, the caller verifies.

    Attributes:
        status: ``done`` or ``failed``.
        message: What happened, as one line; for ``failed``, why and what may be left behind.
        bytes: Written to the target, as far as Skyplane said so.
        seconds: It took.
        vm_hours: Of all machines together.
        usd: What egress and machines cost, at list prices.
        log: Skyplane's output, if it was kept; it may contain names of objects.
    """

    status: str
    message: str
    bytes: int
    seconds: float
    vm_hours: float
    usd: float
    log: Path | None = None


@dataclass(slots=True)
class _Seen:
    """What the runner has said."""

    phase: str = ""
    chunks: int = 0
    bytes: int = 0
    moved: float = 0.0
    machines: list[tuple[str, str]] = field(default_factory=list)
    began: float | None = None
    ended: float | None = None
    error: str = ""
    done: bool = False


class Supervisor:
    """Runs the runner once.

    Args:
        limits: What it may use.
        home: Its private HOME, which is removed at the end, except for its log if it failed.
        request: See `larder.transfer.engines.skyplane_runner`.
        extra: Environment variables for it.
        progress: See `larder.transfer.engines.skyplane.run_skyplane`.
        say: See there.
    """

    def __init__(
        self,
        limits: SkyplaneLimits,
        home: Path,
        request: Mapping[str, Any],
        extra: Mapping[str, str],
        progress: Progress,
        say: Callable[[str], None],
    ) -> None:
        self._limits = limits
        self._home = home
        self._request = request
        self._extra = extra
        self._progress = progress
        self._say = say
        self._seen = _Seen(moved=time.monotonic())

    def run(self, egress_usd_per_gb: float) -> SkyplaneReport:
        """Run the transfer; a failure is a result.

        Args:
            egress_usd_per_gb: For the cost in the report.

        Raises:
            ConfigError: ``config.missing_package``: Skyplane's environment does not run.
            LarderError: Any error of the progress; machines are ended in the background.
        """
        seen = self._seen
        began = time.monotonic()
        process = self._start(self._request)
        try:
            problem = self._watch(process)
        except BaseException:
            process.kill()
            self._note_the_rest(process)
            self._sweep_in_background()
            raise
        status = process.kill()
        self._note_the_rest(process)
        if not (seen.done or seen.error or problem):
            problem = f"it ended with status {status}, without a word"
        left = self._swept() if self._sweep_needed else ""
        seconds = time.monotonic() - began
        running = (seen.ended or time.monotonic()) - seen.began if seen.began else 0.0
        hours, usd = spent_usd(
            seen.machines if seen.began else [],
            seconds=running,
            sent_bytes=seen.bytes,
            egress_usd_per_gb=egress_usd_per_gb,
        )
        message, log = self._message(problem or seen.error, left, seconds), None
        if seen.done and not problem and not left:
            shutil.rmtree(self._home, ignore_errors=True)
        else:
            log = self._kept_log()
            message += f"; its output is in {log}"
        done = "done" if seen.done and not problem else "failed"
        return SkyplaneReport(done, message, seen.bytes, seconds, hours, usd, log)

    def _start(self, request: Mapping[str, Any]) -> RunnerProcess:
        try:
            python = self._limits.interpreter
            return RunnerProcess(python, RUNNER, request, self._home, self._extra)
        except BaseException:
            shutil.rmtree(self._home, ignore_errors=True)
            raise

    def _watch(self, process: RunnerProcess) -> str:
        """Follow the runner to its end; returns why it has to be killed, if it has to be.

        Raises:
            LarderError: Any error of the progress.
        """
        seen, limits = self._seen, self._limits
        end = time.monotonic() + limits.timeout_seconds + limits.grace_seconds
        while not process.ended:
            event = process.event(_POLL_SECONDS)
            now = time.monotonic()
            chunks, new_bytes = self._noted(event, now)
            self._progress.advance(STAGE, objects=chunks, bytes=new_bytes)
            if now > end:
                return f"it was killed after {format_seconds(limits.timeout_seconds)}"
            if now > seen.moved + limits.stall_seconds + limits.grace_seconds:
                phase = seen.phase or "starting"
                return f"it was killed: no progress for {limits.stall_seconds:g} s while {phase}"
        return ""

    def _note_the_rest(self, process: RunnerProcess) -> None:
        """What a killed runner had said already, such as that it starts machines."""
        end = time.monotonic() + _REST_SECONDS
        while not process.ended and time.monotonic() < end:
            self._noted(process.event(_POLL_SECONDS), time.monotonic())

    def _noted(self, event: Event | None, now: float) -> tuple[int, int]:
        """Note an event; returns how many more chunks and bytes are at the target."""
        chunks, total_bytes = self._seen.chunks, self._seen.bytes
        if event is not None:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # not one of ours
                self._note(event, now)
        return self._seen.chunks - chunks, self._seen.bytes - total_bytes

    def _note(self, event: Event, now: float) -> None:
        seen, fields = self._seen, event.fields
        match event.name:
            case "planned":
                seen.machines = [(str(tag), str(kind)) for tag, kind in fields["machines"]]
                kinds = ", ".join(f"{kind} in {tag}" for tag, kind in seen.machines)
                self._say(f"Skyplane starts {kinds}")
            case "provisioning":
                seen.began = now
            case "transferring":
                self._say("Skyplane's machines are ready; the transfer begins")
            case "progress":
                seen.chunks = max(int(fields["written"]), seen.chunks)
                seen.bytes = max(int(fields["bytes"]), seen.bytes)
            case "error":
                seen.error = without_secrets(str(fields.get("message", "")))
            case "done":
                seen.done = True
            case "deprovisioned":
                seen.ended = now
        seen.phase = event.name
        seen.moved = now

    @property
    def _sweep_needed(self) -> bool:
        """Whether machines may run that the runner has not ended, or its keys may be valid."""
        keys = self._home / ".skyplane" / "keys"
        unended = self._seen.began is not None and self._seen.ended is None
        return unended or any(path.is_file() for path in keys.rglob("*"))

    def _sweep_request(self, *, remove_home: bool) -> dict[str, Any]:
        return {
            **self._request,
            "sweep": True,
            "regions": sorted({tag for tag, _ in self._seen.machines}),
            "settle_seconds": _SETTLE_SECONDS,
            "remove_home": remove_home,
        }

    def _swept(self) -> str:
        """End what a killed runner left; returns what may still run, if that failed."""
        self._say("ending what Skyplane has left")
        process = self._start(self._sweep_request(remove_home=False))
        end = time.monotonic() + _SWEEP_SECONDS
        swept, said = False, "it took too long"
        try:
            while not process.ended and time.monotonic() < end:
                event = process.event(_POLL_SECONDS)
                self._progress.advance(STAGE)
                if event is not None and event.name == "deprovisioned":
                    self._seen.ended = time.monotonic()
                    swept = True
                elif event is not None and event.name == "error":
                    said = without_secrets(str(event.fields.get("message", "")))
        except BaseException:
            process.kill()
            self._sweep_in_background()
            raise
        process.kill()
        if swept:
            return ""
        regions = ", ".join(sorted({tag for tag, _ in self._seen.machines}))
        return (
            f"ending its machines failed ({said}): look in {regions} for machines with the tag "
            f"skyplaneclientid {self._request['client']}, which otherwise switch themselves off "
            "within 15 minutes"
        )

    def _sweep_in_background(self) -> None:
        if not self._sweep_needed:
            shutil.rmtree(self._home, ignore_errors=True)
            return
        self._say("stopped; Skyplane's machines are ended in the background")
        self._start(self._sweep_request(remove_home=True)).leave()

    def _message(self, problem: str, left: str, seconds: float) -> str:
        if problem:
            message = f"Skyplane failed after {format_seconds(seconds)}: {problem}"
        else:
            copied = format_bytes(self._seen.bytes)
            message = f"Skyplane wrote {copied} in {format_seconds(seconds)}"
        return f"{message}; {left}" if left else message

    def _kept_log(self) -> Path:
        """The log alone: the rest of the folder may contain keys."""
        for path in self._home.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != "log":
                path.unlink()
        return self._home / "log"

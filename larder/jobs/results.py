"""Results of a run and its steps: small values with totals and failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from larder.errors import ConfigError, Failure, Failures, FatalError, shown

if TYPE_CHECKING:
    from larder.manifest.sealed import StoredFile


@dataclass(frozen=True, slots=True)
class Totals:
    """A number of objects (or samples, shards, records) and their bytes."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.count + other.count, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The result of one batch, or the merged result of several batches.

    ``done`` are objects copied, or shards written. ``failures`` are the first
    `larder.errors.SHOWN_FAILURES` of the ``failed`` objects or samples; ``lists`` are manifests
    of schema FAILURES in the storage: all objects that could not be copied. ``stopped`` is the
    reason why not everything was tried; empty if everything was tried.
    """

    done: Totals = field(default_factory=Totals)
    failures: tuple[Failure, ...] = ()
    failed: int = 0
    lists: tuple[StoredFile, ...] = ()
    stopped: str = ""

    @staticmethod
    def of(failures: Failures, done: Totals | None = None) -> BatchReport:
        return BatchReport(done or Totals(), tuple(failures.shown), failures.count)


def merge_reports(reports: Iterable[BatchReport | None]) -> BatchReport:
    """Merge reports; None stands for a batch not started, as too much failed in another batch."""
    failures = Failures()
    lists: list[StoredFile] = []
    done, stopped = Totals(), ""
    for report in reports:
        if report is None:
            continue
        done += report.done
        failures.add_counted(report.failures, report.failed)
        lists += report.lists
        stopped = stopped or report.stopped
    return BatchReport(done, tuple(failures.shown), failures.count, tuple(lists), stopped)


def stops_others(result: object) -> bool:
    """Whether the result of a batch means that no further batch should be started."""
    return isinstance(result, BatchReport) and bool(result.stopped)


class RefusedError(ConfigError):
    """A plan refused because of objects or samples; ``report`` has the first by name."""

    def __init__(self, code: str, message: str, hint: str, report: BatchReport) -> None:
        super().__init__(code, message, where=report.failures[0].key, hint=hint)
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all fields, which a task run may send to another process."""
        return (RefusedError, (self.code, self.message, self.hint, self.report))


class RunError(FatalError):
    """Some objects failed, so nothing was published."""

    def __init__(self, stage: str, report: BatchReport, hint: str = "") -> None:
        first = report.failures[0]
        message = f"{report.failed} failed in {stage}, the first: {_without_hint(first)}"
        if report.stopped:
            message = f"stopped early in {stage}, {report.stopped}; the first: {first.line}"
        hint = hint or "nothing was published; fix or exclude them, then run again to continue"
        super().__init__("run.failed", message, hint=hint)
        self.stage = stage
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return (RunError, (self.stage, self.report, self.hint))

    @staticmethod
    def unless_clean(stage: str, report: BatchReport) -> None:
        if report.failed:
            raise RunError(stage, report)


def _without_hint(failure: Failure) -> str:
    """Format a failure without its hint, as the run's error has its own hint."""
    message, _, _ = failure.line.rpartition("; ")
    return message if shown(failure.key) in message else failure.line

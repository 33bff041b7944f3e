"""The results of a run and its steps: small values that say what was done and what failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from larder.errors import ConfigError, Failure, FatalError, printable

__all__ = ["BatchReport", "RefusedError", "RunError", "Totals", "merge_reports"]

SHOWN_FAILURES = 1000
"""Maximum number of failures kept by name; the rest are only counted."""


@dataclass(frozen=True, slots=True)
class Totals:
    """A number of objects (or samples, shards, records) and their bytes."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: Totals) -> Totals:
        """The sum of both counts and both numbers of bytes."""
        return Totals(self.count + other.count, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The result of one batch, or of several together.

    Attributes:
        done: Objects copied, or shards written.
        failures: The first `SHOWN_FAILURES` objects or samples that failed.
        failed: The number of objects or samples that failed.
    """

    done: Totals = field(default_factory=Totals)
    failures: tuple[Failure, ...] = ()
    failed: int = 0


def merge_reports(reports: Iterable[BatchReport]) -> BatchReport:
    """Merge reports into one."""
    done, failed, failures = Totals(), 0, list[Failure]()
    for report in reports:
        done += report.done
        failed += report.failed
        failures += report.failures[: SHOWN_FAILURES - len(failures)]
    return BatchReport(done=done, failures=tuple(failures), failed=failed)


class RefusedError(ConfigError):
    """Objects or samples because of which the plan is refused.

    Attributes:
        report: These objects or samples; the first ones by name.
    """

    def __init__(self, code: str, message: str, hint: str, report: BatchReport) -> None:
        super().__init__(code, message, where=report.failures[0].key, hint=hint)
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all fields, which a task run may send to another process."""
        return (RefusedError, (self.code, self.message, self.hint, self.report))


class RunError(FatalError):
    """Some objects failed, so nothing was published.

    Attributes:
        report: What was done, and which objects failed.
    """

    def __init__(self, stage: str, report: BatchReport) -> None:
        first = report.failures[0]
        message = f"{report.failed} failed in {stage}, the first: {_without_hint(first)}"
        hint = "nothing was published; fix or exclude them, then run again to continue"
        super().__init__("run.failed", message, hint=hint)
        self.stage = stage
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the stage and the report."""
        return (RunError, (self.stage, self.report))

    @staticmethod
    def unless_clean(stage: str, report: BatchReport) -> None:
        """Raise an error if anything failed."""
        if report.failed:
            raise RunError(stage, report)


def _without_hint(failure: Failure) -> str:
    """The failure without its hint: the run's error has its own."""
    message, _, _ = failure.line.rpartition("; ")
    return message if printable(failure.key) in message else failure.line

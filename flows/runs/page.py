"""What a flow run leaves on its page in Prefect's UI: its log, and tables that people look at."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from httpx import HTTPError  # Prefect's
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.logging import get_run_logger

from flows.runs.configure import SHOWN
from larder.cli.display import Display, PlainView
from larder.errors import ProblemsError, printable
from larder.jobs.results import BatchReport, RefusedError, RunError
from larder.pipeline.run_report import run_lines
from tasks.progress import also_listening

Lines = Callable[[Mapping[str, Any]], list[str]]

INTERVAL_SECONDS = 30.0
SHOWN_FAILURES = 10


class _View(PlainView):
    def __init__(self, say: Any) -> None:
        super().__init__(sys.stderr, INTERVAL_SECONDS)
        self._say = say

    def say(self, line: str) -> None:
        """Log a line that only Prefect shows."""
        self._say(logging.INFO, line)


class RunLog:
    """The log of the current flow run; may be used by any thread.

    Args:
        lines: The JSON document of a run for people.
    """

    def __init__(self, lines: Lines = run_lines) -> None:
        self._logger = get_run_logger()
        self._lines = lines
        self.progress = Display(view=_View(self._log))

    def say(self, line: str) -> None:
        """Log a line that the terminal shows too."""
        self._logger.warning("%s", line)

    def outcome(self, document: Mapping[str, Any]) -> None:
        """Log the result of the run: version, location, configs, warnings and skipped keys."""
        for line in self._lines({**document, "warnings": []}):
            self._log(logging.INFO, line)
        for warning in document.get("warnings", ()):
            self._log(logging.WARNING, f"warning[{warning['code']}]: {warning['message']}")
        if document.get("skipped"):
            self._log(logging.WARNING, f"{document['skipped']:,} skipped, as the dataset file says")

    def failed(self, error: RefusedError | RunError) -> None:
        """Log the first objects that failed. Prefect itself logs that the run failed, and why."""
        failures = error.report.failures[:SHOWN_FAILURES]
        for failure in failures:
            self._log(logging.ERROR, f"failed[{failure.code}]: {failure.line}")
        if more := error.report.failed - len(failures):
            self._log(logging.ERROR, f"and {more:,} more")

    def refused(self, error: ProblemsError) -> None:
        """Log all mistakes of the configuration; Prefect itself logs only the first."""
        for problem in error.problems:
            self._log(logging.ERROR, f"error[{problem.code}]: {problem}")

    def _log(self, level: int, line: str) -> None:
        self._logger.log(level, "%s", line, extra={SHOWN: True})


@contextmanager
def run_log(lines: Lines = run_lines) -> Iterator[RunLog]:
    """Log the stages and failures of a ``with`` block within a flow run.

    Args:
        lines: The JSON document of the run for people.
    """
    log = RunLog(lines)
    try:
        with also_listening(log.progress):
            yield log
    except (RefusedError, RunError) as error:
        log.failed(error)
        failures_table(error.report)
        raise
    except ProblemsError as error:
        log.refused(error)
        raise


FAILURES = "failures"
"""Key of the table of failures; Prefect keeps the tables of earlier runs under it."""

FINDINGS = "findings"
"""Key of the table of what a verification found."""


def failures_table(report: BatchReport) -> None:
    """Make a table of the objects or samples that failed: the first 1,000.

    A server that does not take it does not hide why the run failed.

    Args:
        report: What was done, and what failed.
    """
    if not report.failures:
        return
    rows = [
        {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in map(asdict, report.failures)
    ]
    shown = f"the first {len(rows):,} of " if len(rows) < report.failed else ""
    with suppress(HTTPError):
        create_table_artifact(
            key=FAILURES, table=rows, description=f"{shown}{report.failed:,} that failed"
        )


def findings_table(rows: Sequence[Mapping[str, Any]], found: int) -> None:
    """Make a table of what a verification found: the first 1,000, and none if nothing was.

    Args:
        rows: The findings.
        found: Their total number.
    """
    if not rows:
        return
    shown = f"the first {len(rows):,} of " if len(rows) < found else ""
    with suppress(HTTPError):
        create_table_artifact(
            key=FINDINGS,
            table=[dict(row) for row in rows],
            description=f"{shown}{found:,} that were found",
        )


def summary(key: str, lines: Sequence[str]) -> None:
    """Make a note with the result of a run, as the command prints it.

    Args:
        key: Its key in Prefect: that of the flow.
        lines: The lines.
    """
    text = "\n".join(printable(line) for line in lines)
    with suppress(HTTPError):
        create_markdown_artifact(key=key, markdown=f"~~~~\n{text}\n~~~~")

"""The page of a flow run in Prefect's UI: its log, its progress, and its result."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any

from prefect import get_client
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from flows.runs.configure import OF_RUNS, SHOWN
from flows.runs.secrets import without_auth
from larder.cli.command import Lines
from larder.cli.display import Display, PlainView
from larder.cli.exit import DEBUG
from larder.errors import DamageError, LarderError, ProblemsError, printable
from larder.jobs.results import RefusedError, RunError
from larder.verify.verifying import finding_rows
from tasks.artifacts import note, stage_progress, table
from tasks.run_progress import current_flow_run, current_listener, listening

AGAIN = "run it again to continue"
"""The end of messages of runs that ended early."""

LOG_INTERVAL_SECONDS = 30.0
SHOWN_FAILURES = 10


class _View(PlainView):
    def __init__(self, log: RunLog) -> None:
        super().__init__(sys.stderr, LOG_INTERVAL_SECONDS)
        self._log = log

    def say(self, line: str) -> None:
        """Log a line that only Prefect shows."""
        self._log.write(logging.INFO, line)


class RunLog:
    """The log of the current flow run; may be used by any thread."""

    def __init__(self) -> None:
        self._logger = get_run_logger()
        self.progress = Display(view=_View(self), listener=current_listener())

    def say(self, line: str) -> None:
        """Log a line that the terminal shows too."""
        self._logger.warning("%s", line)

    def write(self, level: int, line: str) -> None:
        """Log a line that the terminal shows in another way."""
        self._logger.log(level, "%s", line, extra={SHOWN: True})

    def outcome(self, document: Mapping[str, Any], lines: Lines) -> None:
        """Log the result of the run: version, location, configs, warnings and skipped keys."""
        for line in lines({**document, "warnings": []}):
            self.write(logging.INFO, line)
        for warning in document.get("warnings", ()):
            self.write(logging.WARNING, f"warning[{warning['code']}]: {warning['message']}")
        if document.get("skipped"):
            self.write(
                logging.WARNING, f"{document['skipped']:,} skipped, as the dataset file says"
            )

    def failed(self, error: RefusedError | RunError) -> None:
        failures = error.report.failures[:SHOWN_FAILURES]
        for failure in failures:
            self.write(logging.ERROR, f"failed[{failure.code}]: {failure.line}")
        if more := error.report.failed - len(failures):
            self.write(logging.ERROR, f"and {more:,} more")


def _without_traceback(record: logging.LogRecord) -> bool:
    """Take the traceback off Larder's own errors: one line is enough, as in the terminal."""
    if record.exc_info and isinstance(record.exc_info[1], LarderError) and DEBUG not in os.environ:
        record.exc_info = None
    return True


@contextmanager
def run_log() -> Iterator[RunLog]:
    for name in OF_RUNS:
        logging.getLogger(name).addFilter(_without_traceback)
    log = RunLog()
    try:
        with listening(log.progress), stage_progress(log.progress):
            yield log
    except (RefusedError, RunError) as error:
        log.failed(error)
        rows = [failure._asdict() for failure in error.report.failures]
        _failed("failures", rows, error.report.failed, "failed")
        summary("error", str(error).split("; "))
        raise
    except DamageError as error:
        if error.document:
            findings(error.document)
        raise


def log_end(shown: LarderError, error: Exception) -> str:
    """Log why the run fails, as the terminal shows it; returns the last line.

    Prefect logs nothing about the run after that: it would repeat the error with a traceback.
    """
    log = RunLog()
    if shown is not error:
        log.write(logging.ERROR, without_auth("".join(traceback.format_exception(error))))
    problems = shown.problems if isinstance(shown, ProblemsError) else (shown,)
    lines = [f"error[{problem.code}]: {problem}" for problem in problems]
    for line in lines:
        log.write(logging.ERROR, line)
    run = flow_run.id

    def of_another_run(record: logging.LogRecord) -> bool:
        reported = record.exc_info and record.exc_info[1] is error
        return not reported and getattr(record, "flow_run_id", "") != run

    if DEBUG not in os.environ:
        for name in (OF_RUNS[0], "prefect.engine"):
            logging.getLogger(name).addFilter(of_another_run)
    return lines[-1]


def change_tags(*, add: Set[str] = frozenset(), remove: Set[str] = frozenset()) -> None:
    """Change the tags of the flow run, by which the list of runs can be filtered."""
    with suppress(Exception), get_client(sync_client=True) as client:
        run = current_flow_run().id
        before = set(client.read_flow_run(run).tags)
        client.update_flow_run(run, tags=sorted((before | add) - remove))


def findings(document: Mapping[str, Any]) -> None:
    _first("findings", finding_rows(document), document["found"], "were found")


def skipped(document: Mapping[str, Any]) -> None:
    _failed("skipped", document["failures"], document["skipped"], "were skipped")


def _failed(key: str, failures: Sequence[Mapping[str, Any]], count: int, what: str) -> None:
    """Make a table of failures, whose messages lose the keys at their beginning."""
    rows = [{**row, "message": row["message"].removeprefix(f"{row['key']}: ")} for row in failures]
    _first(key, rows, count, what)


def _first(key: str, rows: Sequence[Mapping[str, Any]], count: int, what: str) -> None:
    shown = f"the first {len(rows):,} of " if len(rows) < count else ""
    table(key, rows, f"{shown}{count:,} that {what}")


def summary(key: str, lines: Sequence[str]) -> None:
    """Make a note with the result of a run, as the command prints it."""
    shown = [printable(line) for line in lines]
    text = "\n".join(shown)
    note(key, f"~~~~\n{text}\n~~~~", shown[0] if shown else "")

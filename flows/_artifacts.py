"""What a run leaves on its page in Prefect: tables that people look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from httpx import HTTPError  # Prefect's
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from larder.errors import printable
from larder.pipeline.results import BatchReport

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
